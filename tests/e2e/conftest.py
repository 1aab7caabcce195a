"""Gateways for all kinds of tests, each started once."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.e2e.processes import gateway, llama_server, stub, unused_port, write_config
from tests.wire.cases import PLAIN, SERVERS, TOOLS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.failing import Record
    from tests.e2e.processes import Running

STUB = pytest.param("stub", marks=pytest.mark.process)
LLAMA = pytest.param("llama", marks=[pytest.mark.process, pytest.mark.llama])


KEY = "a-key-for-the-tests-of-at-least-16-characters"


@dataclass(frozen=True, slots=True)
class Pair:
    """A backend that can be asked directly, and the gateway in front of it."""

    direct: str
    gateway: Running

    @property
    def url(self) -> str:
        return self.gateway.url


@pytest.fixture
def record(request: pytest.FixtureRequest, record_testsuite_property: Record) -> Record:
    """Keeps a figure of a test beside its result (`--junitxml`)."""
    test = f"{request.node.path.stem}.{request.node.name}"
    return lambda name, value: record_testsuite_property(f"{test}: {name}", value)


@pytest.fixture(scope="session")
def swift() -> Iterator[Pair]:
    """Four slots and answers at once; embeds too."""
    with stub("--slots", "4", "--decode", "0", "--prefill", "0", "--embeddings") as backend:
        with gateway("--backend", backend.url) as front:
            yield Pair(backend.url, front)


@pytest.fixture(scope="session")
def llama(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A real llama.cpp with four slots of 512 tokens."""
    yield from _real(small_model, PLAIN, tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def calling_llama(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A real llama.cpp whose model can call tools: four slots of 1024 tokens."""
    yield from _real(small_model, TOOLS, tmp_path_factory.mktemp("calling-llama"))


def _real(model: Path, kind: str, directory: Path) -> Iterator[Pair]:
    options = {**SERVERS[kind], "endpoint_slots": True, "endpoint_metrics": True}
    with llama_server(model, options) as url:
        # Its slots are separate, which it does not say by itself.
        backend = {"url": url, "kv_pool": options["n_ctx"]}
        settings = {"listen": "127.0.0.1:0", "backends": [backend]}
        with gateway("-c", write_config(directory / "config.yaml", settings)) as front:
            yield Pair(url, front)


@pytest.fixture(scope="session", params=[STUB, LLAMA])
def served(request: pytest.FixtureRequest) -> Pair:
    """Both kinds of backend, one after the other."""
    name = "swift" if request.param == "stub" else "llama"
    pair: Pair = request.getfixturevalue(name)
    return pair


@pytest.fixture(scope="session")
def narrow() -> Iterator[Pair]:
    """One slot with an endless model of 200 tokens a second, and room for one that waits.

    Nobody is refused for a prediction: there would be one from the fifth answer on.
    """
    patient = os.environ | {"SLOTGATE_SCHEDULING_ADMISSION": "expiry"}
    with stub(
        "--slots", "1", "--decode", "200", "--prefill", "0", "--output-tokens", "0"
    ) as backend:
        with gateway("--backend", backend.url, "--max-waiting", "1", env=patient) as front:
            yield Pair(backend.url, front)


@pytest.fixture(scope="session")
def tiny() -> Iterator[Pair]:
    """Slots of 64 tokens."""
    with stub("--slots", "2", "--decode", "0", "--ctx", "64") as backend:
        with gateway("--backend", backend.url) as front:
            yield Pair(backend.url, front)


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Backends with a fault each, named after it; `absent` is a port where nobody listens."""
    backends: list[dict[str, object]] = [
        {"alias": "absent", "name": "absent", "url": f"http://127.0.0.1:{unused_port()}"}
    ]
    faults = {
        "breaks": "error_in_stream:3",
        "dies": "dies:3",
        "dies-at-once": "dies:0",
        "silent": "silent",
        "loading": "loading",
    }
    timeouts = {"first_byte": "400ms"}
    with ExitStack() as stack:
        for name, fault in faults.items():
            # Slots enough that no test waits for one that another has left settling.
            url = stack.enter_context(
                stub("--slots", "16", "--decode", "100", "--fault", fault)
            ).url
            backends.append({"alias": name, "name": name, "url": url, "timeouts": timeouts})
        settings = {
            "listen": "127.0.0.1:0",
            "log": {"level": "critical"},
            "backends": backends,
        }
        path = tmp_path_factory.mktemp("faulty") / "config.yaml"
        yield stack.enter_context(gateway("-c", write_config(path, settings)))


@pytest.fixture(scope="session")
def locked(swift: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway that wants a key: the one of `KEY`."""
    settings = {
        "listen": "127.0.0.1:0",
        "backends": [{"url": swift.direct}],
        "tenants": [{"name": "somebody", "key_env": "SOMEBODYS_KEY"}],
    }
    path = tmp_path_factory.mktemp("locked") / "config.yaml"
    env = {**os.environ, "SOMEBODYS_KEY": KEY}
    with gateway("-c", write_config(path, settings), env=env) as front:
        yield front
