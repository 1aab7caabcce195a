"""Sampling parameters, recorded from a llama-server: the stub shows them and uses none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slotgate.stub.ask import Ask

_SAMPLING: dict[str, Any] = {
    "seed": 4294967295,
    "temperature": 0.800000011920929,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_k": 40,
    "top_p": 0.949999988079071,
    "min_p": 0.05000000074505806,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.10000000149011612,
    "typical_p": 1.0,
    "repeat_last_n": 64,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 64,
}
_MIROSTAT: dict[str, Any] = {
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.10000000149011612,
    "adaptive_target": -1.0,
    "adaptive_decay": 0.8999999761581421,
}
_TAIL: dict[str, Any] = {
    "chat_format": "Content-only",
    "reasoning_format": "deepseek",
    "reasoning_in_content": False,
    "generation_prompt": "",
    "samplers": [
        "penalties",
        "dry",
        "top_n_sigma",
        "top_k",
        "typ_p",
        "top_p",
        "min_p",
        "xtc",
        "temperature",
    ],
    "speculative.types": "none",
    "timings_per_token": False,
    "post_sampling_probs": False,
    "backend_sampling": False,
    "lora": [],
}


def slot_params(max_tokens: int | None, *, stream: bool) -> dict[str, Any]:
    """The `params` of `/slots` and `/props`."""
    bound = -1 if max_tokens is None else max_tokens
    return {
        **_SAMPLING,
        **_MIROSTAT,
        "max_tokens": bound,
        "n_predict": bound,
        "n_keep": 0,
        "n_discard": 0,
        "ignore_eos": False,
        "stream": stream,
        "n_probs": 0,
        "min_keep": 0,
        **_TAIL,
    }


def generation_settings(ask: Ask) -> dict[str, Any]:
    """The `generation_settings` of a native answer: the same, and what may hold user text."""
    bound = -1 if ask.max_tokens is None else ask.max_tokens
    return {
        **_SAMPLING,
        "dry_sequence_breakers": ["\n", ":", '"', "*"],
        **_MIROSTAT,
        "stop": [],
        "max_tokens": bound,
        "n_predict": bound,
        "n_keep": 0,
        "n_discard": 0,
        "ignore_eos": False,
        "stream": ask.stream,
        "logit_bias": [],
        "n_probs": 0,
        "min_keep": 0,
        "grammar": "",
        "grammar_lazy": False,
        "grammar_triggers": [],
        "preserved_tokens": [],
        **_TAIL,
        "timings_per_token": ask.timings_per_token,
    }
