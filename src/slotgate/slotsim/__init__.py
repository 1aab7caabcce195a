"""A pure model of a llama-server, faithful in its faults."""

from slotgate.slotsim.counters import Counters
from slotgate.slotsim.job import (
    Cancelled,
    Event,
    Failed,
    Fault,
    Finished,
    Generated,
    Job,
    Pinged,
    Progressed,
    Prompt,
    Result,
    Started,
    Stop,
    Work,
)
from slotgate.slotsim.loop import ServerSpec
from slotgate.slotsim.pace import Pace
from slotgate.slotsim.server import SimulatedServer
from slotgate.slotsim.slot import SlotView

__all__ = [
    "Cancelled",
    "Counters",
    "Event",
    "Failed",
    "Fault",
    "Finished",
    "Generated",
    "Job",
    "Pace",
    "Pinged",
    "Progressed",
    "Prompt",
    "Result",
    "ServerSpec",
    "SimulatedServer",
    "SlotView",
    "Started",
    "Stop",
    "Work",
]
