"""Tools that know llama-server work against the gateway when their URL is changed.

The light ones, as their users run them; docs/reference/drop-in.md tells of the others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import openai
import pytest

from tests.e2e.asking import wait_until
from tests.e2e.conftest import KEY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Pair
    from tests.e2e.processes import Running

pytestmark = pytest.mark.process

# The plugin's address is fixed; changing it is all that this does besides asking.
ASK_WITH_LLM = """
import asyncio, sys, llm

async def ask(model):
    return await model.prompt("Say hi", key="none", max_tokens=6).text()

model, url = llm.get_model("llama-server"), sys.argv[1]
model.api_base = url
whole = model.prompt("Say hi", stream=False, key="none", max_tokens=6)
print(len(whole.text()) > 0, whole.usage().output)
pieces = list(model.prompt("Say hi", stream=True, key="none", max_tokens=6))
print(len(pieces) > 1)
other = llm.get_async_model("llama-server")
other.api_base = url
print(len(asyncio.run(ask(other))) > 0)
"""


def run(*words: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def llamastat(url: str, *options: str) -> dict[str, Any]:
    words = ["-m", "llamastat", "--url", url, "--once", "--json", "--no-host", "--interval", "0.1"]
    told: dict[str, Any] = json.loads(run(*words, *options))
    return told


FACTS = (
    "ok", "health", "model_alias", "model_path", "model_ftype", "build_info", "n_params",
    "n_ctx_train", "n_vocab", "total_slots", "slot_ctx", "is_sleeping", "temperature", "ctx_total",
    "slots_endpoint", "metrics_available",
)  # fmt: skip


@pytest.mark.llama
def test_llamastat_sees_the_same_server(llama: Pair) -> None:
    direct, through = llamastat(llama.direct), llamastat(llama.url)

    assert {name: through[name] for name in FACTS} == {name: direct[name] for name in FACTS}
    assert through["m_prompt_tokens_total"] is not None
    assert through["m_requests_deferred"] == 0
    assert [slot["n_ctx"] for slot in through["slots"]] == [512] * 4


def test_llamastat_sees_a_slot_at_work(narrow: Pair) -> None:
    with openai.OpenAI(base_url=f"{narrow.url}/v1", api_key="none") as client:
        with client.chat.completions.create(
            model="any",
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=100_000,
            stream=True,
        ) as stream:
            next(iter(stream))
            busy = llamastat(narrow.url)
        wait_until(lambda: narrow.gateway.queue()["slots_idle"] == 1)
        idle = llamastat(narrow.url)

    assert (busy["running"], idle["running"]) == (1, 0)
    assert busy["slots"][0]["is_processing"]


def test_llamastat_shows_its_key(locked: Running) -> None:
    told = llamastat(locked.url, "--api-key", KEY)

    assert told["ok"]
    assert told["total_slots"] == 4
    assert told["slots_endpoint"]


@pytest.mark.llama
def test_llm_with_its_plugin_is_answered(llama: Pair, tmp_path: Path) -> None:
    told = run("-c", ASK_WITH_LLM, f"{llama.url}/v1", env={"LLM_USER_PATH": str(tmp_path)})

    assert told.splitlines() == ["True 6", "True", "True"]
