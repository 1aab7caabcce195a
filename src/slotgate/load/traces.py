"""Arrivals from files: CSV or JSON lines with the columns arrival, prompt and output.

Azure's and Mooncake's traces are read as they are published.  Of another file the columns are
found by their names, or are named.  Time stamps may be seconds, milliseconds or ISO dates; the
first is 0.  A `.gz` is unpacked while it is read.
"""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from math import inf, isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

from slotgate.errors import ConfigError
from slotgate.load.arrival import Arrival

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

# Names that are understood, in lower case, without spaces and underscores.
_NAMES: Final = {
    "arrival": ("arrival", "arrivaltime", "arrivedat", "timestamp", "time", "at", "ts"),
    "prompt": (
        "prompt", "prompttokens", "input", "inputtokens", "inputlength", "contexttokens",
        "requesttokens", "promptlen", "promptlength", "inputlen",
    ),
    "output": (
        "output", "outputtokens", "outputlength", "generatedtokens", "responsetokens",
        "completiontokens", "outputlen", "completion",
    ),
    "tenant": ("tenant", "user", "userid", "client", "clientid", "customer"),
}  # fmt: skip
_NEEDED: Final = ("arrival", "prompt", "output")
MOST_REQUESTS: Final = 5_000_000
_MOST_TOKENS: Final = 10**9
_LONGEST_MEAN_GAP: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """How a trace is read.

    `columns` maps `arrival`, `prompt`, `output` and `tenant` to the file's own names.  Times are
    multiplied with `unit_seconds` (0.001: the file has milliseconds), which is detected where it
    is None, then divided by `speed`.  What arrives from `seconds` on, or after `most` requests,
    is left out.
    """

    columns: Mapping[str, str] | None = None
    unit_seconds: float | None = None
    speed: float = 1.0
    seconds: float = inf
    most: int = MOST_REQUESTS
    patience: float = inf


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    values: Mapping[str, Any]


def read_trace(path: Path, options: TraceOptions | None = None) -> tuple[Arrival, ...]:
    """Read the arrivals in order of time; ConfigError names file, line and column."""
    wanted = options or TraceOptions()
    try:
        with _open(path) as file:
            return _Reader(path, wanted).arrivals(_rows(path, file))
    except (OSError, EOFError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not text in UTF-8") from error


def _open(path: Path) -> TextIO:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _rows(path: Path, file: TextIO) -> Iterator[_Row]:
    kinds = [suffix.lower() for suffix in path.suffixes]
    if ".jsonl" in kinds or ".ndjson" in kinds:
        return _json_rows(path, file)
    if ".csv" in kinds or ".tsv" in kinds:
        return _csv_rows(path, file, "\t" if ".tsv" in kinds else ",")
    raise ConfigError(f"{path}: a trace is .csv, .tsv or .jsonl, each also with .gz")


def _csv_rows(path: Path, file: TextIO, delimiter: str) -> Iterator[_Row]:
    reader = csv.DictReader(file, delimiter=delimiter)
    try:
        for values in reader:
            yield _Row(reader.line_num, values)
    except csv.Error as error:
        raise ConfigError(f"{path}, line {reader.line_num}: {error}") from error


def _json_rows(path: Path, file: TextIO) -> Iterator[_Row]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}, line {number}: is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise ConfigError(f"{path}, line {number}: expected an object, one a line")
        yield _Row(number, values)


class _Drawn(NamedTuple):
    """A request before its time is scaled."""

    at: float
    input_tokens: int
    output_tokens: int
    tenant: str


class _Reader:
    """Turns the rows of one file into requests."""

    def __init__(self, path: Path, options: TraceOptions) -> None:
        self._path = path
        self._options = options
        self._columns: dict[str, str] = {}
        self._has_dates = False

    def arrivals(self, rows: Iterator[_Row]) -> tuple[Arrival, ...]:
        drawn = [self._drawn(row) for row in islice(rows, self._options.most)]
        if not drawn:
            raise ConfigError(f"{self._path}: has no requests")
        drawn.sort(key=attrgetter("at"))
        first = drawn[0].at
        factor = self._unit(drawn) / self._options.speed
        return tuple(
            Arrival(
                at=at,
                tenant=each.tenant,
                input_tokens=each.input_tokens,
                output_tokens=each.output_tokens,
                patience=self._options.patience,
            )
            for each in drawn
            if (at := (each.at - first) * factor) < self._options.seconds
        )

    def _unit(self, drawn: Sequence[_Drawn]) -> float:
        """A load of less than a request a minute is none: then its times are milliseconds."""
        if self._options.unit_seconds is not None:
            return self._options.unit_seconds
        mean_gap = (drawn[-1].at - drawn[0].at) / len(drawn)
        is_fine = not self._has_dates and mean_gap > _LONGEST_MEAN_GAP
        return 0.001 if is_fine else 1.0

    def _drawn(self, row: _Row) -> _Drawn:
        if not self._columns:
            self._columns = _columns(self._path, list(row.values), self._options.columns or {})
        tenant = row.values.get(self._columns.get("tenant", ""))
        return _Drawn(
            self._time(row),
            self._tokens(row, "prompt", least=1),
            self._tokens(row, "output", least=0),
            "default" if tenant is None or tenant == "" else str(tenant),
        )

    def _time(self, row: _Row) -> float:
        value = row.values.get(self._columns["arrival"])
        number = _number(value)
        if number is not None:
            return number
        try:
            date = datetime.fromisoformat(_shortened(str(value).strip()))
        except ValueError as error:
            raise self._bad(row, "arrival", "a number or an ISO date") from error
        self._has_dates = True
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()

    def _tokens(self, row: _Row, role: str, *, least: int) -> int:
        number = _number(row.values.get(self._columns[role]))
        if number is None or not 0 <= number <= _MOST_TOKENS:
            raise self._bad(row, role, "a number of tokens")
        return max(least, round(number))

    def _bad(self, row: _Row, role: str, expected: str) -> ConfigError:
        column = self._columns[role]
        value = row.values.get(column)
        shown = "nothing" if value is None else repr(value)[:60]
        where = f"{self._path}, line {row.line}, column {column!r}"
        return ConfigError(f"{where}: {shown} is not {expected}")


def _columns(path: Path, found: Sequence[str], named: Mapping[str, str]) -> dict[str, str]:
    """Which of the file's columns is which."""
    columns: dict[str, str] = {}
    for role, names in _NAMES.items():
        if role in named:
            if named[role] not in found:
                raise ConfigError(
                    f"{path}: has no column {named[role]!r} for {role}; it has {', '.join(found)}"
                )
            columns[role] = named[role]
            continue
        for name in names:
            match = next((each for each in found if _plain(each) == name), None)
            if match is not None:
                columns[role] = match
                break
        else:
            if role in _NEEDED:
                raise ConfigError(
                    f"{path}: no column looks like {role}; it has {', '.join(map(str, found))}. "
                    f"Name it, as in {role}=NAME"
                )
    return columns


def _plain(name: str | None) -> str:
    # What a row has beyond the head has no name.
    return (name or "").lower().replace("_", "").replace(" ", "").replace("-", "")


def _shortened(stamp: str) -> str:
    """Python's dates have microseconds; what is finer is cut."""
    head, point, rest = stamp.partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789"))
    return head + point + rest[: min(digits, 6)] + rest[digits:] if point and digits > 6 else stamp


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if isfinite(number) else None
