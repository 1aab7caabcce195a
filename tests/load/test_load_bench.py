"""`slotgate bench` as a user runs it: a process that loads a gateway in front of a stub."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.processes import gateway, stub, write_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.processes import Running

pytestmark = pytest.mark.process

# Fast enough that two seconds tell something: about 100 short answers a second.
STUB = ("--slots", "4", "--decode", "1200", "--prefill", "0", "--output-tokens", "0")
SHORT = ("--lengths", "small", "--seconds", "2", "--ttft", "1", "--patience", "2", "--drain", "10")


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    with stub(*STUB) as backend, gateway("--backend", backend.url) as front:
        yield front


def bench(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slotgate", "bench", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=None if env is None else {**os.environ, **env},
    )


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def mean(found: dict[str, Any], key: str) -> float:
    value: float = found["all"][key]["mean"]
    return value


def test_a_steady_load_through_the_gateway_is_served_in_time(served: Running) -> None:
    found = document(
        bench(served.url, "--workload", "steady", "--load", "0.4", *SHORT, "--json", "-",
              "--measure-seconds", "1")
    )  # fmt: skip
    assert mean(found, "requests") > 20
    assert mean(found, "served") == 1.0
    assert mean(found, "attainment") > 0.9
    assert "wait_p50" in found["all"], "the gateway tells how long each waited"
    assert found["facts"]["model"] == "stub"


def test_the_report_goes_to_the_terminal_a_document_and_a_page(
    served: Running, tmp_path: Path
) -> None:
    page, file = tmp_path / "report.html", tmp_path / "report.json"
    done = bench(
        served.url + "/v1", "--capacity", "50", "--load", "0.5", *SHORT, "--runs", "2",
        "--html", str(page), "--json", str(file),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"^met the targets +\d+\.\d ±\d+\.\d %$", done.stdout, re.MULTILINE)
    assert "By tenant" in done.stdout
    assert json.loads(file.read_text())["seeds"] == [1, 2]
    assert "</html>" in page.read_text()


def test_a_trace_is_sent_in_the_place_of_a_workload(served: Running, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("t,p,o,who\n" + "".join(f"{i / 10},50,5,{'ab'[i % 2]}\n" for i in range(20)))
    columns = "arrival=t,prompt=p,output=o,tenant=who"
    words = ("--trace", str(trace), "--columns", columns, "--speed", "2", "--json", "-")
    found = document(bench(served.url, *words))
    assert mean(found, "requests") == 20
    assert set(found["tenants"]) == {"a", "b"}
    assert found["seconds"] == pytest.approx(1.95)


def test_each_tenant_has_its_own_key(tmp_path: Path) -> None:
    keys = {"KEY_A": "a-key-of-at-least-16-characters", "KEY_B": "b-key-of-at-least-16-characters"}
    settings = [{"name": "A", "key_env": "KEY_A"}, {"name": "rest", "key_env": "KEY_B"}]
    with stub(*STUB) as backend:
        config = write_config(
            tmp_path / "slotgate.yaml", {"backends": [{"url": backend.url}], "tenants": settings}
        )
        with gateway("--config", config, env={**os.environ, **keys}) as front:
            words = (front.url, "--capacity", "20", "--load", "0.9", *SHORT, "--json", "-")
            found = document(bench(*words, "--key", "A=KEY_A", "--key", "KEY_B", env=keys))
            assert mean(found, "served") == 1.0
            told_no = document(bench(*words))
    assert mean(told_no, "failed") == 1.0
    assert mean(told_no, "retry_amplification") == 1.0


def test_an_exit_code_says_that_too_few_met_the_targets(served: Running) -> None:
    words = (served.url, "--capacity", "20", "--load", "0.5", *SHORT)
    assert bench(*words, "--fail-under", "0.5").returncode == 0
    assert bench(*words, "--ttft", "0", "--fail-under", "0.5").returncode == 1


def test_ctrl_c_ends_it_with_the_report_so_far(served: Running) -> None:
    command = [sys.executable, "-m", "slotgate", "bench", served.url, "--capacity", "20"]
    with subprocess.Popen(
        [*command, "--seconds", "600"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if "sending" in line:
                break
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "note: stopped after" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("http://127.0.0.1:1",), "its capacity cannot be measured: UnreachableError"),
        (("http://127.0.0.1:1", "--workload", "boom", "--capacity", "1"), "no workload is called"),
        (("ftp://127.0.0.1",), "is no backend URL"),
        (("http://127.0.0.1:1", "--lengths", "long"), "--lengths long: expected one of chat"),
        (("http://127.0.0.1:1", "--lengths", "A=,B=chat"), "--lengths A=: expected NAME=VALUE"),
        (("http://127.0.0.1:1", "--trace", "none.csv"), "none.csv: cannot be read"),
        (
            ("http://127.0.0.1:1", "--trace", "x", "--columns", "y=z"),
            "--columns y: expected arrival",
        ),
        (("http://127.0.0.1:1", "--key", "A=NOT_SET"), "an environment variable that is set"),
        (
            ("http://127.0.0.1:1", "--capacity", "1000", "--max-requests", "5"),
            "more than --max-requests 5",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words: tuple[str, ...], message: str) -> None:
    done = bench(*words)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_key_given_by_mistake_is_not_repeated() -> None:
    done = bench("http://127.0.0.1:1", "--key", "A=sg_secret")
    assert "sg_secret" not in done.stderr + done.stdout


def test_the_workloads_are_listed() -> None:
    done = bench("http://127.0.0.1:1", "--workload", "list")
    assert done.returncode == 0
    assert "flash-crowd" in done.stdout
