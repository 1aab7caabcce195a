"""A real llama.cpp: one in good health, and one for each way to set it up badly."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

from slotgate.doctor.judge import ExitStatus
from slotgate.doctor.stated import Stated, parse_flags
from slotgate.runtime.kv_pool import Sharing
from tests.doctor.examining import by_check, examine, only, severities
from tests.e2e.processes import llama_server, read
from tests.polling import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slotgate.doctor.judge import Examined

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.llama]

SEEN = {"endpoint_slots": True, "endpoint_metrics": True}


async def examined(model: Path, options: dict[str, Any], **how: Any) -> Examined:
    with llama_server(model, SEEN | options) as url:
        return await examine(url, timeout=10.0, **how)


async def test_a_good_one_is_good(small_model: Path) -> None:
    found = await examined(small_model, {"n_parallel": 2, "n_ctx": 16384})
    assert found.status is ExitStatus.GOOD
    assert found.evidence.size == (2, 8192)
    assert found.evidence.trained == 8192
    ok = {check for check, how in severities(found).items() if how == "ok"}
    assert {"slot-stuck", "deferred", "slots-off", "metrics-off", "context-divided"} <= ok


async def test_a_divided_context_is_found(small_model: Path) -> None:
    found = await examined(small_model, {"n_parallel": 2, "n_ctx": 1024})
    finding = only(found, "context-divided")
    assert str(finding.severity) == "warning"
    assert "2 slots have 512 tokens each, of 1,024" in finding.found


async def test_routes_that_are_off_are_found(small_model: Path) -> None:
    off = {"endpoint_slots": False, "endpoint_metrics": False}
    found = severities(await examined(small_model, {"n_ctx": 8192} | off))
    assert (found["slots-off"], found["metrics-off"]) == ("warning", "note")


async def test_a_shared_pool_is_presumed_by_looking_and_proven_by_measuring(
    small_model: Path,
) -> None:
    options = {"n_parallel": 4, "n_ctx": 1024, "kv_unified": True}
    with llama_server(small_model, SEEN | options) as url:
        looked = await examine(url, timeout=10.0)
        assert looked.evidence.sharing is Sharing.PRESUMED
        assert severities(looked)["context-overcommitted"] == "warning"
        measured = await examine(url, timeout=10.0, measures=True)
        assert measured.evidence.sharing is Sharing.EMPTIED
        finding = only(measured, "context-overcommitted")
        assert "4 slots share one pool" in finding.found
        assert measured.evidence.measured is not None
        assert measured.evidence.measured.refusal == ""
        assert measured.evidence.measured.piece_tokens
        assert "stream-stall" in by_check(measured)


async def test_too_large_a_context_is_found_in_its_flags(small_model: Path) -> None:
    stated = Stated(flags=parse_flags("-c 16384 -np 1"))
    found = await examined(small_model, {"n_parallel": 1, "n_ctx": 16384}, stated=stated)
    assert "-c 16384 is more than its slots can use" in only(found, "context-above-trained").found


async def test_a_key_is_wanted_and_taken(small_model: Path) -> None:
    with llama_server(small_model, SEEN | {"n_ctx": 8192, "api_keys": ["sesame"]}) as url:
        assert severities(await examine(url)) == {"key-needed": "error"}
        assert severities(await examine(url, key="open")) == {"key-wrong": "error"}
        found = await examine(url, key="sesame")
        assert severities(found)["no-key"] == "ok"
        assert "sesame" not in repr(found)


async def test_one_that_sleeps_goes_on_sleeping(small_model: Path) -> None:
    with llama_server(small_model, SEEN | {"n_ctx": 8192, "sleep_idle_seconds": 1}) as url:
        wait_for(lambda: is_asleep(url), every=0.1)
        found = await examine(url, timeout=10.0, measures=True, is_forced=True)
        assert severities(found)["sleeping"] == "note"
        assert is_asleep(url)


async def test_slots_that_work_get_on(small_model: Path) -> None:
    with llama_server(small_model, SEEN | {"n_parallel": 2, "n_ctx": 16384}) as url:
        with generating(url):
            found = await examine(url, timeout=10.0, watch_seconds=30.0)
            assert only(found, "slot-stuck").found.startswith("1 of 2 slots work")


@contextmanager
def generating(url: str) -> Iterator[None]:
    """A long stream is being written, and has begun."""
    body = {"prompt": "Count:", "n_predict": 4000, "ignore_eos": True, "stream": True}
    with urlopen(Request(f"{url}/completion", json.dumps(body).encode()), timeout=30) as answer:
        answer.readline()
        yield


def is_asleep(url: str) -> bool:
    return bool(json.loads(read(f"{url}/props"))["is_sleeping"])
