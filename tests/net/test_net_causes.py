"""What an operator reads when a connection fails."""

from __future__ import annotations

import errno
import socket

import pytest

from slotgate.net.causes import plain_words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(), "connection refused; is the server running?"),
        (OSError(errno.ECONNREFUSED, "x"), "connection refused; is the server running?"),
        (ConnectionResetError(), "connection reset by the server"),
        (BrokenPipeError(), "the server closed it while the request was being sent"),
        (ConnectionAbortedError(), "connection aborted"),
        (FileNotFoundError(), "no such socket; is the server running?"),
        (PermissionError(), "permission denied"),
        (socket.gaierror(-2, "unknown"), "the host's name cannot be resolved (unknown)"),
        (OSError(errno.EHOSTUNREACH, "x"), "No route to host"),
        (
            OSError(
                f"Multiple exceptions: [Errno {errno.ECONNREFUSED}] failed ('::1', 1), "
                f"[Errno {errno.ECONNREFUSED}] failed ('127.0.0.1', 1)"
            ),
            "connection refused; is the server running?",
        ),
        (OSError("all attempts failed"), "all attempts failed"),
        (OSError(), "OSError"),
    ],
)
def test_a_cause_is_told_in_plain_words(error: OSError, words: str) -> None:
    assert plain_words(error) == words
