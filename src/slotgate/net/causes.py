"""Why a connection failed, in words for the operator."""

from __future__ import annotations

import os
import re
import socket
import ssl

_WORDS: tuple[tuple[type[BaseException], str], ...] = (
    (ConnectionRefusedError, "connection refused; is the server running?"),
    (ConnectionResetError, "connection reset by the server"),
    (BrokenPipeError, "the server closed it while the request was being sent"),
    (ConnectionAbortedError, "connection aborted"),
    (FileNotFoundError, "no such socket; is the server running?"),
    (PermissionError, "permission denied"),
)
_ERRNO = re.compile(r"\[Errno (\d+)\]")


def plain_words(error: BaseException | None) -> str:
    """Say what an OSError of a connection means."""
    if isinstance(error, socket.gaierror):
        return f"the host's name cannot be resolved ({error.strerror})"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error})"
    if isinstance(error, OSError):
        return _of_the_system(error)
    return str(error) or type(error).__name__


def _of_the_system(error: OSError) -> str:
    for kind, words in _WORDS:
        if isinstance(error, kind):
            return words
    if error.errno is not None:
        return os.strerror(error.errno)
    # What asyncio says of a host whose addresses all fail: "Multiple exceptions: [Errno 111] ...".
    numbers = set(_ERRNO.findall(str(error)))
    if len(numbers) == 1:
        return _of_the_system(OSError(int(numbers.pop()), ""))
    return str(error) or type(error).__name__
