"""What `/v1/models` says: a llama-server's, a router's, or another make's that has this list."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from slotgate.errors import BadRequestError, BrokenAnswerError
from slotgate.wire.fields import encode_fields, parse_fields, text
from slotgate.wire.usage import as_mapping

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_SUFFIX = ".gguf"
_SLOT_FLAGS = ("-np", "--parallel")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """One model; None where the server does not tell.

    `ctx_train` is the context it was trained for, in tokens; `size_bytes` that of its tensors.
    `status` is a router's word for its child (`loaded`, `unloaded`, `sleeping`, ...), `has_failed`
    whether that ended with an error, and `arguments` the words it is started with.  `raw` is the
    whole entry, to be shown again.
    """

    id: str
    aliases: tuple[str, ...] = ()
    ctx_train: int | None = None
    size_bytes: int | None = None
    status: str | None = None
    has_failed: bool = False
    arguments: tuple[str, ...] = ()
    raw: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_loaded(self) -> bool:
        """Whether a router says that it serves and is awake, so that asking it changes nothing."""
        return self.status == "loaded"

    @property
    def slots(self) -> int | None:
        """The slots that it is started with, as a router tells; None where it does not."""
        for flag, number in pairwise(self.arguments):
            if flag in _SLOT_FLAGS and number.isdigit() and int(number) > 0:
                return int(number)
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that it answers to, its id first."""
        return tuple(dict.fromkeys((self.id, *self.aliases)))


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


def public_name(told: str) -> str:
    """Return what a model is called that was only given by the path of its file."""
    if not told.endswith(_SUFFIX):
        return told
    return told.replace("\\", "/").rpartition("/")[2].removesuffix(_SUFFIX) or told


def listing(models: Iterable[tuple[str, ListedModel]]) -> bytes:
    """Write one list of the models of several servers, each under the name given with it."""
    data = []
    for name, model in models:
        others = [other for other in model.names if other != name]
        data.append({"object": "model", **model.raw, "id": name, "aliases": others})
    return msgspec.json.encode({"object": "list", "data": data})


def with_model(body: bytes, name: str, known: Collection[str]) -> bytes:
    """Return a body that asks for a model by one of its known names, or else by `name`.

    What is no JSON object is for the server to refuse, and stays as it is.
    """
    try:
        fields = parse_fields(body)
    except BadRequestError:
        return body
    if text(fields, "model") in known:
        return body
    fields["model"] = msgspec.Raw(msgspec.json.encode(name))
    return encode_fields(fields)


def _model(entry: dict[str, Any]) -> ListedModel:
    meta, status = as_mapping(entry.get("meta")), as_mapping(entry.get("status"))
    words, aliases = status.get("args"), entry.get("aliases")
    value = status.get("value")
    return ListedModel(
        id=entry["id"],
        aliases=_texts(aliases),
        ctx_train=_positive(meta.get("n_ctx_train")),
        size_bytes=_positive(meta.get("size")),
        status=value if isinstance(value, str) else None,
        has_failed=status.get("failed") is True,
        arguments=tuple(map(str, words)) if isinstance(words, list) else (),
        raw=entry,
    )


def _texts(value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, list) else []
    return tuple(item for item in items if isinstance(item, str) and item)


def _positive(value: Any) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and value > 0 else None
