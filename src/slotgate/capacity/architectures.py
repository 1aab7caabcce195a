"""What each architecture keeps in memory, as one row each.

A row says which layers have a window, which keep a recurrent state and of what size, and whether
keys are latent or indexed.  An architecture without a row of its own here has the plain cache: keys
and values of every layer for the whole context.  The formulas that the rows choose from are in
`shapes` and `context`.

Source: llama.cpp build 11434, the hyperparameters that each architecture loads; 143 of its 151
names were confirmed by letting llama.cpp allocate.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum

# The build of llama.cpp that the rows were read from.
LLAMA_CPP_BUILD = 11434


class Memory(StrEnum):
    """What kind of memory a context of the architecture has."""

    CACHE = "cache"
    NONE = "none"
    RECURRENT = "recurrent"
    HYBRID = "hybrid"
    COMPRESSED = "compressed"


class Pattern(StrEnum):
    """Which layers have the window, when the file does not list them."""

    LAST_FULL = "last of the period is full"
    FIRST_FULL = "first of the period is full"
    LISTED = "the layers that the file lists"
    ATTENTION = "every attention layer"
    ALL = "every layer"


class When(StrEnum):
    """When the window is on."""

    ALWAYS = "always"
    KEY_POSITIVE = "when attention.sliding_window > 0"
    KEY_NOT_ZERO = "unless attention.sliding_window = 0"
    LAYERS_64 = "when the model has 64 layers"


@dataclass(frozen=True, slots=True)
class Window:
    """The sliding window of an architecture.

    `tokens` is the size of the window if the file does not give one, `fixed` whether the file's
    size is ignored.  Without `tokens` the key `attention.sliding_window` is required.
    """

    pattern: Pattern
    period: int = 0
    _: KW_ONLY
    when: When = When.ALWAYS
    tokens: int | None = None
    fixed: bool = False
    chunked: bool = False


class State(StrEnum):
    """Which numbers make the recurrent state of a layer: R (shifted rows) and S (the state)."""

    SSM = "R = (conv - 1) x inner, S = state x inner"
    SSM_GROUPS = "R = (conv - 1) x (inner + 2 x groups x state), S = state x inner"
    RWKV = "R = token shifts x n_embd, S = n_embd x head"
    SHORT_CONV = "R = n_embd x (l_cache - 1), S = 0"
    KDA = "R = 3 x (conv - 1) x heads x kda head, S = kda head^2 x heads"
    LIGHTNING = "R = 0, S = key length^2 x heads"


class Recurrent(StrEnum):
    """Which layers keep a recurrent state."""

    ALL = "every layer"
    NO_KV_HEADS = "layers without KV heads"
    NO_KV_HEADS_NO_FFN = "layers without KV heads and without FFN"
    INTERVAL = "all but every n-th layer"
    BESIDE_ATTENTION = "every layer, beside its attention"


class Latent(StrEnum):
    """Whether one latent row stands for keys and values (MLA)."""

    NO = "no"
    IF_KEYS = "when the file has key_length_mla and value_length_mla"
    REQUIRED = "yes"


class Indexer(StrEnum):
    """Which layers have an indexer's key cache (sparse attention)."""

    NO = "no"
    ALL = "every layer"
    LISTED = "layers that attention.indexer.types names"
    LISTED_IF_USED = "layers that attention.indexer.types names, if there is an indexer"
    AFTER_DENSE = "layers after the leading dense blocks"
    ATTENTION = "attention layers"
    ATTENTION_LISTED = "attention layers that attention.indexer.types names"


class OwnCache(StrEnum):
    """Which layers have a cache of their own, where the number of them is not fixed."""

    ALL = "every layer"
    BUT_SHARED = "all but the last, which attention.shared_kv_layers counts"


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row: what an architecture keeps in memory.

    `own_cache_layers`: only so many of the first layers have a cache of their own.
    `m_rope`: two more numbers are kept with each token; None: if the file's rope sections say so.
    `rollback`: the recurrent state may be kept several times, for speculation.
    """

    name: str
    _: KW_ONLY
    memory: Memory = Memory.CACHE
    window: Window | None = None
    state: State | None = None
    recurrent: Recurrent | None = None
    interval: int = 0
    latent: Latent = Latent.NO
    indexer: Indexer = Indexer.NO
    own_cache_layers: OwnCache | int = OwnCache.ALL
    rollback: bool = False
    causal: bool = True
    m_rope: bool | None = False
    verified: bool = True


def _names(text: str) -> list[str]:
    return text.split()


# With the plain cache: there is nothing to say about them but their names.
_PLAIN = _names("""
    apertus arcee arctic baichuan bailingmoe bailingmoe2 bitnet bloom chameleon chatglm codeshell
    cogvlm command-r dbrx deci deepseek deepseek2-ocr dots1 ernie4_5 ernie4_5-moe exaone falcon
    gemma gpt2 gptneox granite granitemoe grok grovemoe hrm_text hunyuan-dense hunyuan-moe
    hy_v3 internlm2 jais jais2 llama llama-embed maincoder minicpm minicpm3 minimax-m2 mistral3 mpt
    nanbeige nemotron olmo olmoe openelm orion pangu-embedded phi2 phi3 phimoe plamo plm pockettts
    qwen qwen2 qwen2moe qwen3 qwen3moe refact seed_oss smollm3 stablelm starcoder starcoder2 t5
    t5encoder talkie xverse
""")
_PLAIN_M_ROPE = _names("paddleocr qwen2vl qwen3vl qwen3vlmoe")
_PLAIN_M_ROPE_BY_KEY = _names("glm4 glm4moe hunyuan_vl")
_ENCODERS = _names("""
    bert eurobert jina-bert-v2 jina-bert-v3 modern-bert neo-bert nomic-bert nomic-bert-moe
""")
_NOT_CAUSAL = _names("dream gemma-embedding llada llada-moe rnd1")

_LISTED = Window(Pattern.LISTED)
_POSITIVE = When.KEY_POSITIVE
_BY_HEADS = Recurrent.NO_KV_HEADS
_SSM = State.SSM_GROUPS


def _hybrid_of_intervals(name: str, interval: int, *, rollback: bool, m_rope: bool) -> Architecture:
    return Architecture(
        name,
        memory=Memory.HYBRID,
        state=_SSM,
        recurrent=Recurrent.INTERVAL,
        interval=interval,
        rollback=rollback,
        m_rope=m_rope,
    )


def _hybrid(name: str, state: State, layers: Recurrent, *, rollback: bool) -> Architecture:
    return Architecture(
        name, memory=Memory.HYBRID, state=state, recurrent=layers, rollback=rollback
    )


def _recurrent(name: str, state: State) -> Architecture:
    return Architecture(name, memory=Memory.RECURRENT, state=state, recurrent=Recurrent.ALL)


def _windowed(name: str, window: Window) -> Architecture:
    return Architecture(name, window=window)


_ROWS = (
    *(Architecture(name) for name in _PLAIN),
    *(Architecture(name, m_rope=True) for name in _PLAIN_M_ROPE),
    *(Architecture(name, m_rope=None) for name in _PLAIN_M_ROPE_BY_KEY),
    Architecture("graniteswitch", verified=False),
    Architecture("qwen3tts", m_rope=True, verified=False),
    # No context memory at all: encoders, and models that write by diffusion.
    *(Architecture(name, memory=Memory.NONE) for name in _ENCODERS),
    *(Architecture(name, memory=Memory.NONE, causal=False) for name in _NOT_CAUSAL),
    Architecture("clef", memory=Memory.NONE, m_rope=True, verified=False),
    Architecture("wavtokenizer-dec", memory=Memory.NONE, verified=False),
    # Windows.
    _windowed("gemma2", Window(Pattern.LAST_FULL, 2, tokens=4096)),
    _windowed("gemma3", Window(Pattern.LAST_FULL, 6, when=_POSITIVE)),
    Architecture("gemma3n", window=Window(Pattern.LAST_FULL, 5), own_cache_layers=20),
    Architecture("gemma4", window=_LISTED, own_cache_layers=OwnCache.BUT_SHARED),
    Architecture("gemma4-assistant", window=_LISTED, own_cache_layers=0, verified=False),
    _windowed("gpt-oss", Window(Pattern.LAST_FULL, 2)),
    _windowed("cohere2", Window(Pattern.LAST_FULL, 4)),
    _windowed("cohere2moe", Window(Pattern.FIRST_FULL, 4)),
    _windowed(
        "llama4",
        Window(Pattern.LAST_FULL, 4, tokens=8192, fixed=True, chunked=True, when=When.KEY_NOT_ZERO),
    ),
    _windowed("exaone4", Window(Pattern.LAST_FULL, 4, tokens=4096, when=When.LAYERS_64)),
    _windowed("exaone-moe", Window(Pattern.LAST_FULL, 4)),
    _windowed("muse-glimmer", Window(Pattern.LAST_FULL, 4)),
    *(
        _windowed(name, Window(Pattern.LAST_FULL, 4, when=_POSITIVE))
        for name in ("afmoe", "mellum", "olmo2")
    ),
    _windowed("laguna", Window(Pattern.FIRST_FULL, 4, when=_POSITIVE)),
    _windowed("plamo3", Window(Pattern.LAST_FULL, 8, when=_POSITIVE)),
    _windowed(
        "smallthinker", Window(Pattern.FIRST_FULL, 4, tokens=4096, fixed=True, when=_POSITIVE)
    ),
    *(_windowed(name, _LISTED) for name in ("granite_swa", "maple", "mimo2", "spark2_5", "step35")),
    # Latent keys, some with an indexer; indexers alone.
    Architecture("deepseek2", latent=Latent.IF_KEYS),
    Architecture("mistral4", latent=Latent.IF_KEYS),
    Architecture("deepseek32", latent=Latent.IF_KEYS, indexer=Indexer.ALL),
    Architecture("glm-dsa", latent=Latent.IF_KEYS, indexer=Indexer.LISTED),
    Architecture("hy_v4", latent=Latent.REQUIRED, indexer=Indexer.LISTED_IF_USED),
    Architecture("dots3note", latent=Latent.REQUIRED, indexer=Indexer.LISTED, window=_LISTED),
    Architecture("minimax-m3", indexer=Indexer.AFTER_DENSE),
    Architecture("deepseek4", memory=Memory.COMPRESSED, window=Window(Pattern.ALL), rollback=True),
    # Recurrent states instead of a cache.
    _recurrent("mamba", State.SSM),
    _recurrent("mamba2", _SSM),
    _recurrent("rwkv6", State.RWKV),
    Architecture(
        "rwkv6qwen2",
        memory=Memory.RECURRENT,
        state=State.RWKV,
        recurrent=Recurrent.ALL,
        verified=False,
    ),
    _recurrent("rwkv7", State.RWKV),
    _recurrent("arwkv7", State.RWKV),
    # Recurrent states beside a cache.
    _hybrid("jamba", State.SSM, _BY_HEADS, rollback=False),
    _hybrid("plamo2", _SSM, _BY_HEADS, rollback=False),
    _hybrid("granitehybrid", _SSM, _BY_HEADS, rollback=False),
    _hybrid("falcon-h1", _SSM, Recurrent.BESIDE_ATTENTION, rollback=False),
    _hybrid("nemotron_h", _SSM, Recurrent.NO_KV_HEADS_NO_FFN, rollback=True),
    _hybrid("nemotron_h_moe", _SSM, Recurrent.NO_KV_HEADS_NO_FFN, rollback=True),
    Architecture(
        "lfm2",
        memory=Memory.HYBRID,
        state=State.SHORT_CONV,
        recurrent=_BY_HEADS,
        window=Window(Pattern.ATTENTION, when=_POSITIVE),
        rollback=True,
    ),
    _hybrid("lfm2moe", State.SHORT_CONV, _BY_HEADS, rollback=True),
    _hybrid_of_intervals("qwen3next", 4, rollback=False, m_rope=False),
    _hybrid_of_intervals("qwen35", 4, rollback=True, m_rope=True),
    _hybrid_of_intervals("qwen35moe", 4, rollback=True, m_rope=True),
    replace(
        _hybrid_of_intervals("qwen4exp", 4, rollback=True, m_rope=True),
        indexer=Indexer.ATTENTION,
    ),
    replace(
        _hybrid_of_intervals("minimax-01", 8, rollback=False, m_rope=False),
        state=State.LIGHTNING,
    ),
    replace(_hybrid("kimi-linear", State.KDA, _BY_HEADS, rollback=False), latent=Latent.REQUIRED),
    replace(_hybrid("kimi-k3", State.KDA, _BY_HEADS, rollback=True), latent=Latent.REQUIRED),
    replace(_hybrid("bailingmoe3", State.KDA, _BY_HEADS, rollback=True), latent=Latent.REQUIRED),
    replace(
        _hybrid("glm5-next", State.KDA, _BY_HEADS, rollback=True),
        latent=Latent.REQUIRED,
        indexer=Indexer.ATTENTION_LISTED,
    ),
    # Drafts, which run beside a model.
    Architecture("eagle3", verified=False),
    Architecture(
        "dflash", window=Window(Pattern.LISTED, when=_POSITIVE), m_rope=None, verified=False
    ),
)

# Name -> row, in the order of the table.
ARCHITECTURES = {row.name: row for row in _ROWS}


def architecture(name: str) -> Architecture:
    """The row of an architecture; the plain cache, not verified, for one that is not known."""
    return ARCHITECTURES.get(name) or Architecture(name, verified=False)
