"""What users wrote stays out of the engine's log; the lines are llama.cpp's own."""

from __future__ import annotations

import pytest

from slotgate.backends.logfilter import WITHHELD, harmless


@pytest.mark.parametrize(
    "line",
    [
        "0.03.668 I slot launch_slot_: id  3 | task 1 | processing task, is_child = 0",
        "0.03.859 I slot print_timing: id  3 | task 1 | prompt eval time = 169.87 ms / 31 tokens",
        "slot release: id  3 | task 1 | stop processing: n_tokens = 33, truncated = 0",
        "0.00.002 I srv    operator(): operator(): cleaning up before exit...",
        "0.00.002 E srv   send_error: task id = 4, error: request (901 tokens) exceeds the "
        "available context size (512 tokens), try increasing it",
        "0.00.002 E srv   send_error: task id = 4, error: Context size has been exceeded.",
        "0.00.002 W srv  cancel_tasks: cancel task, id_task = 7",
        "0.00.003 E gguf_init_from_file: failed to open GGUF file '/m.gguf' (No such file)",
        "0.00.003 E ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of 9",
        "/src/ggml/src/ggml.c:4242: GGML_ASSERT(a->ne[0] == 1) failed",
        "CUDA error: out of memory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
)
def test_lines_of_numbers_and_of_dying_are_kept(line: str) -> None:
    assert harmless(line) == line


@pytest.mark.parametrize(
    ("line", "head"),
    [
        ('0.0 W srv    operator(): got exception: {"error": "last read: SECRET"}', "operator(): "),
        ("0.0 W srv  server_chat_: unsupported Responses tool type 'SECRET'", "server_chat_: "),
        ("0.0 I srv  process_medi: downloading image from 'SECRET'", "process_medi: "),
        ("0.0 W slot update_slots: id 0 | task 1 | SECRET", "update_slots: "),
        ("0.0 I slot update_slots: root ::= SECRET", "update_slots: "),
        ("0.0 E llg error: at 2(8): Invalid type: SECRET", "llg error: "),
        ("0.0 W common_chat_peg_parse: unparsed output: SECRET", "common_chat_peg_parse: "),
        ("srv    operator(): got exception: SECRET out of memory", "operator(): "),
    ],
)
def test_of_other_lines_only_who_spoke_is_kept(line: str, head: str) -> None:
    kept = harmless(line)
    assert kept is not None
    assert kept.endswith(head + WITHHELD)
    assert "SECRET" not in kept


@pytest.mark.parametrize("line", ["root ::= SECRET", '   2 | {"type": "SECRET"}', "SECRET", ""])
def test_of_text_without_a_speaker_nothing_is_kept(line: str) -> None:
    assert harmless(line) is None
