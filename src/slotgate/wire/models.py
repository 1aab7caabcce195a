"""What `/v1/models` says: a llama-server's, a router's, or another make's that has this list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from slotgate.errors import BrokenAnswerError
from slotgate.wire.usage import as_mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """One model; None where the server does not tell.

    `ctx_train` is the context it was trained for, in tokens; `size_bytes` that of its tensors.
    `status` is a router's word for its child (`loaded`, `unloaded`, `sleeping`, ...), `has_failed`
    whether that ended with an error, and `arguments` the words it is started with.
    """

    id: str
    ctx_train: int | None = None
    size_bytes: int | None = None
    status: str | None = None
    has_failed: bool = False
    arguments: tuple[str, ...] = ()


def parse_models(body: bytes) -> tuple[ListedModel, ...]:
    """Read `/v1/models`.  Raises BrokenAnswerError when it is not a list of models in `data`."""
    try:
        answer = as_mapping(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenAnswerError(f"/v1/models is not JSON: {error}") from error
    listed = answer.get("data")
    if not isinstance(listed, list):
        raise BrokenAnswerError("/v1/models lists no models in `data`")
    entries = map(as_mapping, listed)
    return tuple(_model(entry) for entry in entries if isinstance(entry.get("id"), str))


def _model(entry: dict[str, Any]) -> ListedModel:
    meta, status = as_mapping(entry.get("meta")), as_mapping(entry.get("status"))
    words = status.get("args")
    value = status.get("value")
    return ListedModel(
        id=entry["id"],
        ctx_train=_positive(meta.get("n_ctx_train")),
        size_bytes=_positive(meta.get("size")),
        status=value if isinstance(value, str) else None,
        has_failed=status.get("failed") is True,
        arguments=tuple(map(str, words)) if isinstance(words, list) else (),
    )


def _positive(value: Any) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and value > 0 else None
