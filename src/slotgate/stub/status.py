"""The bodies of the routes that say how the server is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from slotgate.stub.options import Build
from slotgate.stub.params import slot_params

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.slotsim import Counters, SlotView
    from slotgate.stub.options import StubOptions

Json = dict[str, Any]
BOS, EOS = "<|im_start|>", "<|im_end|>"


def error_body(status: int, type: str, message: str, **more: int) -> bytes:
    """Most errors; their keys are in this order."""
    return msgspec.json.encode(
        {"error": {"code": status, "message": message, "type": type, **more}}
    )


def early_error_body(status: int, type: str, message: str) -> bytes:
    """Errors made before a route is reached have another order of keys."""
    return msgspec.json.encode({"error": {"message": message, "type": type, "code": status}})


def props(options: StubOptions, *, is_sleeping: bool) -> Json:
    params = slot_params(None, stream=False) | {"reasoning_format": "none"}
    return {
        "default_generation_settings": {"params": params, "n_ctx": options.ctx},
        "total_slots": options.slots,
        "model_alias": options.model,
        "model_ftype": "Q4_1",
        "model_path": f"/models/{options.model}.gguf",
        "modalities": {"vision": False, "video": False, "audio": False},
        "media_marker": "<__media_stub__>",
        "endpoint_slots": options.has_slots,
        "endpoint_props": False,
        "endpoint_metrics": options.has_metrics,
        "ui": True,
        "ui_settings": {},
        "chat_template": "{% for m in messages %}<|im_start|>{{ m.role }}...{% endfor %}",
        "chat_template_caps": {
            "supports_object_arguments": False,
            "supports_parallel_tool_calls": False,
            "supports_preserve_reasoning": False,
            "supports_reasoning_effort": False,
            "supports_string_content": True,
            "supports_system_role": True,
            "supports_tool_calls": False,
            "supports_tools": False,
            "supports_typed_content": False,
        },
        "bos_token": BOS,
        "eos_token": EOS,
        "build_info": options.build_info,
        "is_sleeping": is_sleeping,
        "cors_proxy_enabled": False,
    }


def models(options: StubOptions, created: int) -> Json:
    name = options.model
    return {
        "models": [
            {
                "name": name,
                "model": name,
                "modified_at": "",
                "size": "",
                "digest": "",
                "type": "model",
                "description": "",
                "tags": [""],
                "capabilities": ["completion"],
                "parameters": "",
                "details": {
                    "parent_model": "",
                    "format": "gguf",
                    "family": "",
                    "families": [""],
                    "parameter_size": "",
                    "quantization_level": "",
                },
            }
        ],
        "object": "list",
        "data": [
            {
                "id": name,
                "aliases": [name],
                "tags": [],
                "object": "model",
                "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
                "created": created,
                "owned_by": "llamacpp",
                "meta": {
                    "vocab_type": 2,
                    "n_vocab": 49152,
                    "n_ctx": options.ctx,
                    "n_ctx_train": options.ctx_train or options.ctx,
                    "n_embd": 576,
                    "n_params": 134515008,
                    "size": 96576768,
                    "ftype": "Q4_1",
                },
            }
        ],
    }


def slots(views: Sequence[SlotView], build: Build) -> list[Json]:
    shape = {Build.NEW: _new_slot, Build.MIDDLE: _middle_slot, Build.OLD: _old_slot}[build]
    return [shape(view) for view in views]


def _new_slot(view: SlotView) -> Json:
    known: Json = {
        "id": view.id,
        "n_ctx": view.n_ctx,
        "speculative": False,
        "is_processing": view.is_processing,
    }
    if view.job is None:
        return known
    token = {
        "has_next_token": view.is_processing,
        "has_new_line": False,
        "n_remain": view.remaining,
        "n_decoded": view.decoded,
    }
    return known | {
        "id_task": view.task_id,
        "n_prompt_tokens": view.prompt_tokens,
        "n_prompt_tokens_processed": view.prompt_tokens_processed,
        "n_prompt_tokens_cache": view.prompt_tokens_cached,
        "params": slot_params(view.job.max_tokens, stream=view.job.stream),
        "next_token": [token],
    }


def _middle_slot(view: SlotView) -> Json:
    return {
        "id": view.id,
        "id_task": view.task_id if view.task_id is not None else -1,
        "n_ctx": view.n_ctx,
        "speculative": False,
        "is_processing": view.is_processing,
        "non_causal": False,
        "params": _params(view),
        "prompt": _prompt(view),
        "next_token": {
            "has_next_token": view.is_processing or view.job is None,
            "has_new_line": False,
            "n_remain": view.remaining,
            "n_decoded": view.decoded,
            "stopping_word": "",
        },
    }


def _old_slot(view: SlotView) -> Json:
    return {
        **_params(view),
        "id": view.id,
        "id_task": view.task_id if view.task_id is not None else -1,
        "model": "",
        "n_ctx": view.n_ctx,
        "next_token": {
            "has_next_token": view.is_processing or view.job is None,
            "n_decoded": view.decoded,
            "n_remain": view.remaining,
            "stopped_eos": False,
            "stopped_limit": False,
            "stopped_word": False,
            "stopping_word": "",
        },
        "prompt": _prompt(view),
        "state": int(view.is_processing),
    }


def _params(view: SlotView) -> Json:
    job = view.job
    return slot_params(job.max_tokens if job else None, stream=job.stream if job else True)


def _prompt(view: SlotView) -> str:
    return view.job.prompts[0].text.decode(errors="replace") if view.job else ""


def health(views: Sequence[SlotView], build: Build, *, fails: bool) -> tuple[int, Json]:
    """Only old builds count slots, and refuse when asked to."""
    if build is not Build.OLD:
        return 200, {"status": "ok"}
    busy = sum(view.is_processing for view in views)
    idle = len(views) - busy
    status = "ok" if idle else "no slot available"
    body = {"status": status, "slots_idle": idle, "slots_processing": busy}
    return (503 if fails and not idle else 200), body


_METRICS = (
    (
        "prompt_tokens_total",
        "counter",
        "Number of prompt tokens processed, excluding cached tokens",
    ),
    ("prompt_tokens_cached_total", "counter", "Number of prompt tokens reused from the cache"),
    ("prompt_seconds_total", "counter", "Total time spent processing prompts"),
    ("tokens_predicted_total", "counter", "Number of generation tokens processed"),
    ("tokens_predicted_seconds_total", "counter", "Total time spent generating tokens"),
    (
        "n_decode_total",
        "counter",
        "Total number of llama_decode() calls, "
        "excluding speculative decoding and multimodal decoding",
    ),
    ("n_tokens_max", "counter", "Largest observed sequence length (prompt + generation)"),
    (
        "spec_decode_num_draft_tokens_total",
        "counter",
        "Speculative: Total draft tokens generated",
    ),
    (
        "spec_decode_num_accepted_tokens_total",
        "counter",
        "Speculative: Total draft tokens accepted by the target model",
    ),
    (
        "spec_decode_num_drafts_total",
        "counter",
        "Speculative: Total speculative decoding verification steps",
    ),
    ("prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s"),
    ("predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s"),
    ("requests_processing", "gauge", "Number of requests processing"),
    ("requests_deferred", "gauge", "Number of requests deferred"),
    ("n_busy_slots_per_decode", "gauge", "Average number of busy slots per llama_decode() call"),
)


def metrics(now: Counters, before: Counters) -> bytes:
    """Prometheus text; the two rates are over the time since the last scrape, whoever's it was."""
    prompt_seconds = now.prompt_seconds - before.prompt_seconds
    output_seconds = now.output_seconds - before.output_seconds
    values: dict[str, float] = {
        "prompt_tokens_total": now.prompt_tokens,
        "prompt_tokens_cached_total": now.prompt_tokens_cached,
        "prompt_seconds_total": now.prompt_seconds,
        "tokens_predicted_total": now.output_tokens,
        "tokens_predicted_seconds_total": now.output_seconds,
        "n_decode_total": now.decodes,
        "n_tokens_max": now.largest_sequence,
        "prompt_tokens_seconds": _rate(now.prompt_tokens - before.prompt_tokens, prompt_seconds),
        "predicted_tokens_seconds": _rate(now.output_tokens - before.output_tokens, output_seconds),
        "requests_processing": now.processing,
        "requests_deferred": now.deferred,
        "n_busy_slots_per_decode": _rate(now.busy_slots, now.decodes),
    }
    lines = [
        f"# HELP llamacpp:{name} {text}\n# TYPE llamacpp:{name} {kind}\n"
        f"llamacpp:{name} {values.get(name, 0):g}\n"
        for name, kind, text in _METRICS
    ]
    return "".join(lines).encode()


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds else 0.0
