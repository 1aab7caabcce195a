"""A request's JSON object with its fields still as bytes, and careful looks at single fields.

Only the top level is taken apart: numbers, unknown fields and megabytes of messages travel in their
own bytes.  Of a field said twice the last counts, as in llama-server.  A field that is null is the
same as absent, as in llama-server.
"""

from __future__ import annotations

from typing import Any

import msgspec

from slotgate.errors import BadRequestError

Fields = dict[str, msgspec.Raw]

_OBJECT = msgspec.json.Decoder(Fields)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def parse_fields(body: bytes) -> Fields:
    """Take the body apart.  Raises BadRequestError that says what is wrong and where."""
    body = body.removeprefix(_BYTE_ORDER_MARK)
    if not body.strip():
        raise BadRequestError("the request has no body; a JSON object is expected")
    if not body.isascii():
        _check_utf8(body)
    try:
        return _OBJECT.decode(body)
    except msgspec.ValidationError:
        raise BadRequestError("the request's body must be a JSON object") from None
    except msgspec.DecodeError as error:
        raise BadRequestError(f"the request's body is not valid JSON: {error}") from error
    except RecursionError:
        raise BadRequestError("the request's body is nested too deeply") from None


def _check_utf8(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise BadRequestError(
            f"the request's body is not valid UTF-8: {error.reason} (byte {error.start})"
        ) from error


def encode_fields(fields: Fields) -> bytes:
    return msgspec.json.encode(fields)


def size_of(fields: Fields, *names: str) -> int:
    """Return the length in bytes of the named fields together, as JSON."""
    return sum(len(memoryview(fields[name])) for name in names if name in fields)


def kind_of(raw: msgspec.Raw) -> str:
    r"""Return the first byte, which tells the type: `"`, `{`, `[`, `t`, `f`, `n`, or a number's."""
    return chr(memoryview(raw)[0])


def has(fields: Fields, name: str) -> bool:
    """Tell whether the field is there and not null."""
    raw = fields.get(name)
    return raw is not None and kind_of(raw) != "n"


def flag(fields: Fields, name: str, *, strict: bool = False) -> bool:
    """Return whether the field is true; `strict` raises BadRequestError on another type."""
    raw = fields.get(name)
    if raw is None:
        return False
    kind = kind_of(raw)
    if strict and kind not in "tfn":
        raise BadRequestError(f"'{name}' must be true or false", param=name)
    return kind == "t"


def text(fields: Fields, name: str, *, strict: bool = False) -> str | None:
    """Return the string; `strict` raises BadRequestError on another type."""
    raw = fields.get(name)
    if raw is None or kind_of(raw) != '"':
        if strict and raw is not None and kind_of(raw) != "n":
            raise BadRequestError(f"'{name}' must be a string", param=name)
        return None
    value: str = msgspec.json.decode(raw)
    return value


def whole(fields: Fields, name: str, *, strict: bool = False) -> int | None:
    """Return the number without its fraction, as llama-server reads it (1.9 is 1).

    `strict` raises BadRequestError on another type.
    """
    raw = fields.get(name)
    if raw is None:
        return None
    kind = kind_of(raw)
    if kind not in "-0123456789":
        if strict and kind != "n":
            raise BadRequestError(f"'{name}' must be a number", param=name)
        return None
    value = msgspec.json.decode(raw)
    # 1e999 is infinite: as good as no number.
    return int(value) if abs(value) < 1 << 62 else None


def items(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the elements of an array."""
    return _LIST.decode(raw)


def value_of(fields: Fields, name: str) -> Any:
    """Return the whole value; for small fields only."""
    raw = fields.get(name)
    return None if raw is None else msgspec.json.decode(raw)
