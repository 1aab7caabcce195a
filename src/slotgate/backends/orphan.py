"""Makes a child process end with its parent, however the parent dies.

On Linux the kernel does it (PR_SET_PDEATHSIG), also after `kill -9`.  Everywhere, a pipe does it:
the child's standard input is held open by the parent alone, so its end means that the parent is
gone.  Note that the kernel means the *thread* that started the child: start it from one that lives
as long as the process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG = 1
ORPHANED = 113  # exit status of a child whose parent was gone before it had begun


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; exit if it already has.

    Does nothing where there is no such request.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    # The parent may have died before the request was made; then nobody will tell us.
    if os.getppid() != parent:
        os._exit(ORPHANED)


def watch_lifeline(descriptor: int, on_end: Callable[[], None]) -> None:
    """Block until the other end of the pipe is closed, then call `on_end`."""
    while os.read(descriptor, 4096):
        pass
    on_end()
