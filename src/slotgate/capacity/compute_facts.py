"""What an architecture's graph does otherwise than most, as far as its scratch depends on it.

Most: keys, queries and values are three products, of which the queries and keys are rotated; the
feed-forward network has a gate; experts have a width of their own; a token's answer is wanted only
where the batch says so.

Source: the graphs of llama.cpp build 11434.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Fact(StrEnum):
    """One way to differ."""

    FUSED = "one matrix makes queries, keys and values"
    GATED_QUERIES = "queries come with a gate of their size"
    EXPANDED = "keys and values are expanded from a latent row, and cached so"
    NOT_ROTATED = "queries and keys are not rotated"
    NO_CACHE = "attention sees the batch alone"
    NO_GATE = "the feed-forward network has no gate"
    HALF_WIDE = "the feed-forward network is half as wide as the file says"
    BESIDE_ATTENTION = "the feed-forward network runs beside attention, whose result is kept"
    FFN_EXPERTS = "experts are as wide as the feed-forward network"
    WEIGHTED_INPUT = "experts get their input multiplied by their weight"
    DENSE_TOO = "some layers have no experts, or a dense network beside them"
    LOGITS_COPIED = "logits are there twice"
    NO_LOGITS = "nothing of the vocabulary's size is computed"
    ALL_OUTPUTS = "the answer of every token is computed"
    NO_MIXING = "a batch holds tokens or embeddings, never both"
    WIDE_STATE = "the state's first product is as wide as two inner ones, without groups"
    REPEATED_KEYS = "the state's queries and keys are repeated for each head of its values"
    DECAY_MATRIX = "attention decays by a matrix of tokens x tokens"
    BLOCK_MASK = "attention is masked by blocks, for each group of heads"
    BIASED = "attention has a bias for each head and place"
    HYPER_CONNECTED = "embeddings are several streams, which hyper-connections mix"


_NAMES = {
    Fact.FUSED: """
        bailingmoe2 bloom cogvlm dbrx falcon gpt2 gptneox graniteswitch jais modern-bert mpt
        neo-bert openelm plamo2 plamo3 qwen starcoder
    """,
    Fact.GATED_QUERIES: "qwen35 qwen35moe qwen3next qwen4exp",
    Fact.EXPANDED: "deepseek2 deepseek2-ocr minicpm3 plm",
    Fact.NOT_ROTATED: "bert jina-bert-v2",
    Fact.NO_CACHE: "llama-embed t5encoder",
    Fact.NO_GATE: """
        apertus arcee bert bloom codeshell falcon gpt2 gptneox jais2 jina-bert-v3 mpt
        nemotron nemotron_h nemotron_h_moe nomic-bert-moe phi2 plm pockettts starcoder starcoder2
    """,
    Fact.HALF_WIDE: "qwen",
    Fact.BESIDE_ATTENTION: "cohere2 cohere2moe",
    Fact.FFN_EXPERTS: """
        arctic dbrx granite granite_swa granitehybrid granitemoe hunyuan-moe jamba llama minicpm
        minimax-01 minimax-m2 mistral3 nomic-bert-moe olmoe phimoe refact
    """,
    Fact.WEIGHTED_INPUT: "llama4",
    Fact.DENSE_TOO: "arctic gemma4 granitehybrid grok jamba llama4",
    Fact.NO_LOGITS: """
        bert eurobert gemma-embedding jina-bert-v2 jina-bert-v3 llama-embed modern-bert neo-bert
        nomic-bert nomic-bert-moe t5encoder
    """,
    Fact.LOGITS_COPIED: "chameleon",
    Fact.ALL_OUTPUTS: "clef cogvlm",
    Fact.NO_MIXING: "cogvlm deepseek4 dflash eagle3 gemma4-assistant graniteswitch",
    Fact.WIDE_STATE: "jamba mamba plamo2",
    Fact.REPEATED_KEYS: "qwen3next",
    Fact.DECAY_MATRIX: "minimax-01",
    Fact.BLOCK_MASK: "minimax-m3",
    Fact.BIASED: "t5 t5encoder",
    Fact.HYPER_CONNECTED: "deepseek4 glm5-next hy_v4 qwen4exp",
}

# Fact -> the architectures that it is true of.
FACTS: Mapping[Fact, frozenset[str]] = MappingProxyType(
    {fact: frozenset(names.split()) for fact, names in _NAMES.items()}
)
