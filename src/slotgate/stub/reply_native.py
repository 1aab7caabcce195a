"""llama.cpp's own shape: `/completion`, `/completions`, `/infill`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from slotgate.stub.params import generation_settings
from slotgate.stub.reply import Json, Reply, frame, progress_object, timings

if TYPE_CHECKING:
    from slotgate.slotsim import Finished, Progressed

FIRST_TOKEN = 1000


class NativeReply(Reply):
    """`/completion`: no terminator, a long last frame."""

    @override
    def _progress(self, event: Progressed) -> bytes:
        return frame(
            {
                "index": event.index,
                "content": "",
                "tokens": [0],
                "stop": False,
                "id_slot": -1,
                "tokens_predicted": 0,
                "tokens_evaluated": event.total,
                "prompt_progress": progress_object(event),
            }
        )

    @override
    def _token(self, index: int, number: int, text: str, extra: Json) -> bytes:
        return frame(
            {
                "index": index,
                "content": text,
                "tokens": [FIRST_TOKEN + number],
                "stop": False,
                "id_slot": -1,
                "tokens_predicted": number,
                "tokens_evaluated": self._prompt_tokens(index),
            }
            | extra
        )

    @override
    def _final(self, event: Finished) -> bytes:
        return frame(self._result(event, text=""))

    @override
    def _whole(self, results: list[Finished]) -> Any:
        all_of_them = [self._result(event, text=self._text(event.result)) for event in results]
        return all_of_them if len(all_of_them) > 1 else all_of_them[0]

    def _result(self, event: Finished, *, text: str) -> Json:
        result = event.result
        return {
            "index": event.index,
            "content": text,
            "tokens": [],
            "id_slot": event.slot,
            "stop": True,
            "model": self.model,
            "tokens_predicted": result.output_tokens,
            "tokens_evaluated": result.prompt_tokens,
            "generation_settings": generation_settings(self.ask),
            "prompt": self._prompt(event.index),
            "has_new_line": False,
            "truncated": result.truncated,
            "stop_type": result.stop.value,
            "stopping_word": "",
            "tokens_cached": result.held_tokens,
            "timings": timings(result),
        }
