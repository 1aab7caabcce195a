"""Every setting of Slotgate: its type, default, unit, bounds and meaning, declared once.

The reference page, the JSON schema, the example file and the names of the environment variables
are made from these declarations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, model_validator

from slotgate.config.address import Listen
from slotgate.config.backends import (
    Backend,
    ManagedSettings,
    ModelSettings,
    ServerSettings,
    TimeoutSettings,
)
from slotgate.config.classes import Classes, ClassName, ClassSettings
from slotgate.config.health import HealthSettings
from slotgate.config.keys import KeyReference, Sources, problem
from slotgate.config.scheduling import SchedulingSettings
from slotgate.config.section import Count, Section
from slotgate.config.tenants import TenantSettings
from slotgate.config.units import Bytes, Seconds
from slotgate.config.watchdog import WatchdogSettings

__all__ = [
    "Backend",
    "ClassName",
    "ClassSettings",
    "Classes",
    "LimitSettings",
    "LogSettings",
    "ManagedSettings",
    "ModelSettings",
    "QueueSettings",
    "SchedulingSettings",
    "ServerSettings",
    "Settings",
    "TenantSettings",
    "TimeoutSettings",
    "WatchdogSettings",
]


def _check_listen(text: str) -> str:
    Listen.parse(text)
    return text


class QueueSettings(Section):
    """The waiting room."""

    max_waiting: Count = Field(
        default=512, ge=0, le=1_000_000, description="The most requests that may wait at once."
    )
    max_waiting_bytes: Bytes = Field(
        default=256 << 20,
        ge=0,
        description="The most memory that the bodies of waiting requests may take.",
    )


class LimitSettings(Section):
    """Bounds on what one client may send, and on how long it may take."""

    max_body_bytes: Bytes = Field(
        default=100 << 20,
        ge=1024,
        description="The largest body of a request; larger ones are answered 413.",
    )
    max_head_bytes: Bytes = Field(
        default=64 << 10,
        ge=1024,
        description="The largest head of a request: its first line and its headers.",
    )
    max_header_count: Count = Field(
        default=100, ge=8, le=10_000, description="The most headers of a request."
    )
    head_timeout: Seconds = Field(
        default=10.0,
        ge=0.1,
        description="The longest time that the head of a request may take to arrive.",
    )
    body_timeout: Seconds = Field(
        default=60.0, ge=0.1, description="The longest silence while the body of a request arrives."
    )
    idle_timeout: Seconds = Field(
        default=75.0, ge=0.1, description="How long an idle connection of a client is kept open."
    )
    max_connections: Count = Field(
        default=20_000, ge=1, le=1_000_000, description="The most connections of clients at once."
    )


class LogSettings(Section):
    """What is logged, and how it looks.  Prompts and answers are never logged."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least serious events that are logged."
    )
    format: Literal["console", "json"] = Field(
        default="console", description="Lines for people, or one JSON object a line."
    )
    access: bool = Field(
        default=False, description="Whether each finished request is logged, at level info."
    )


class Settings(Section):
    """The whole configuration."""

    listen: Annotated[str, AfterValidator(_check_listen)] = Field(
        default="127.0.0.1:8080",
        description="Where clients connect: host:port, [v6]:port, or unix:///path.",
    )
    insecure: bool = Field(
        default=False,
        description="Whether an address that others can reach is allowed without keys.",
    )
    backends: tuple[Backend, ...] = Field(
        min_length=1, description="The servers that do the work, at least one."
    )
    queue: QueueSettings = Field(default=QueueSettings(), description="The waiting room.")
    classes: Classes = Field(
        default=Classes(), description="The priority classes, most urgent first."
    )
    default_class: ClassName = Field(
        default="standard",
        description="The class of requests that come without a key, where none is needed.",
    )
    scheduling: SchedulingSettings = Field(
        default=SchedulingSettings(), description="Who runs next, and what is not let in."
    )
    tenants: tuple[TenantSettings, ...] = Field(
        default=(),
        description="Who may use the gateway; without tenants, everybody who can reach it may.",
    )
    admin_key_env: str | None = Field(
        default=None,
        examples=["OPERATOR_KEY"],
        description="The environment variable that holds the operator's key.",
    )
    admin_key_file: str | None = Field(
        default=None,
        examples=["/run/secrets/operator"],
        description="The file that holds the operator's key.",
    )
    admin_key_sha256: str | None = Field(
        default=None,
        repr=False,
        examples=["00000000..."],
        description="The SHA-256 of the operator's key, in hexadecimal.",
    )
    limits: LimitSettings = Field(
        default=LimitSettings(), description="Bounds on what one client may send."
    )
    settle_bound: Seconds = Field(
        default=30.0,
        ge=1.0,
        description="How long a slot is held back at most after a client left, "
        "if the backend does not say that it is free.",
    )
    probe_interval: Seconds = Field(
        default=1.2,
        ge=1.2,
        description="The time between two looks at each backend's health and slots.",
    )
    health: HealthSettings = Field(
        default=HealthSettings(), description="When a backend that fails is left alone."
    )
    watchdog: WatchdogSettings = Field(
        default=WatchdogSettings(),
        description="What notices servers that are stuck although they look healthy.",
    )
    drain_timeout: Seconds = Field(
        default=300.0,
        ge=0.0,
        description="How long running requests may take to end after the first signal to stop.",
    )
    log: LogSettings = Field(default=LogSettings(), description="What is logged, and how it looks.")

    _admin_digest: bytes | None = PrivateAttr(None)
    _warnings: tuple[str, ...] = PrivateAttr(())

    @property
    def bind(self) -> Listen:
        """`listen`, parsed."""
        return Listen.parse(self.listen)

    @property
    def admin_digest(self) -> bytes | None:
        """SHA-256 of the operator's key, None if there is none."""
        return self._admin_digest

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed but unwise, to be shown when the gateway starts."""
        return self._warnings

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        for key, names in (
            ("backends", [backend.name for backend in self.backends]),
            ("tenants", [tenant.name for tenant in self.tenants]),
        ):
            for index, name in enumerate(names):
                if name in names[:index]:
                    first = names.index(name)
                    raise problem(
                        f"{name!r} is also the name of {key}[{first}]", key, index, "name"
                    )
        return self

    @model_validator(mode="after")
    def _a_public_address_needs_keys(self) -> Self:
        if self.bind.is_public and not self.tenants and not self.insecure:
            raise problem(
                f"others can reach {self.listen}, and no tenant has a key: "
                "add tenants, or say insecure: true (--insecure)",
                "listen",
            )
        return self

    @model_validator(mode="after")
    def _keys_are_found(self, info: ValidationInfo) -> Self:
        sources = Sources.of(info.context)
        reference = KeyReference(
            "admin_key", self.admin_key_env, self.admin_key_file, self.admin_key_sha256
        )
        self._admin_digest = reference.digest(sources)
        self._keys_are_unique()
        self._warnings = (*sources.warnings, *self._unwise())
        return self

    def _keys_are_unique(self) -> None:
        owners: dict[bytes, str] = {}
        if self._admin_digest is not None:
            owners[self._admin_digest] = "the operator"
        for index, tenant in enumerate(self.tenants):
            other = owners.setdefault(tenant.key_digest, f"tenant {tenant.name!r}")
            if other != f"tenant {tenant.name!r}":
                raise problem(f"has the same key as {other}", "tenants", index)

    def _unwise(self) -> Iterator[str]:
        if self.bind.is_public and not self.tenants:
            yield f"listen: anybody who can reach {self.listen} may use it, because insecure is set"
