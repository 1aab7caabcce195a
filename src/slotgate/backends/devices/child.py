"""The process that `probe` starts: reads one library and writes what it found as JSON.

The answer goes to the real standard output.  Libraries print there too, so for everything else in
this process that is the standard error.
"""

from __future__ import annotations

import os
import sys

import msgspec

from slotgate.backends.devices.libraries import BY_MODULE


def main(module: str) -> None:
    answer = os.dup(1)
    os.dup2(2, 1)
    os.write(answer, msgspec.json.encode(BY_MODULE[module].read(os.environ)))


if __name__ == "__main__":
    main(sys.argv[1])
