"""How much memory llama.cpp takes for a model and its settings, read off the model's header.

    header = read_header("model.gguf")
    memory = context_memory(header.meta, Settings(n_ctx=32768, n_seq=4, unified=False))
    memory.total, memory.n_ctx_seq, memory.parts

It starts nothing and needs no GPU: a header is read, and the rest is arithmetic.  The formulas are
those of llama.cpp build 11434 (`LLAMA_CPP_BUILD`); what they rest on is in
docs/explanation/kv-capacity.md.
"""

from __future__ import annotations

from slotgate.capacity.architectures import LLAMA_CPP_BUILD
from slotgate.capacity.context import ContextMemory, context_memory
from slotgate.capacity.header import Header, read_header
from slotgate.capacity.settings import Settings
from slotgate.errors import HeaderError, PlanRefused

__all__ = [
    "LLAMA_CPP_BUILD",
    "ContextMemory",
    "Header",
    "HeaderError",
    "PlanRefused",
    "Settings",
    "context_memory",
    "read_header",
]
