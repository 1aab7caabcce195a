"""Admission: who runs now, who waits, who is refused.  No I/O, no clock, no dice, no await."""

from __future__ import annotations

from slotgate.core.clock import Clock, Dice
from slotgate.core.decision import Abort, Decision, Ending, Granted, Reason, Refused
from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.limits import ClassLimits, Limits, TenantCaps
from slotgate.core.policies import Policies
from slotgate.core.scheduler import Scheduler
from slotgate.core.snapshot import Counts, DeploymentView, LeaseView, Snapshot, WaitingView
from slotgate.core.ticket import Ticket

__all__ = [
    "Abort",
    "ClassLimits",
    "Clock",
    "Counts",
    "Decision",
    "DeploymentReport",
    "DeploymentView",
    "Dice",
    "Ending",
    "Granted",
    "LeaseView",
    "Limits",
    "Policies",
    "Reason",
    "Refused",
    "Scheduler",
    "Snapshot",
    "State",
    "TenantCaps",
    "Ticket",
    "WaitingView",
]
