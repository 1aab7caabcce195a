"""A header that is broken or malicious is refused with words, at little cost."""

from __future__ import annotations

import io
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from slotgate.capacity.header import Header, read_header
from slotgate.errors import HeaderError, ModelError
from tests.capacity import gguf_writer as gguf
from tests.capacity.gguf_writer import TensorSpec, Typed, encode_header, encode_string

META: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.context_length": 8192,
    "llama.feed_forward_length": [96, 96, 64],
    "llama.attention.scale": 0.5,
    "tokenizer.ggml.tokens": ["<s>", "", "a"],
    "tokenizer.ggml.add_bos_token": True,
    "split.count": Typed(gguf.U16, 1),
}
TENSORS = [TensorSpec("token_embd.weight", (64, 3), "q8_0"), TensorSpec("output.weight", (8, 2, 2))]
CONTENT = encode_header(META, TENSORS)
# A header costs less than this, whatever it claims.
MEMORY_BYTES = 48 << 20


class Endless(io.RawIOBase):
    """A file that begins somehow and then repeats a pattern for ever."""

    def __init__(self, begin: bytes, pattern: bytes) -> None:
        super().__init__()
        self._begin = io.BytesIO(begin)
        # A read begins anywhere in the pattern, so the block has one pattern more than is read.
        self._block = pattern * ((4 << 20) // len(pattern) + 2)
        self._period = len(pattern)
        self._at = 0

    @override
    def read(self, size: int = -1, /) -> bytes:
        assert 0 < size <= 4 << 20
        if begin := self._begin.read(size):
            return begin
        found = self._block[self._at : self._at + size]
        self._at = (self._at + size) % self._period
        return found


def read_file(file: Any) -> Header:
    return read_header("m.gguf", opener=lambda _name, _mode: file)


def refusal_of(content: bytes) -> str:
    with pytest.raises(HeaderError) as caught:
        read_file(io.BytesIO(content))
    return str(caught.value)


def read_or_refuse(content: bytes) -> None:
    """Read the header, or refuse it with words; any other exception fails the test."""
    try:
        header = read_file(io.BytesIO(content))
    except HeaderError as error:
        assert str(error).startswith("m.gguf: ")  # noqa: PT017 - either is right
    else:
        assert all(one.n_bytes > 0 for one in header.tensors)


def head(version: int = 3, tensors: int = 0, entries: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries)


def entry(key: str, kind: int, value: bytes) -> bytes:
    return encode_string(key) + struct.pack("<I", kind) + value


def array(kind: int, count: int) -> bytes:
    return struct.pack("<IQ", kind, count)


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return encode_string(name) + dimensions + struct.pack("<IQ", kind, offset)


# Broken at random.


def test_the_unbroken_header_is_read() -> None:
    assert len(read_file(io.BytesIO(CONTENT)).tensors) == 2


def test_a_header_that_is_cut_anywhere_is_refused() -> None:
    for cut in range(len(CONTENT)):
        assert refusal_of(CONTENT[:cut]).startswith("m.gguf: at byte "), cut


@given(st.lists(st.tuples(st.integers(0, len(CONTENT) - 1), st.integers(0, 255)), max_size=8))
def test_any_bytes_changed_are_read_or_refused(changes: list[tuple[int, int]]) -> None:
    content = bytearray(CONTENT)
    for at, value in changes:
        content[at] = value
    read_or_refuse(bytes(content))


@given(
    st.integers(4, len(CONTENT) - 8),
    st.integers(0, 2**64 - 1) | st.integers(0, 64).map(lambda n: 2**n - 1) | st.integers(0, 1000),
)
def test_any_number_in_any_place_is_read_or_refused(at: int, number: int) -> None:
    read_or_refuse(CONTENT[:at] + struct.pack("<Q", number) + CONTENT[at + 8 :])


@given(st.integers(0, 3), st.integers(0, 3), st.binary(max_size=300))
def test_any_bytes_after_the_magic_are_read_or_refused(
    tensors: int, entries: int, rest: bytes
) -> None:
    read_or_refuse(head(tensors=tensors, entries=entries) + rest)


@given(st.integers(0, len(CONTENT)), st.integers(0, len(CONTENT)), st.binary(max_size=20))
def test_any_piece_cut_out_or_put_in_is_read_or_refused(a: int, b: int, put: bytes) -> None:
    read_or_refuse(CONTENT[: min(a, b)] + put + CONTENT[max(a, b) :])


# Refused with the reason.


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "at byte 0: the file ends within its header"),
        (b"PK\3\4 and so on", r"no GGUF model: the file begins with b'PK\x03\x04'"),
        (head(version=1), "at byte 8: GGUF version 1, which llama.cpp no longer reads"),
        (b"GGUF\0\0\0\3" + bytes(16), "a big-endian GGUF file"),
        (head(version=4), "GGUF version 4; versions 2 and 3 are known"),
        (head(version=0), "a big-endian GGUF file"),
        (head(entries=2**64 - 1), "18,446,744,073,709,551,615 metadata entries"),
        (head(entries=1) + encode_string(""), "an empty key"),
        (head(entries=1) + struct.pack("<Q", 2**40), "a key of 1,099,511,627,776 bytes"),
        (head(entries=2) + entry("k", 0, b"\1") * 2, "the key 'k' is there twice"),
        (
            head(entries=1) + entry("\n" + "k" * 9000, 13, b"\1"),
            rf"the key '\n{'k' * 79}...' has a value of unknown type 13",
        ),
        (head(entries=1) + entry("k", 13, b"\1"), "the key 'k' has a value of unknown type 13"),
        (head(entries=1) + entry("k", 2**32 - 1, b"\1"), "of unknown type 4294967295"),
        (head(entries=1) + entry("k", 9, array(9, 1)), "the key 'k' has a value of unknown type 9"),
        (head(entries=1) + entry("k", 9, array(8, 2**61)), "strings, more than a model's header"),
        (
            head(entries=1) + entry("k", 9, array(8, 2)) + struct.pack("<Q", 2**63 - 1),
            "a string that ends beyond any model's header",
        ),
        (head(entries=1) + entry("k", 9, array(4, 2**61)), "bytes, more than a model's header has"),
        (head(entries=1) + entry("k", 8, b"\xff" * 8), "a string that ends beyond any model's"),
        (head(tensors=2**63), "9,223,372,036,854,775,808 tensors, more than 32,768"),
        (head(tensors=1) + encode_string("n" * 64), "a tensor's name of 64 bytes, more than 63"),
        (head(tensors=1) + tensor("t", (1,) * 5), "the tensor 't' has 5 dimensions, more than 4"),
        (head(tensors=1) + tensor("t", (8, 0)), "the tensor 't' is empty: a dimension is 0"),
        (head(tensors=1) + tensor("t", (2**32,) * 2), "more elements than ggml can count"),
        (head(tensors=1) + tensor("t", (2**62,)), "more bytes than ggml can count"),
        (head(tensors=1) + tensor("t", (8,), 43), "the tensor 't' has the unknown type 43"),
        (head(tensors=1) + tensor("t", (8,), 4), "the tensor 't' has the unknown type 4"),
        (head(tensors=1) + tensor("t", (33,), 8), "33 elements are no whole blocks of q8_0"),
        (head(tensors=1) + tensor("t", (8,), offset=32), "'t' has offset 32, not 0"),
        (
            head(tensors=2) + tensor("t", (8,)) + tensor("t", (8,), offset=32),
            "the tensor 't' is there twice",
        ),
        (encode_header({"general.alignment": 48}), "general.alignment is 48, not a power of two"),
        (encode_header({"general.alignment": 0}), "general.alignment is not a positive number"),
        (encode_header({"general.alignment": True}), "general.alignment is not a positive"),
        (encode_header({"general.alignment": "32"}), "general.alignment is not a positive"),
    ],
)
def test_what_is_wrong_is_said(content: bytes, said: str) -> None:
    refusal = refusal_of(content)
    assert said in refusal
    assert refusal.startswith("m.gguf: at byte ")


def test_a_tensor_without_dimensions_is_one_number() -> None:
    (one,) = read_file(io.BytesIO(head(tensors=1) + tensor("t", ()))).tensors
    assert (one.shape, one.n_bytes) == ((1,), 4)


def test_a_refused_header_is_a_model_that_cannot_be_used() -> None:
    assert issubclass(HeaderError, ModelError)


class Failing(io.RawIOBase):
    """A connection that is lost."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    @override
    def read(self, size: int = -1, /) -> bytes:
        raise self.error


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), RuntimeError("lost")])
def test_a_file_that_fails_while_it_is_read_is_refused_and_closed(error: Exception) -> None:
    file = Failing(error)
    with pytest.raises(HeaderError, match=r"m\.gguf: at byte 0: cannot be read: ") as caught:
        read_file(file)
    assert caught.value.__cause__ is error
    assert file.closed


def test_an_opener_of_any_library_may_fail() -> None:
    def opener(_name: str, _mode: str) -> Any:
        raise LookupError("no such repository")

    with pytest.raises(HeaderError, match=r"m\.gguf: cannot be opened: no such repository"):
        read_header("m.gguf", opener=opener)


# Endless files: what they claim is there, so only the limits end them.

_LONG_KEY = encode_string("k" * 65_000) + struct.pack("<IB", 0, 1)


def _entries(value: bytes, kind: int) -> bytes:
    """Many entries of one value; their keys are all the same, but are there once."""
    numbered = (entry(f"k{number:05d}", kind, value) for number in range(4096))
    return b"".join(numbered)


def _tensors(count: int) -> bytes:
    many = (
        tensor(f"{index:05d}".ljust(63, "x"), (1, 2**16, 2, 2), 0, index * 2**20)
        for index in range(count)
    )
    return b"".join(many)


# What the file begins with, and what it repeats.
ENDLESS = {
    "short strings": (
        head(entries=1) + entry("k", 9, array(8, 2**23)),
        encode_string("x" * 1000),
    ),
    "a long text": (head(entries=1) + entry("k", 8, struct.pack("<Q", 2**27)), b"x"),
    "numbers": (head(entries=1) + entry("k", 9, array(10, 2**24)), b"\0"),
    "long keys": (head(entries=60_000), _LONG_KEY),
    "texts": (head(entries=4096) + _entries(encode_string("x" * 10_000), 8), b"\0"),
    "arrays": (head(entries=4096) + _entries(array(0, 4096) + bytes(4096), 9), b"\0"),
    "names": (head(tensors=32_768) + _tensors(32_767), b"\0"),
    "large tensors": (head(tensors=2) + tensor("t", (2**61 - 64,)), b"\0"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_file_that_has_all_it_claims_costs_little_memory(name: str) -> None:
    file = Endless(*ENDLESS[name])
    tracemalloc.start()
    try:
        with pytest.raises(HeaderError):
            read_file(file)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES
    finally:
        tracemalloc.stop()


class Pieces(io.RawIOBase):
    """A file that gives what it has in pieces, as a network does."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__()
        self._pieces = iter(pieces)

    @override
    def read(self, size: int = -1, /) -> bytes:
        return next(self._pieces, b"")


def test_a_header_that_comes_in_pieces_is_read() -> None:
    pieces = (CONTENT[at : at + 7] for at in range(0, len(CONTENT), 7))
    assert read_file(Pieces(*pieces)) == read_file(io.BytesIO(CONTENT))


def test_a_header_that_goes_on_beyond_the_limit_of_all_is_refused() -> None:
    limit, mib = 128 << 20, bytes(1 << 20)
    begin = head(tensors=2, entries=1) + entry("k", 9, array(0, limit - 20 - 49))
    assert len(begin) == 49
    numbers = [*[mib] * 127, mib[: -20 - 49]]
    first, second = tensor("a", (8,)), tensor("b", (8,), offset=32)
    with pytest.raises(HeaderError, match="this header is larger than any model's"):
        read_file(Pieces(begin, *numbers, first, second))


def test_a_header_of_many_arrays_within_the_limits_is_read() -> None:
    """The limit of what is kept is far from what any model has."""
    meta = {f"llama.{index}": list(range(512)) for index in range(500)}
    assert len(read_file(io.BytesIO(encode_header(meta))).meta) == 500
