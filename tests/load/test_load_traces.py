"""Traces are read as they are published; what cannot be read is named by file, line and column."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from slotgate.errors import ConfigError
from slotgate.load.traces import TraceOptions, read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:48.1800000,879,55
"""
MOONCAKE = """{"timestamp": 3000, "input_length": 7322, "output_length": 490, "hash_ids": [0]}
{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}

{"timestamp": 300000, "input_length": 12, "output_length": 3, "hash_ids": []}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_an_azure_trace_is_read_in_order_of_time(tmp_path: Path) -> None:
    arrivals = read_trace(write(tmp_path, "azure.csv", AZURE))
    assert [a.at for a in arrivals] == pytest.approx([0.0, 1.49941, 4.314579], abs=1e-5)
    assert [(a.input_tokens, a.output_tokens) for a in arrivals] == [
        (374, 44),
        (879, 55),
        (396, 109),
    ]


def test_a_mooncake_trace_has_milliseconds_and_may_be_packed(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.jsonl.gz"
    path.write_bytes(gzip.compress(MOONCAKE.encode()))
    arrivals = read_trace(path)
    assert [a.at for a in arrivals] == [0.0, 3.0, 300.0]
    assert arrivals[0].input_tokens == 6758


def test_columns_are_found_by_name_whatever_their_order(tmp_path: Path) -> None:
    text = "client_id\tOutput Tokens\tArrival-Time\tprompt_tokens\nbob\t5\t1.5\t7\n\t6\t2.5\t8\n"
    first, second = read_trace(write(tmp_path, "own.tsv", text))
    assert (first.tenant, first.input_tokens, first.output_tokens) == ("bob", 7, 5)
    assert (second.tenant, second.at) == ("default", 1.0)


def test_columns_may_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, "own.csv", "x,y,z,who\n10,20,30,me\n12,1,2,me\n")
    named = {"arrival": "x", "prompt": "y", "output": "z", "tenant": "who"}
    first, second = read_trace(path, TraceOptions(columns=named))
    assert (first.input_tokens, first.output_tokens, first.tenant) == (20, 30, "me")
    assert second.at == 2.0


def test_a_trace_is_scaled_cut_and_bounded(tmp_path: Path) -> None:
    lines = "\n".join(f"{at},10,10" for at in range(100))
    path = write(tmp_path, "own.csv", f"at,prompt,output\n{lines}\n")
    fast = read_trace(path, TraceOptions(speed=10.0, seconds=5.0, patience=7.0))
    assert len(fast) == 50
    assert fast[10].at == pytest.approx(1.0)
    assert fast[0].patience == 7.0
    assert len(read_trace(path, TraceOptions(most=7))) == 7
    assert read_trace(path, TraceOptions(unit_seconds=0.001))[99].at == pytest.approx(0.099)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "at,prompt,output\n1,2,3\n2,many,3\n", r"line 3, column 'prompt': 'many' is not"),
        (
            "a.csv",
            "at,prompt,output\nnoon,2,3\n",
            r"line 2, column 'at': 'noon' is not a number or",
        ),
        ("a.csv", "at,prompt,output\n1,2\n", r"line 2, column 'output': nothing is not"),
        ("a.csv", "at,prompt,output\n1,2,-3\n", r"'-3' is not a number of tokens"),
        ("a.csv", "at,prompt,output\n1,nan,3\n", r"'nan' is not a number of tokens"),
        ("a.csv", "at,prompt,output\n", "has no requests"),
        ("a.csv", "", "has no requests"),
        ("a.csv", "at,length\n1,2\n", "no column looks like prompt; it has at, length"),
        ("a.jsonl", '{"at": 1}\n[1]\n', "no column looks like prompt"),
        ("a.jsonl", '{"at":1,"prompt":1,"output":1}\n[1]\n', "line 2: expected an object"),
        ("a.jsonl", '{"at":1,"prompt":1,"output":1}\n{"at"\n', "line 2: is not JSON"),
        ("a.jsonl", '{"at":true,"prompt":1,"output":1}\n', "column 'at': True is not"),
        ("a.txt", "1 2 3\n", "a trace is .csv, .tsv or .jsonl"),
        ("a.csv.gz", "not packed", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_trace(write(tmp_path, name, text))
    assert name in str(caught.value)


def test_a_named_column_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "at,prompt,output\n1,2,3\n")
    with pytest.raises(
        ConfigError, match="has no column 'x' for arrival; it has at, prompt, output"
    ):
        read_trace(path, TraceOptions(columns={"arrival": "x"}))


def test_a_file_that_is_missing_or_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not text"):
        read_trace(tmp_path / "b.csv")


def test_a_packed_file_that_is_cut_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(gzip.compress(AZURE.encode())[:-12])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(path)
