"""Every metric and every log event, declared once."""

from slotgate.telemetry.events import Event
from slotgate.telemetry.gauges import BackendGauges, Gauges
from slotgate.telemetry.logs import LibraryHandler, Logger, log, make_logger
from slotgate.telemetry.metrics import CONTENT_TYPE, Outcome, Phase, Telemetry
from slotgate.telemetry.relay import BackendMetrics

__all__ = [
    "CONTENT_TYPE",
    "BackendGauges",
    "BackendMetrics",
    "Event",
    "Gauges",
    "LibraryHandler",
    "Logger",
    "Outcome",
    "Phase",
    "Telemetry",
    "log",
    "make_logger",
]
