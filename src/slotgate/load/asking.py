"""What is sent for an arrival: a streamed chat completion of about so many tokens.

The prompt is made of words of three letters, of which most tokenizers make one token each, and
so does the stub.  It is never logged.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

if TYPE_CHECKING:
    from slotgate.core.clock import Dice
    from slotgate.load.arrival import Arrival

_TEXT: Final = (
    "the and you can see how day way man new now old two boy did its let put say she too use "
    "any our out one all but not for are had her was who get has him his may sun sky sea red "
    "big box car cat cow cup dog eat egg eye far few fly fun god hat hot ice job key kid law "
    "leg lie lot low map men mix mud net oil own pay pen pie pig run sad sea set sit six son"
)
_WORDS: Final = _TEXT.split()
# What a chat template puts around a message, roughly.
TEMPLATE_TOKENS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How all arrivals are asked for.

    `model` is the name to send, None sends none.  `exact_lengths` asks llama.cpp to ignore where
    the model would stop, and not to reuse what it has read before, except within a session.
    `template_tokens` are taken off the prompt, for the chat template puts about as many around it.
    """

    model: str | None = None
    exact_lengths: bool = False
    template_tokens: int = TEMPLATE_TOKENS

    def body(self, arrival: Arrival, dice: Dice) -> bytes:
        fields: dict[str, Any] = {
            "messages": [{"role": "user", "content": self._prompt(arrival, dice)}],
            "max_tokens": max(1, arrival.wanted_tokens),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.model is not None:
            fields["model"] = self.model
        if arrival.width > 1:
            fields["n"] = arrival.width
        if self.exact_lengths:
            fields |= {"ignore_eos": True, "cache_prompt": bool(arrival.session)}
        if arrival.session:
            fields["prompt_cache_key"] = arrival.session
        return json.dumps(fields, separators=(",", ":")).encode()

    def _prompt(self, arrival: Arrival, dice: Dice) -> str:
        """Two prompts begin differently, so that none is read from the other's cache.

        Those of one session begin alike.
        """
        count = max(1, arrival.input_tokens - self.template_tokens)
        # A few throws are enough: the rest is a walk through the words from there.
        if arrival.session:
            place, step = _walk_of(arrival.session)
        else:
            place, step = int(dice.random() * 1e6), 1 + 2 * int(dice.random() * 1e3)
        return " ".join(_WORDS[(place + step * i) % len(_WORDS)] for i in range(count))


def _walk_of(session: str) -> tuple[int, int]:
    checksum = crc32(session.encode())
    return checksum % 1_000_003, 1 + 2 * (checksum % 997)
