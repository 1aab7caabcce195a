"""YAML, environment and command line, checked and turned into one frozen `Settings`."""

from slotgate.config.address import Listen
from slotgate.config.keys import Sources, key_digest
from slotgate.config.load import load_settings
from slotgate.config.settings import (
    Backend,
    Classes,
    ClassName,
    ClassSettings,
    LimitSettings,
    LogSettings,
    ManagedSettings,
    ModelSettings,
    QueueSettings,
    SchedulingSettings,
    ServerSettings,
    Settings,
    TenantSettings,
    TimeoutSettings,
)

__all__ = [
    "Backend",
    "ClassName",
    "ClassSettings",
    "Classes",
    "LimitSettings",
    "Listen",
    "LogSettings",
    "ManagedSettings",
    "ModelSettings",
    "QueueSettings",
    "SchedulingSettings",
    "ServerSettings",
    "Settings",
    "Sources",
    "TenantSettings",
    "TimeoutSettings",
    "key_digest",
    "load_settings",
]
