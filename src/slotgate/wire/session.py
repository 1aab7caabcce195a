"""Which requests belong to one session: what their client says of it, as a key that tells nothing.

The key says only that two requests of one tenant continue each other, so that the second goes where
the first one's prompt is cached.  It is a keyed hash, with another key in each process: neither a
user's name nor a prompt's text can be read off it, wherever it is shown, and no tenant can make a
key that is another's.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Ours first, then what clients send by themselves: OpenRouter's, opencode's and Crush's, Codex'
# (with the name of its older versions), Open WebUI's.
SESSION_HEADERS = (
    b"x-slotgate-session",
    b"x-session-id",
    b"x-session-affinity",
    b"session-id",
    b"session_id",
    b"x-openwebui-chat-id",
)
# More of a name is not looked at.
_NAME_BYTES = 1024
_KEY_BYTES = 12


class SessionKeys:
    """Makes the keys; `secret` is up to 64 bytes of chance."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def key(
        self, tenant: str, headers: Mapping[bytes, bytes], named_in_body: str | None
    ) -> str | None:
        """Return the session's key; None when nothing tells which one it is.

        A header says it best, since it is meant for nothing else.
        """
        name = next((value for each in SESSION_HEADERS if (value := headers.get(each))), None)
        if name is None:
            if named_in_body is None:
                return None
            name = named_in_body.encode(errors="surrogatepass")
        # Tenants' names are the operator's, and have no zero in them.
        told = b"%s\0%s" % (tenant.encode(), name[:_NAME_BYTES])
        return blake2b(told, digest_size=_KEY_BYTES, key=self._secret).hexdigest()
