"""Who is asking: API keys to tenants, and the operator's key.

Rule 1: keys exist here only while a request is looked at; what is kept are their SHA-256 digests.
Rule 2: no key, and no part of one, appears in a message, a log line or a `repr`.
Rule 3: the operator's key is no tenant's key, and opens nothing that takes slots.

How a key is found without telling by the time it takes: the digest of what the client sent is
looked up in a dictionary.  How long that takes depends on the digest alone, and nobody can choose
the digest of a key without trying out SHA-256, so the time says nothing about how much of a guess
was right.  Dictionaries compare bytes of equal length only where their hashes are equal, and the
hash is keyed per process.  The one key that is compared directly uses `hmac.compare_digest`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from slotgate.config import ClassName, Settings
from slotgate.config.keys import MAX_KEY_CHARACTERS
from slotgate.errors import BadRequestError

ANONYMOUS = "default"

# llama-server leaves these open too; what watches a server must not need a key.
PUBLIC_PATHS = frozenset({"/health", "/v1/health", "/ready"})

Headers = Iterable[tuple[bytes, bytes]]


class UnauthorizedError(BadRequestError):
    """No key, or one that nobody has; the message names neither."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=401)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """Whom a request belongs to.  None as a limit means no limit of its own."""

    name: str
    priority_class: ClassName = "standard"
    max_in_flight: int | None = None
    max_waiting: int | None = None
    may_see_comments: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyring:
    """The digests of all keys, and who has them.

    Without tenants there are no keys to show, and everybody is the tenant `anonymous`.
    `is_open_to_operator` says whether the operator's verbs need no key: only where nobody has one
    and nobody but this machine can connect.
    """

    anonymous: Tenant = field(default_factory=lambda: Tenant(name=ANONYMOUS))
    # Digest of a key -> its tenant.
    tenants: Mapping[bytes, Tenant] = field(default_factory=dict, repr=False)
    admin_digest: bytes | None = field(default=None, repr=False)
    is_open_to_operator: bool = False

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        return cls(
            anonymous=Tenant(name=ANONYMOUS, priority_class=settings.default_class),
            tenants={
                tenant.key_digest: Tenant(
                    name=tenant.name,
                    priority_class=tenant.priority_class,
                    max_in_flight=tenant.max_in_flight,
                    max_waiting=tenant.max_waiting,
                    may_see_comments=tenant.wait_comments == "allow",
                )
                for tenant in settings.tenants
            },
            admin_digest=settings.admin_digest,
            is_open_to_operator=not settings.tenants and not settings.bind.is_public,
        )

    @property
    def has_tenants(self) -> bool:
        return bool(self.tenants)

    @property
    def names(self) -> list[str]:
        """The names of everybody who may ask."""
        return list(dict.fromkeys(t.name for t in self.tenants.values())) or [self.anonymous.name]

    @staticmethod
    def is_public(method: str, path: str) -> bool:
        """Say whether a request needs no key: liveness, and what a browser asks beforehand."""
        return path in PUBLIC_PATHS or method == "OPTIONS"

    def tenant_for(self, headers: Headers) -> Tenant:
        """Return whom a request belongs to.

        Raises UnauthorizedError, or BadRequestError where the headers contradict each other.
        """
        if not self.tenants:
            return self.anonymous
        digest = _digest_of(headers)
        if digest is None:
            raise UnauthorizedError("No API key: send Authorization: Bearer KEY, or x-api-key: KEY")
        tenant = self._find(digest)
        if tenant is None:
            raise UnauthorizedError("Invalid API key")
        return tenant

    def is_admin(self, headers: Headers) -> bool:
        """Say whether the operator asks.  Raises BadRequestError as `tenant_for` does."""
        if self.admin_digest is None:
            return self.is_open_to_operator
        digest = _digest_of(headers)
        return digest is not None and hmac.compare_digest(digest, self.admin_digest)

    def may_observe(self, headers: Headers) -> bool:
        """Say whether a request may read states and metrics: any tenant and the operator may."""
        if not self.tenants:
            return True
        headers = list(headers)
        digest = _digest_of(headers)
        return self.is_admin(headers) or (digest is not None and self._find(digest) is not None)

    def _find(self, digest: bytes) -> Tenant | None:
        return self.tenants.get(digest)


def _digest_of(headers: Headers) -> bytes | None:
    key = _key_in(headers)
    if not key or len(key) > MAX_KEY_CHARACTERS:
        return None
    return hashlib.sha256(key).digest()


def _key_in(headers: Headers) -> bytes:
    """Return the key that the headers carry, b"" if none.

    As llama-server takes them: `Authorization: Bearer KEY`, `Authorization: KEY`, and
    `x-api-key: KEY`, which counts only where there is no Authorization.
    """
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        lowered = name.lower()
        if lowered in {b"authorization", b"x-api-key"}:
            if lowered in found:
                raise BadRequestError(f"The header {lowered.decode()} was sent twice")
            found[lowered] = value.strip(b" \t")
    if authorization := found.get(b"authorization"):
        scheme, _, rest = authorization.partition(b" ")
        return rest.strip(b" \t") if scheme.lower() == b"bearer" else authorization
    return found.get(b"x-api-key", b"")
