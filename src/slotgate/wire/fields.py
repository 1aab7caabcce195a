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
_FLAG: msgspec.json.Decoder[bool | None] = msgspec.json.Decoder(bool | None)
_TEXT: msgspec.json.Decoder[str | None] = msgspec.json.Decoder(str | None)
_NUMBER: msgspec.json.Decoder[int | float | None] = msgspec.json.Decoder(int | float | None)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NUMBER_STARTS = frozenset(b"-0123456789")
# llama-server reads whole numbers of 32 bits; beyond 62 one is as good as none.
_MAX_WHOLE = 1 << 62


def parse_fields(body: bytes) -> Fields:
    """Take the body apart.  Raises BadRequestError that says what is wrong and where."""
    body = body.removeprefix(_BYTE_ORDER_MARK)
    if not body or body.isspace():
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


def size_of(fields: Fields, names: tuple[str, ...]) -> int:
    """Return the length in bytes of the named fields together, as JSON."""
    return sum([len(memoryview(fields[name])) for name in names if name in fields])


def first_byte(raw: msgspec.Raw) -> int:
    """Return the byte that tells the type of a value that may be large."""
    return memoryview(raw)[0]


def is_array(raw: msgspec.Raw) -> bool:
    return first_byte(raw) == ord("[")


def is_number(raw: msgspec.Raw) -> bool:
    return first_byte(raw) in _NUMBER_STARTS


def has(fields: Fields, name: str) -> bool:
    """Tell whether the field is there and not null."""
    raw = fields.get(name)
    return raw is not None and first_byte(raw) != ord("n")


def flag(fields: Fields, name: str, *, strict: bool = False) -> bool:
    """Return whether the field is true; `strict` raises BadRequestError on another type."""
    raw = fields.get(name)
    if raw is None:
        return False
    try:
        return _FLAG.decode(raw) is True
    except msgspec.ValidationError:
        if strict:
            raise BadRequestError(f"'{name}' must be true or false", param=name) from None
        return False


def text(fields: Fields, name: str, *, strict: bool = False) -> str | None:
    """Return the string; `strict` raises BadRequestError on another type."""
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        return _TEXT.decode(raw)
    except msgspec.ValidationError:
        if strict:
            raise BadRequestError(f"'{name}' must be a string", param=name) from None
        return None


def whole(fields: Fields, name: str, *, strict: bool = False) -> int | None:
    """Return the number without its fraction, as llama-server reads it (1.9 is 1).

    `strict` raises BadRequestError on another type.
    """
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        value = _NUMBER.decode(raw)
    except msgspec.ValidationError:
        if strict and not is_number(raw):
            raise BadRequestError(f"'{name}' must be a number", param=name) from None
        return None
    return int(value) if value is not None and abs(value) < _MAX_WHOLE else None


def items(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the elements of an array."""
    return _LIST.decode(raw)


def small_value(fields: Fields, name: str) -> Any:
    """Return the value of a field that should be small; None when it is absent, or a bomb."""
    raw = fields.get(name)
    try:
        return None if raw is None else msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
