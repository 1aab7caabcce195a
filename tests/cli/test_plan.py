"""`slotgate plan`, run in this process: what it answers, and how it ends."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.backends.fake_hub import running
from tests.capacity.tiny_models import write_model
from tests.cli.plans import LLAMA, document, run
from tests.cli.processes import command, stub

if TYPE_CHECKING:
    from pathlib import Path

MiB, GiB = 1 << 20, 1 << 30


def test_a_plan_that_fits_ends_with_0_and_one_that_does_not_with_1() -> None:
    fits = run(*LLAMA, "-np", "4", "--context", "8192")
    assert (fits.exit_code, fits.stderr) == (0, "")
    assert "fits: 4 slots of 8,192 tokens" in fits.stdout
    too_large = run(*LLAMA, "-np", "32", "--context", "8192")
    assert (too_large.exit_code, too_large.stderr) == (1, "")
    assert "DOES NOT FIT: 32 slots of 8,192 tokens" in too_large.stdout
    assert "room for 18 slots of 8,192 tokens or 32 slots of 4,608 tokens" in too_large.stdout


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("Llama-3.1-8B", "--memory", "24GiB"), 2, "--weights 4.7GB"),
        ((*LLAMA[:3], "--memory", "24"), 2, "--memory: '24' could mean"),
        ((*LLAMA, "-ts", "1,2"), 2, "--tensor-split has 2 shares for 1 GPUs"),
        ((*LLAMA, "--plot", "chart.png"), 2, "it can be .svg or .html"),
        ((*LLAMA, "--plot", "/does/not/exist/chart.svg"), 2, "cannot be written"),
        ((*LLAMA, "--from", "nowhere"), 2, "is no backend URL"),
        ((*LLAMA, "--from", "http://127.0.0.1:9"), 1, "is the server running"),
        ((*LLAMA, "--from", "http://127.0.0.1:9", "--api-key-env", "NONE_SUCH"), 2, "NONE_SUCH"),
        (("/does/not/exist.gguf", "--memory", "24GiB"), 1, "no such file"),
        (("Qwen33-8B", "--memory", "24GiB"), 1, "did you mean"),
        (("hf:nothing", "--memory", "24GiB"), 1, "write hf:ORG/REPO"),
        # What llama.cpp refuses.
        ((*LLAMA, "-fa", "off", "-ctv", "q8_0"), 1, "needs flash attention"),
        ((*LLAMA, "-b", "2", "-np", "4"), 1, "is smaller than 4 slots"),
        ((*LLAMA, "-ot", "exps=CUDA3"), 1, "only CUDA0, host"),
        (
            ("DeepSeek-V3", "--weights", "400GB", "--memory", "640GB", "-ctk", "q8_0"),
            1,
            "must be the same",
        ),
    ],
)
@pytest.mark.parametrize("output", [(), ("--json",)])
def test_what_cannot_be_planned_is_said_on_standard_error_alone(
    arguments: tuple[str, ...], exit_code: int, words: str, output: tuple[str, ...]
) -> None:
    result = run(*arguments, *output)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert result.stderr.startswith("slotgate: ")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_help_names_every_option_in_full_on_80_columns() -> None:
    shown = run("--help", COLUMNS="80").stdout
    for name in ("-np, --parallel N", "-ctk, --cache-type-k TYPE", "--kv-unified-per-slot N"):
        assert name in shown
    assert "…" not in shown


def test_a_file_is_planned_by_its_own_header(tmp_path: Path) -> None:
    path = write_model("gemma3", tmp_path)
    told = document(str(path), "--memory", "64MiB", "-ngl", "0", "-np", "2")
    assert told["model"]["from_file"]
    assert told["weights_bytes"] == pytest.approx(path.stat().st_size, rel=0.2)
    assert shlex.split(told["command_line"])[:5] == ["llama-server", "-m", str(path), "-ngl", "0"]


def test_what_is_moved_to_the_host_is_in_the_command_as_it_was_asked() -> None:
    moe = ("Qwen3-30B-A3B", "--weights", "17.1GiB", "--memory", "12GiB,12GiB")
    words = document(*moe, "-ot", "blk.0=CUDA1", "--n-cpu-moe", "20")["command_line"]
    assert "-ot blk.0=CUDA1 --n-cpu-moe 20" in words
    # Single devices of that name are planned for, too.
    told = document(*moe, "-ot", "blk.0=CUDA1")
    assert [device["name"] for device in told["devices"]] == ["CUDA0", "CUDA1", "host"]


def test_speculation_is_in_the_command_and_its_states_in_the_plan() -> None:
    hybrid = ("Qwen3.5-27B", "--weights", "15.5GiB", "--memory", "24GiB", "-np", "2")
    alone = document(*hybrid)
    drafted = document(*hybrid, "--spec-type", "draft-mtp", "--spec-draft-n-max", "2")
    assert drafted["parts"]["state"] == 3 * alone["parts"]["state"]
    assert drafted["command"][-4:] == ["--spec-type", "draft-mtp", "--spec-draft-n-max", "2"]
    other = document(*hybrid, "--spec-type", "draft-eagle3")
    assert "draft-model" in [warning["code"] for warning in other["warnings"]]


def test_a_build_brings_its_own_warnings() -> None:
    codes = [one["code"] for one in document(*LLAMA, "--build", "5000")["warnings"]]
    assert any(code.startswith("build-") for code in codes)


@pytest.mark.parametrize(("tokens", "at_once", "most"), [(8192, 4, 18), (40000, 0, 3)])
def test_a_request_is_told_how_many_of_it_run_at_once(tokens: int, at_once: int, most: int) -> None:
    told = document(*LLAMA, "-np", "4", "--request", str(tokens))
    assert told["concurrency"] == {
        "request_tokens": tokens,
        "requests": at_once,
        "most": most,
    }
    assert f"per request: {at_once} ({most} with --context {tokens})" in (
        run(*LLAMA, "-np", "4", "--request", str(tokens)).stdout
    )


def test_requests_longer_than_the_training_never_run() -> None:
    told = document(*LLAMA, "--request", "200000")
    assert (told["concurrency"]["requests"], told["concurrency"]["most"]) == (0, 0)


def test_no_request_runs_in_a_plan_that_does_not_fit() -> None:
    told = document(*LLAMA, "-np", "32", "--context", "8192", "--request", "100", exit_code=1)
    assert told["concurrency"]["requests"] == 0
    assert told["would_fit"] == [
        {"slots": 18, "ctx_per_slot": 8192},
        {"slots": 32, "ctx_per_slot": 4608},
    ]


# A running server.


@pytest.mark.process
def test_a_running_server_is_compared_with_what_would_fit() -> None:
    with stub("--slots", "3", "--ctx", "2048") as url:
        told = document(*LLAMA, "--from", url)
        alone = run("--from", url, "--memory", "24GiB")
        measured = document(*LLAMA[:3], "--from", url)
    assert (told["server"]["slots"], told["server"]["ctx_per_slot"]) == (3, 2048)
    assert told["slots"] * told["ctx_per_slot"] > 100_000
    assert told["notes"] == []
    assert alone.exit_code == 2
    assert "is not on this machine; say which MODEL that is, besides --from" in alone.stderr
    assert any("beside that server" in note for note in measured["notes"])


@pytest.mark.process
def test_a_key_for_the_server_is_taken_from_the_environment() -> None:
    with stub("--api-key", "secret") as url:
        refused = run(*LLAMA, "--from", url)
        allowed = run(*LLAMA, "--from", url, "--api-key-env", "THE_KEY", THE_KEY="secret")
    assert refused.exit_code == 1
    assert "--api-key-env" in refused.stderr
    assert allowed.exit_code == 0
    assert f"now at {url}: 4 slots of 4,096 tokens, build" in allowed.stdout


@pytest.mark.process
@pytest.mark.llama
def test_a_server_of_ours_is_asked_for_its_model_too(small_model: Path) -> None:
    started = ("up", str(small_model), "--listen", "127.0.0.1:0", "--threads", "1")
    with command(*started, "--parallel", "2", "--ctx-size", "1024") as gateway:
        port = gateway.wait_ready()
        told = document("--from", f"http://127.0.0.1:{port}", "--memory", "1GiB", "-ngl", "0")
    assert (told["server"]["slots"], told["server"]["ctx_per_slot"]) == (2, 512)
    assert told["model"]["source"] == str(small_model)


# As a process.


@pytest.mark.process
def test_a_repository_is_planned_without_a_download(tmp_path: Path) -> None:
    content = write_model("llama", tmp_path).read_bytes() + bytes(32 * MiB)
    with running({"Tiny-Q4_K_M.gguf": content}) as hub:
        env = {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.url}
        arguments = ("hf:org/repo:Q4_K_M", "--memory", "64MiB", "-ngl", "0")
        with command("plan", *arguments, env=env) as process:
            assert process.wait() == 0
        assert hub.sent_bytes <= 4 * MiB
    assert "slotgate: reading the header of org/repo on Hugging Face" in process.output
    assert "llama-server -hf org/repo -hff Tiny-Q4_K_M.gguf --no-mmproj" in process.output
    assert "it was not downloaded" in process.output


@pytest.mark.process
@pytest.mark.parametrize("output", [(), ("--json",)])
def test_a_reader_that_leaves_early_is_no_fault(output: tuple[str, ...]) -> None:
    words = " ".join(("plan", *LLAMA, *output))
    line = (
        f"{sys.executable} -m slotgate {words} | head -1; {sys.executable} -m slotgate {words} >&-"
    )
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr
    assert len(ended.stdout.splitlines()) == 1


@pytest.mark.process
def test_a_plan_of_a_file_starts_no_event_loop_and_adapts_no_arguments(tmp_path: Path) -> None:
    # Each of these would take longer than the plan.
    heavy = ("asyncio", "pydantic", "huggingface_hub", "slotgate.backends.devices", "rich")
    code = (
        "import sys\nfrom slotgate.cli import app\n"
        f"app({['plan', str(write_model('llama', tmp_path)), '--memory', '8GiB']!r}, "
        "standalone_mode=False)\n"
        f"sys.stderr.write(' '.join(set(sys.modules) & set({heavy!r})))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "fits: " in ended.stdout
    assert ended.stderr == ""
