"""`slotgate doctor` as it is used: what it prints, for people and for programs, and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from slotgate.cli import app
from slotgate.cli.doctor_json import document
from slotgate.cli.doctor_report import print_report
from slotgate.cli.terminal import Terminal
from slotgate.doctor.evidence import Measured
from slotgate.doctor.judge import judge
from slotgate.wire.llama_cpp import Props
from slotgate.wire.models import ListedModel
from tests.cli.processes import free_port, stub
from tests.doctor.seen import seen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typer.testing import Result

pytestmark = pytest.mark.process


def run(*arguments: str, **env: str) -> Result:
    result: Result = CliRunner().invoke(app, ["doctor", *arguments], env=env)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def good() -> Iterator[str]:
    with stub("--slots", "2", "--decode", "0", "--prefill", "0") as url:
        yield url


@pytest.fixture(scope="module")
def divided() -> Iterator[str]:
    with stub("--slots", "8", "--ctx", "512", "--ctx-train", "8192", "--api-key", "sesame") as url:
        yield url


def test_a_good_server_ends_with_0(good: str) -> None:
    result = run(good)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:2] == [good, "llama-server, build 11434, 2 slots of 4,096 tokens, model stub"]
    assert "\nfine\n" in result.stdout
    assert re.search(r"^no errors, no warnings, \d+ notes\.", result.stdout, re.MULTILINE)


def test_warnings_end_with_1_and_come_before_notes(divided: str) -> None:
    result = run(divided, "--api-key-env", "LLAMA_KEY", LLAMA_KEY="sesame")
    assert result.exit_code == 1
    assert result.stdout.index("\nwarning: ") < result.stdout.index("\nnote: ")
    assert "The context is most likely divided: 8 slots have 512 tokens each," in result.stdout
    assert "  more: docs/reference/doctor.md#context-divided" in result.stdout
    assert "sesame" not in result.stdout + result.stderr


def test_errors_end_with_3(good: str) -> None:
    result = run(good, "--context", "10000")
    assert result.exit_code == 3
    assert "\nerror: A slot holds 4,096 tokens, and your longest request needs" in result.stdout


def test_a_server_that_cannot_be_examined_ends_with_4_and_the_others_are(good: str) -> None:
    result = run(good, f"http://127.0.0.1:{free_port()}")
    assert result.exit_code == 4
    assert result.stdout.startswith(good)
    assert "\nwhat it is, is not known\n" in result.stdout
    assert result.stdout.rstrip().endswith("It could not be examined.")


@pytest.mark.parametrize(
    ("words", "env", "why"),
    [
        ([], {}, "Missing argument"),
        (["nonsense"], {}, "is no backend URL"),
        (["http://u:p@h"], {}, "may not carry a user"),
        (["http://h", "--api-key-env", "NOPE"], {}, "--api-key-env NOPE: no such variable is set"),
        (["http://h", "--api-key-env", "K"], {"K": "  "}, "no such variable is set"),
        (["http://h", "--api-key-env", "K"], {"K": "a\nsecret"}, "cannot be sent as a key"),
        (["http://h", "--flags", "-c x"], {}, "-c is not followed by a number"),
        (["http://h", "--host-memory", "24"], {}, "'24' could mean"),
    ],
)
def test_a_wrong_command_line_ends_with_2(words: list[str], env: dict[str, str], why: str) -> None:
    result = run(*words, **env)
    assert result.exit_code == 2
    assert why in result.stderr
    assert "secret" not in result.stderr


def test_what_the_operator_says_is_judged_too(good: str) -> None:
    flags = ("--flags", "-np 2 -kvu -c 4096 -cram 8192", "--host-memory", "4GiB")
    found = run(good, *flags).stdout
    assert "2 slots share one pool of context: each may take 4,096 tokens" in found
    assert "It may keep 8.0 GiB of prompts in memory, and its host has 4.0 GiB." in found


# A server of this machine.

SECRETS = ("sesame-in-words", "sesame-in-a-variable")
SCRIPT = "import sys; sys.argv[:] = ['slotgate', *{words!r}]; from slotgate.cli import main; main()"


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A process that is a llama-server by its name and its words, and a stub by what it does."""
    url = f"http://127.0.0.1:{free_port()}"
    words = ["stub", "--slots", "8", "--ctx", "8192", "--listen", url.removeprefix("http://")]
    script = tmp_path_factory.mktemp("named") / "llama-server"
    script.write_text(SCRIPT.format(words=words))
    flags = ["-c", "16384", "-np", "8", "-kvu", "--api-key", SECRETS[0]]
    env = {**os.environ, "LLAMA_ARG_CACHE_RAM": "4", "LLAMA_API_KEY": SECRETS[1]}
    with subprocess.Popen(
        [sys.executable, str(script), *flags], stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        assert "ready on" in process.stdout.readline()
        yield url
        process.terminate()


def test_a_process_of_this_machine_tells_what_it_was_started_with(named: str) -> None:
    result = run(named)
    assert result.exit_code == 1
    told = re.sub(r"\s+", " ", result.stdout)
    assert "warning: 8 slots share one pool of context: each may take 8,192 tokens, and" in told
    assert "there are 16,384 in all." in told
    assert re.search(r"n_ctx 8,192; the command line and environment of process \d+ ", told)
    assert "4.0 MiB of prompts fit" in told
    assert "An API key stands in its command line." in told
    assert "It needs no key, and listens to its own machine alone." in told


def test_no_secret_of_a_process_is_ever_shown(named: str) -> None:
    for result in (run(named), run(named, "--json"), run(named, "--measure", "--json")):
        assert not any(secret in result.stdout + result.stderr for secret in SECRETS)
    server = json.loads(run(named, "--json").stdout)["servers"][0]
    assert server["process"] > 0
    assert server["listens_at"] == ["127.0.0.1"]
    assert server["flags_known_by"].endswith(f"of process {server['process']}")


def test_a_process_is_left_alone_if_so_told(named: str) -> None:
    (server,) = json.loads(run(named, "--no-process", "--json").stdout)["servers"]
    assert (server["process"], server["listens_at"], server["flags_known_by"]) == (None, [], None)
    assert "flags-read" not in {finding["check"] for finding in server["findings"]}


def test_what_the_operator_says_counts_more_than_the_process(named: str) -> None:
    (server,) = json.loads(run(named, "--flags", "-c 65536 -np 8", "--json").stdout)["servers"]
    assert server["flags_known_by"] == "the flags you gave"


def test_what_will_be_measured_is_said_beside_the_report() -> None:
    with stub("--slots", "2", "--decode", "50", "--ctx", "256") as url:
        result = run(url, "--measure", "--json")
    assert result.stderr.startswith(f"slotgate: {url}: measuring with a stream of at most 64 token")
    (server,) = json.loads(result.stdout)["servers"]
    assert server["measured"]["refusal"] == ""
    assert server["measured"]["usual_gap_seconds"] > 0
    assert "stream-stall" in {finding["check"] for finding in server["findings"]}


def test_a_refusal_to_measure_is_in_the_report() -> None:
    with stub("--slots", "2", "--no-slots", "--no-metrics") as url:
        result = run(url, "--measure", "--timeout", "2", "--watch", "0")
    assert "whether a slot is free cannot be seen" in re.sub(r"\s+", " ", result.stdout)
    assert result.stderr == ""


# For programs.


def test_the_document_has_the_keys_that_it_promises(good: str) -> None:
    told = json.loads(run(good, "--json").stdout)
    assert (told["format"], told["exit_status"]) == (1, 0)
    (server,) = told["servers"]
    assert list(server) == [
        "url",
        "model",
        "exit_status",
        "make",
        "build",
        "models",
        "slots",
        "ctx_per_slot_tokens",
        "ctx_train_tokens",
        "process",
        "listens_at",
        "flags_known_by",
        "is_sleeping",
        "requests_deferred",
        "asked",
        "measured",
        "findings",
    ]
    assert (server["make"], server["build"], server["models"]) == ("llama-server", 11434, ["stub"])
    assert (server["slots"], server["ctx_per_slot_tokens"]) == (2, 4096)
    assert [each["route"] for each in server["asked"]] == [
        "/health",
        "/v1/models",
        "/props",
        "/slots",
        "/metrics",
    ]
    for finding in server["findings"]:
        assert list(finding) == [
            "check",
            "severity",
            "found",
            "known_by",
            "leads_to",
            "mend",
            "see",
        ]


def test_the_document_of_nobody_there_is_whole() -> None:
    result = run(f"http://127.0.0.1:{free_port()}", "--json")
    assert result.exit_code == 4
    told = json.loads(result.stdout)
    assert told["exit_status"] == 4
    (server,) = told["servers"]
    assert (server["make"], server["slots"], server["requests_deferred"]) == ("unknown", None, None)
    (asked,) = server["asked"]
    assert (asked["trouble"], asked["status_without_key"]) == ("unreachable", None)


def test_what_was_measured_is_in_the_document() -> None:
    evidence = seen(measured=Measured(usual_gap=0.02, worst_gap=2.0, prompt_tokens=9))
    (server,) = document([judge(evidence)])["servers"]
    assert server["measured"] == {
        "decode_tokens_per_second": 50.0,
        "prefill_tokens_per_second": None,
        "prompt_tokens": 9,
        "piece_tokens": None,
        "usual_gap_seconds": 0.02,
        "worst_gap_seconds": 2.0,
        "lump_tokens": 1.0,
        "lump_gap_seconds": 0.0,
        "refusal": "",
        "failure": "",
    }


# For people.


def printed(
    capsys: pytest.CaptureFixture[str], *, has_colour: bool, width: int = 60, **more: Any
) -> str:
    print_report([judge(seen(**more))], Terminal(width=width, has_colour=has_colour))
    return capsys.readouterr().out


def test_a_report_fits_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, has_colour=False).splitlines()
    assert all(len(line) <= 60 for line in lines)


def test_colours_are_for_terminals(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b[" not in printed(capsys, has_colour=False)
    assert "\x1b[1mnote:\x1b[0m " in printed(capsys, has_colour=True)


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ((ListedModel(id="/models/a/b.gguf"),), "2 slots of 8,192 tokens, model b.gguf"),
        ((ListedModel(id="a"), ListedModel(id="b")), "2 slots of 8,192 tokens, 2 models"),
        ((), "2 slots of 8,192 tokens\n"),
    ],
)
def test_the_second_line_says_what_it_is(
    models: tuple[ListedModel, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in printed(capsys, has_colour=False, width=100, models=models)


def test_one_slot_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    one = Props(slots=1, ctx_per_slot=512)
    assert "1 slot of 512 tokens" in printed(capsys, has_colour=False, looks=(), props=one)
