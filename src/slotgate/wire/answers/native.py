"""llama.cpp's own completion out of its frames.

The final frame is the answer but for its text.  It says `"stream":true` in the settings that it
repeats, where the answer says false.  Several sequences make a list.
"""

from __future__ import annotations

from typing import Any

import msgspec

Raw = msgspec.Raw
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_LIST = msgspec.json.Decoder(list[Raw])


class _Frame(msgspec.Struct):
    index: int = 0
    content: str = ""
    stop: bool = False
    tokens_predicted: int = 0


_FRAME = msgspec.json.Decoder(_Frame)


def raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def as_whole(final: Raw, content: list[str], probabilities: list[Raw] | None = None) -> Raw:
    """Return the final object of a stream as the whole answer that it would have been."""
    fields = _OBJECT.decode(final)
    fields["content"] = raw("".join(content))
    settings = fields.get("generation_settings")
    if settings is not None:
        told = bytes(memoryview(settings)).replace(b'"stream":true', b'"stream":false', 1)
        fields["generation_settings"] = Raw(told)
    if probabilities:
        fields["completion_probabilities"] = raw(probabilities)
    return raw(fields)


class NativeAnswer:
    """`/completion`, `/completions` and `/infill`.

    `response_fields` are the paths that the client wants of each answer; none: all of it.
    """

    def __init__(self, response_fields: tuple[str, ...]) -> None:
        self._response_fields = response_fields
        # Index of the sequence -> its text, its probabilities, its final object.
        self._contents: dict[int, list[str]] = {}
        self._probabilities: dict[int, list[Raw]] = {}
        self._finals: dict[int, Raw] = {}
        # Index of the sequence -> how many tokens its last frame counted.
        self._counted: dict[int, int] = {}

    def take(self, event: bytes | None, data: bytes) -> None:
        """Take one frame's JSON.  Raises msgspec.DecodeError when it is no frame."""
        frame = _FRAME.decode(data)
        self._contents.setdefault(frame.index, []).append(frame.content)
        if b'"completion_probabilities":' in data:
            found = _OBJECT.decode(data)["completion_probabilities"]
            self._probabilities.setdefault(frame.index, []).extend(_LIST.decode(found))
        if frame.stop:
            if frame.tokens_predicted > self._counted.get(frame.index, 0):
                # The last tokens brought no frame: the beginning of a character that never ended.
                self._contents[frame.index].append("\N{REPLACEMENT CHARACTER}")
            self._finals[frame.index] = Raw(data)
        self._counted[frame.index] = frame.tokens_predicted

    def body(self) -> bytes:
        answers = [
            self._chosen(as_whole(final, self._contents[index], self._probabilities.get(index)))
            for index, final in sorted(self._finals.items())
        ]
        return bytes(answers[0]) if len(answers) == 1 else msgspec.json.encode(answers)

    def _chosen(self, answer: Raw) -> Raw:
        if not self._response_fields:
            return answer
        chosen = {path: _at(answer, path) for path in self._response_fields}
        return raw({path: value for path, value in chosen.items() if value is not None})


def _at(answer: Raw, path: str) -> Raw | None:
    """Return what is at `a/b/c`, None when there is no such place."""
    for name in path.split("/"):
        if bytes(memoryview(answer)[:1]) != b"{":
            return None
        found = _OBJECT.decode(answer).get(name)
        if found is None:
            return None
        answer = found
    return answer
