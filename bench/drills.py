"""What the fault drills of the tests measured: real processes of which one is made to fail.

Three stubs or two llama.cpp behind a gateway.  Each drill is a test that demands: no request is
lost of which no byte had come, nothing is found that is not so, and slots and descriptors are free
again afterwards; so a drill that passed has zeros there.  `python -m bench.drills [WORD]` runs
those whose name has the word.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

LEFT_ALONE = "seconds until it is left alone"
TOLD = "seconds until it is told"
WIDTHS = (76, 9, 7, 9, 10, 7)


def run(word: str, report: Path) -> int:
    files = sorted(str(path) for path in Path("tests/e2e").glob("test_drill_*.py"))
    command = [sys.executable, "-m", "pytest", "-q", "--junitxml", str(report), "-k", word, *files]
    return subprocess.run(command, check=False).returncode


def figures(suite: ET.Element) -> dict[str, dict[str, str]]:
    """Return what was recorded, by test."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for each in suite.iterfind("properties/property"):
        test, _, name = each.get("name", "").rpartition(": ")
        found[test][name] = each.get("value", "")
    return found


def show(*cells: str) -> None:
    print(" ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip())


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        status = run(" ".join(sys.argv[1:]), report)
        [suite] = ET.parse(report).getroot().iter("testsuite")
    recorded = figures(suite)
    print(
        "\nalone: seconds until the backend gets no work; told: until it is told, where no more is"
    )
    print("due; broken: streams that had begun and ended with an error\n")
    show("drill", "backends", "alone", "told", "requests", "broken")
    for case in suite.iterfind("testcase"):
        name, where = case.get("name", ""), case.get("classname", "").rpartition(".")[2]
        kind = "stubs" if where in {"test_drill_dead", "test_drill_stuck"} else "llama.cpp"
        seen = recorded[f"{where}.{name}"]
        if list(case):
            show(name, kind, "failed", "", "", "")
            continue
        numbers = (LEFT_ALONE, TOLD, "requests", "streams that broke off")
        show(name.removeprefix("test_"), kind, *(seen.get(number, "-") for number in numbers))
    return status


if __name__ == "__main__":
    sys.exit(main())
