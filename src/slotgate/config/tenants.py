"""Settings of the tenants: whom a key belongs to, and what they may do."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from slotgate.config.classes import ClassName
from slotgate.config.keys import KeyReference, Sources, problem
from slotgate.config.section import Count, Name, Number, Section


class TenantSettings(Section):
    """Whom a key belongs to, and what they may do.  One of the three key settings is needed."""

    name: Name = Field(
        description="What the tenant is called in logs, metrics and commands.", examples=["chat-ui"]
    )
    key_env: str | None = Field(
        default=None,
        description="The environment variable that holds the tenant's key.",
        examples=["CHAT_UI_KEY"],
    )
    key_file: str | None = Field(
        default=None,
        examples=["/run/secrets/chat-ui"],
        description="The file that holds the tenant's key.",
    )
    key_sha256: str | None = Field(
        default=None,
        repr=False,
        examples=["00000000..."],
        description="The SHA-256 of the tenant's key, as `slotgate keys new` prints it.",
    )
    priority_class: ClassName = Field(
        default="standard",
        validation_alias="class",
        description="The priority class of its requests.",
    )
    weight: Number = Field(
        default=1.0,
        ge=0.01,
        le=1000,
        description="The tenant's share of a busy server, compared with other tenants' weights.",
    )
    max_in_flight: Count | None = Field(
        default=None,
        ge=1,
        examples=[3],
        description="The most requests of the tenant that may run at once.",
    )
    max_waiting: Count | None = Field(
        default=None,
        ge=0,
        examples=[16],
        description="The most requests of the tenant that may wait at once.",
    )
    wait_comments: Literal["allow", "ignore"] = Field(
        default="allow",
        description="Whether its clients may ask for comments in the stream while they wait.",
    )

    _digest: bytes = PrivateAttr(b"")

    @property
    def key_digest(self) -> bytes:
        """SHA-256 of the tenant's key."""
        return self._digest

    @model_validator(mode="after")
    def _has_a_key(self, info: ValidationInfo) -> Self:
        reference = KeyReference("key", self.key_env, self.key_file, self.key_sha256)
        digest = reference.digest(Sources.of(info.context))
        if digest is None:
            raise problem("the tenant has no key; set key_env, key_file or key_sha256")
        self._digest = digest
        return self
