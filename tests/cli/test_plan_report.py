"""The report of `slotgate plan`, as an operator reads it."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import pytest

from slotgate.cli.terminal import wants_colour
from tests.capacity.tiny_models import write_model
from tests.cli.plans import LLAMA, document, run

if TYPE_CHECKING:
    from pathlib import Path

ASKED = (*LLAMA, "-np", "4", "--context", "8192")
NARROW = {"COLUMNS": "60", "NO_COLOR": "1"}


def section(text: str, title: str) -> list[str]:
    """The lines below a title, up to the next empty one."""
    lines = text.splitlines()
    rest = lines[lines.index(title) + 1 :]
    return rest[: rest.index("")] if "" in rest else rest


def test_what_fits_comes_first() -> None:
    lines = run(*ASKED).stdout.splitlines()
    assert lines[0] == "Llama-3.1-8B: llama, 32 layers, trained for 131,072 tokens"
    assert lines[lines.index("Plan") + 1] == "fits: 4 slots of 8,192 tokens, cache f16"


def test_the_table_is_slots_against_context_for_each_type() -> None:
    title = "Largest context of a slot, in tokens"
    rows = [line.split() for line in section(run(*ASKED).stdout, title)]
    assert rows[0] == ["slots", "f16", "q8_0", "q4_0"]
    assert [row[0] for row in rows[1:]] == ["1", "2", "4", "8", "16", "32"]
    told = document(*ASKED)["table"]["rows"]
    for at, row in enumerate(rows[1:]):
        assert row[1:] == [f"{column['ctx_per_slot'][at]:,}" for column in told]
    more = section(run(*ASKED, "--cache-type", "q5_1").stdout, title)
    assert more[0].split() == ["slots", "f16", "q8_0", "q4_0", "q5_1"]


def test_where_nothing_fits_or_is_allowed_the_table_says_so(tmp_path: Path) -> None:
    falcon = str(write_model("falcon", tmp_path))
    title = "Largest context of a slot, in tokens"
    report = run(falcon, "--memory", "64MiB", "-ngl", "0").stdout
    assert section(report, title)[1].split()[2:] == ["refused", "refused"]
    assert "do not divide the head size 16" in " ".join(report.split())
    none = run(falcon, "--memory", "300KiB", "-ngl", "0")
    assert none.exit_code == 1
    assert section(none.stdout, title)[1].split()[1] == "-"
    assert "DOES NOT FIT" in none.stdout


def test_each_device_says_what_it_holds_and_the_title_names_the_unit() -> None:
    rows = section(run(*ASKED).stdout, "Memory, in GiB")
    assert rows[0].split() == ["device", "weights", "context", "compute", "overhead", "free"]
    assert rows[1].split()[:4] == ["GPU", "0", "4.38", "4.00"]
    assert rows[2].split()[-2:] == ["unknown", "unknown"]


def test_small_models_are_told_in_smaller_units(tmp_path: Path) -> None:
    report = run(str(write_model("llama", tmp_path)), "--memory", "64MiB", "-ngl", "0").stdout
    assert section(report, "Memory, in MiB")[1].startswith("host")


def test_the_sources_of_the_numbers_are_named(tmp_path: Path) -> None:
    given = " ".join(run(*ASKED).stdout.split())
    assert "weights: 4.4 GiB, as given, spread evenly over the layers" in given
    assert "context: 4.0 GiB, exact: full layers 4.0 GiB" in given
    assert "one token more in a slot: 131,072 bytes" in given
    assert "one slot more: 1.0 GiB (1,073,741,824 bytes)" in given
    path = str(write_model("gemma3", tmp_path))
    read = " ".join(run(path, "--memory", "64MiB", "-ngl", "0", "-np", "2").stdout.split())
    assert "exact, by the tensors of the file" in read
    assert "full layers" in read
    assert "+ window layers" in read
    assert "+ 2 slots x 32 checkpoints x" in read


def test_an_architecture_that_nobody_compared_is_said_to_be_unverified(tmp_path: Path) -> None:
    path = write_model("llama", tmp_path)
    # Names of the same length, so that nothing moves.
    path.write_bytes(path.read_bytes().replace(b"llama", b"lhama"))
    report = " ".join(run(str(path), "--memory", "64MiB", "-ngl", "0").stdout.split())
    assert "NOT VERIFIED for this architecture" in report


def test_the_command_is_one_line_however_narrow_the_terminal() -> None:
    report = run(*ASKED, **NARROW).stdout
    [line] = section(report, "Command")
    assert shlex.split(line) == document(*ASKED)["command"]


def test_a_narrow_terminal_without_colour_is_legible() -> None:
    report = run("Gemma-3-27b", "--weights", "15.4GiB", "--memory", "24GiB,24GiB", **NARROW).stdout
    [command] = section(report, "Command")
    lines = [line for line in report.splitlines() if line != command]
    assert max(map(len, lines)) <= 60
    assert "\x1b" not in report
    # Words that wrap stay below their item.
    assert not [line for line in lines if line != line.rstrip()]


def test_colour_is_used_where_it_is_wanted() -> None:
    report = run(*ASKED, FORCE_COLOR="1").stdout
    assert "\x1b[1;32mfits:\x1b[0m \x1b[1m4 slots of 8,192 tokens\x1b[0m" in report
    assert "\x1b" not in run(*ASKED).stdout


@pytest.mark.parametrize(
    ("environ", "is_terminal", "wanted"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colour_is_wanted_by_terminals_and_whoever_asks_for_it(
    environ: dict[str, str], is_terminal: bool, wanted: bool
) -> None:
    assert wants_colour(environ, is_terminal=is_terminal) is wanted


def test_a_name_that_no_terminal_can_show_is_escaped(tmp_path: Path) -> None:
    path = write_model("llama", tmp_path).rename(
        os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.gguf")
    )
    arguments = (str(path), "--memory", "64MiB", "-ngl", "0")
    assert "a\\udcff.gguf" in run(*arguments).stdout
    assert document(*arguments)["command"][2] == str(path)


def test_a_long_name_of_a_device_is_shortened_in_the_table(tmp_path: Path) -> None:
    plan = run(*LLAMA, "-ot", "x=AVeryLongBackendsName0").stdout
    assert section(plan, "Memory, in GiB")[1].startswith("AVeryLongBack...  ")
    assert "- AVeryLongBackendsName0: 24.0 GiB free" in plan


def test_a_terminal_that_is_hardly_one_is_written_to() -> None:
    report = run(*ASKED, COLUMNS="5").stdout
    assert "fits: 4 slots" in report


def test_the_four_remedies_are_questions_with_before_and_after() -> None:
    lines = section(run(*ASKED).stdout, "When slots are unavailable")
    assert lines[0].startswith("- now: 4 slots of 8,192 tokens, 4.0 GiB of context")
    questions = [line for line in lines if line.startswith("What if ")]
    assert len(questions) == 4
    assert all(q.endswith(("helps", "does not help", "not possible")) for q in questions)
    assert "  - q8_0, same slots: 4 slots of" in "\n".join(lines)


def test_a_pool_and_mixed_types_are_named() -> None:
    report = run(*LLAMA, "-c", "8192", "-np", "2", "-kvu", "-ctk", "q8_0").stdout
    assert "fits: 2 slots of 8,192 tokens, one pool of 8,192, cache q8_0/f16" in report
    assert "maximum concurrency for 8,192 tokens per request: 1\n" in report


def test_layers_on_a_host_that_nobody_knows_are_told() -> None:
    report = run("Llama-3.3-70B", "--weights", "40GiB", "--memory", "24GiB").stdout
    assert "its memory is not known here" in report
    assert "its memory is not known here" not in run(*ASKED).stdout


def test_the_arithmetic_is_shown_if_it_is_asked() -> None:
    assert "How it is computed" not in run(*ASKED).stdout
    explained = run(*ASKED, "--explain", **NARROW).stdout
    assert "2 x 32 x 8 x 128 x 2 = 131,072" in " ".join(explained.split())
    arithmetic = section(explained, "How it is computed")
    assert max(map(len, arithmetic)) <= 60
