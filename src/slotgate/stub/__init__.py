"""A simulated llama-server over real sockets."""

from slotgate.stub.options import Build, Fault, FaultKind, StubOptions
from slotgate.stub.record import Observed, Outcome, RequestRecord
from slotgate.stub.server import StubServer

__all__ = [
    "Build",
    "Fault",
    "FaultKind",
    "Observed",
    "Outcome",
    "RequestRecord",
    "StubOptions",
    "StubServer",
]
