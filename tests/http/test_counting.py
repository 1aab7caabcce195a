"""What answers have used is counted, in whichever way they went through."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotgate.stub import StubOptions
from tests.http.rig import CHAT, Rig, chat, gateway, gateway_at
from tests.http.test_odd_backends import backend, plain

pytestmark = pytest.mark.anyio

# Each is answered in one piece: what generates nothing, and what cannot be put together again.
IN_ONE_PIECE: dict[str, tuple[str, dict[str, Any]]] = {
    "an embedding": ("/v1/embeddings", {"input": ["hello", "world"]}),
    "a reranking": ("/v1/rerank", {"query": "hello", "documents": ["one", "two"]}),
    "a chat with logprobs": (CHAT, chat(4, logprobs=True)),
    "tokens as numbers": ("/completion", {"prompt": "hi", "n_predict": 4, "return_tokens": True}),
}
KEY = [(b"authorization", b"Bearer left-key-0123456789")]
TENANT = {"name": "left", "key_env": "LEFT_KEY"}


async def counted(rig: Rig, name: str, **labels: str) -> float:
    """Read one counter off the metrics page; 0 where it has not counted yet."""
    shown = ",".join(f'{label}="{value}"' for label, value in labels.items())
    page = (await rig.get("/metrics", KEY)).body.decode()
    values = [line.split()[-1] for line in page.splitlines() if line.startswith(f"{name}{{{shown}")]
    return float(values[0]) if values else 0.0


@pytest.mark.parametrize("name", IN_ONE_PIECE)
async def test_what_an_answer_in_one_piece_has_used_is_counted(name: str) -> None:
    path, body = IN_ONE_PIECE[name]
    stub = StubOptions(decode=0, embeddings=True, reranking=True)
    async with gateway(stub, env={"LEFT_KEY": "left-key-0123456789"}, tenants=[TENANT]) as rig:
        answer = (await rig.post(path, body, KEY)).json()
        [record] = rig.stub.observed.records
        assert json.loads(record.body).get("stream") is not True
        usage = answer.get("usage", {})
        inputs = usage.get("prompt_tokens", answer.get("tokens_evaluated"))
        outputs = usage.get("completion_tokens", answer.get("tokens_predicted", 0))
        assert inputs > 0
        assert await counted(rig, "slotgate_input_tokens_total", backend="stub") == inputs
        assert await counted(rig, "slotgate_output_tokens_total", backend="stub") == outputs
        tokens = "slotgate_tenant_tokens_total"
        assert await counted(rig, tokens, kind="input", tenant="left") == inputs
        assert await counted(rig, tokens, kind="output", tenant="left") == outputs


async def test_what_takes_no_slot_counts_nothing() -> None:
    async with gateway() as rig:
        counting = await rig.post("/v1/messages/count_tokens", chat())
        assert counting.json()["input_tokens"] > 0
        assert await counted(rig, "slotgate_input_tokens_total", backend="stub") == 0


@pytest.mark.parametrize(
    "answer",
    [b"", b"{", b"[1]", b"\xff", b'{"usage":[7]}', b"[" * 100_000, b'{"usage":"' + bytes(2 << 20)],
    ids=["empty", "cut", "list", "bytes", "usage", "deep", "large"],
)
async def test_an_answer_that_makes_no_sense_passes_and_counts_nothing(answer: bytes) -> None:
    async with backend(plain(answer)) as url, gateway_at(url) as rig:
        passed = await rig.post("/v1/embeddings", {"input": "hello"})
        assert passed.status == 200
        assert passed.body == answer
        assert await counted(rig, "slotgate_input_tokens_total", backend="stub") == 0
