"""Every exception that Slotgate raises on purpose, as one small tree.

In the core a refusal is a value, not an exception; an exception there is a programming error.
Foreign exceptions are mapped to these at the boundary where they appear, with `from`.
"""

from __future__ import annotations


class SlotgateError(Exception):
    """Root of the tree: something that Slotgate can explain to its user."""


class ConfigError(SlotgateError):
    """A setting is missing, unknown or out of range; the message names its key and its source."""


class ModelError(SlotgateError):
    """A model could not be found, fetched or loaded; the message says which and what to do."""


class HeaderError(ModelError):
    """A model file's header cannot be read; the message says which file, where and why."""


class UnknownNameError(SlotgateError):
    """The operator named a backend or a ticket that is not there; the message says which are."""


class ConflictError(SlotgateError):
    """What the operator asks has no meaning as things are; the message says why."""


class BadRequestError(SlotgateError):
    """The client's request is malformed; the message is shown to the client.

    `status` is the HTTP status, `param` the field at fault, if one is.
    """

    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param


class BackendError(SlotgateError):
    """An exchange with a backend failed."""


class UnreachableError(BackendError):
    """No connection could be made, or it was lost before the answer's first byte."""


class BackendTimeoutError(BackendError):
    """The backend was silent for longer than a timeout allows; the message says which one."""


class BrokenAnswerError(BackendError):
    """The answer broke after it had begun: cut short, malformed, or without its terminator."""


class ExchangeClosedError(BackendError):
    """The exchange was closed from our side, because its client left or the gateway stops."""


class PlanRefused(SlotgateError):  # noqa: N818 - the name says what happened, as the API promises
    """llama.cpp would refuse, or abort on, this model with these settings; the message says why."""
