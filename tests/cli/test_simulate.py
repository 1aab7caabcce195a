"""`slotgate simulate`, run in this process: what it shows, and how it ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from slotgate.cli import app

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

SHORT = ("--duration", "40", "--seeds", "2")


def run(*arguments: str) -> Result:
    result: Result = CliRunner().invoke(app, ["simulate", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def document(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def shares(found: dict[str, Any], key: str = "attainment") -> dict[str, float]:
    """One number of each policy."""
    return {name: each["all"][key]["mean"] for name, each in found["policies"].items()}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A request a second of 100 and 80 tokens."""
    path = tmp_path / "small.csv"
    rows = [f"{second},100,80" for second in range(60)]
    path.write_text("\n".join(["arrival,prompt,output", *rows]), encoding="utf-8")
    return path


def test_without_options_it_shows_one_table_of_an_overload() -> None:
    result = run(*SHORT)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "overload in virtual time" in result.stdout
    for words in ("met the targets", "queue wait", "slots in use", "a minute", "1 of 8 slots"):
        assert words in result.stdout


def test_policies_stand_side_by_side_and_meet_the_same_load() -> None:
    arguments = (*SHORT, "--policy", "fifo", "--policy", "fifo-deadline", "--duration", "120")
    result = run(*arguments)
    assert result.exit_code == 0
    lines = [line for line in result.stdout.splitlines() if line.startswith("fifo")]
    assert [line.split()[0] for line in lines] == ["fifo", "fifo-deadline"]
    found = document(*arguments)
    assert shares(found)["fifo-deadline"] > shares(found)["fifo"] + 0.1
    counts = shares(found, "requests")
    assert counts["fifo"] == counts["fifo-deadline"]


def test_seeds_give_margins_and_the_same_seeds_the_same_numbers() -> None:
    first, second = document(*SHORT), document(*SHORT)
    assert first["policies"] == second["policies"]
    (report,) = first["policies"].values()
    assert report["seeds"] == [0, 1]
    assert report["all"]["attainment"]["margin"] > 0
    assert first["cost"]["core_events"] > 0


def test_a_trace_is_played_as_it_is_or_sped_up_to_a_load(trace: Path) -> None:
    (as_it_is,) = document(str(trace), "--duration", "1000")["policies"].values()
    assert (as_it_is["seeds"], as_it_is["seconds"]) == ([0], 59.0)
    assert as_it_is["all"]["requests"]["mean"] == 60
    assert as_it_is["all"]["attainment"]["mean"] == 1.0
    fast = document(str(trace), "--load", "5", "--ttft", "1")
    assert fast["policies"]["slotgate"]["seconds"] < 10
    assert shares(fast)["slotgate"] < 0.7
    (cut,) = document(str(trace), "--duration", "10")["policies"].values()
    assert cut["all"]["requests"]["mean"] == 10


def test_more_servers_bear_more_and_the_load_grows_with_them() -> None:
    one, four = (
        document("--seeds", "1", "--backends", count, "--workload", "steady")
        for count in ("1", "4")
    )
    assert shares(four, "requests")["slotgate"] > 2.5 * shares(one, "requests")["slotgate"]
    assert shares(four)["slotgate"] > 0.95


def test_a_slow_machine_is_said_by_name_or_in_numbers(trace: Path) -> None:
    by_name = document(str(trace), "--pace", "cpu")
    in_numbers = document(str(trace), "--pace", "60,30,250")
    assert by_name["policies"]["slotgate"]["all"] == in_numbers["policies"]["slotgate"]["all"]
    assert shares(by_name)["slotgate"] < 0.9


def test_a_shared_pool_that_is_too_small_kills_streams_of_a_bare_server(trace: Path) -> None:
    found = document(str(trace), "--kv-pool", "300", "--policy", "bare", "--pace", "cpu")
    assert shares(found, "failed")["bare"] > 0


def test_refused_clients_come_back_as_their_sdk_does(trace: Path) -> None:
    arguments = (str(trace), "--load", "5", "--policy", "fifo-q16", "--pace", "cpu")
    assert shares(document(*arguments), "retry_amplification")["fifo-q16"] == 1.0
    again = document(*arguments, "--client", "openai")
    assert shares(again, "retry_amplification")["fifo-q16"] > 1.2


def test_a_configuration_is_rehearsed(tmp_path: Path, trace: Path) -> None:
    file = tmp_path / "slotgate.yaml"
    endless = [
        "backends: [{name: a, url: 'http://127.0.0.1:9'}]",
        "classes: {standard: {budget: 300s}}",
        "scheduling: {admission: expiry}",
    ]

    def refused(*settings: str) -> float:
        file.write_text("\n".join(settings), encoding="utf-8")
        found = document(str(trace), "--pace", "cpu", "--config", str(file))
        return shares(found, "refused")["slotgate"]

    assert refused(*endless) == 0.0
    assert refused(*endless, "queue: {max_waiting: 3}") > 0.1


def test_a_page_has_plots(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run(*SHORT, "--html", str(page)).exit_code == 0
    assert "<svg" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--workload", "none"), "--workload none: there are steady, burst"),
        (("--policy", "none"), "--policy none: there are slotgate, bare"),
        (("--policy", "fifo", "--policy", "fifo"), "named twice"),
        (("--pace", "fast"), "--pace fast: expected gpu, cpu or MS,MS,TOKENS"),
        (("--pace", "1,2"), "--pace 1,2: expected"),
        (("--pace", "1,x,2"), "--pace 1,x,2: expected"),
        (("--pace", "0,1,8000"), "steps take time"),
        (("--pace", "nan,1,8000"), "steps take time"),
        (("--pace", "1,1,nan"), "prompts are read"),
        (("/does/not/exist.csv",), "cannot be read"),
        (("/does/not/exist.csv", "--workload", "hog"), "not both"),
        (("--policy", "fifo", "--policy", "bare", "--html", "x.html"), "takes one --policy"),
        (("--duration", "5", "--html", "/does/not/exist.html"), "cannot be written"),
        (("--config", "/does/not/exist.yaml"), "/does/not/exist.yaml"),
        (("--ttft", "nan"), "--ttft"),
        (("--duration", "inf"), "--duration"),
        (("--load", "nan"), "--load"),
    ],
)
def test_what_makes_no_sense_is_said_on_standard_error(
    arguments: tuple[str, ...], words: str
) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in " ".join(result.stderr.replace("│", " ").split())
