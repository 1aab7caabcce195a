"""What a drill needs: several backends behind a gateway that soon loses patience, and clients."""

from __future__ import annotations

import contextlib
import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.e2e.asking import CHAT, ask, chat, wait_until
from tests.e2e.processes import gateway, read, write_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.processes import Running

MODEL = "one"
# Patience for a test: a second where a person has ten.
HASTY = {"first_token_floor": "2s", "gap_floor": "2s", "quarantine": "1s"}


@dataclass(frozen=True, slots=True)
class Told:
    """What a client of a stream got."""

    status: int
    backend: str
    tokens: int
    errors: tuple[str, ...]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Drill:
    """A gateway over backends, by name."""

    front: Running
    backends: dict[str, str]
    hook_file: Path

    def tell(self, tokens: int = 60, prompt: str = "a story") -> Told:
        """Have a story streamed to its end, whatever that is."""
        with self.asking(tokens, prompt) as response:
            backend = response.getheader("x-slotgate-backend", "")
            return _told(response.status, backend, response.read())

    def leave_early(self, tokens: int) -> None:
        """Ask for a story and leave at its beginning."""
        with self.asking(tokens) as response:
            response.readline()

    @contextlib.contextmanager
    def asking(self, tokens: int, prompt: str = "a story") -> Iterator[http.client.HTTPResponse]:
        """Have a story begun, for whoever reads it within the block."""
        connection = http.client.HTTPConnection(urlsplit(self.front.url).netloc, timeout=90)
        body = chat(prompt, model=MODEL, stream=True, max_tokens=tokens, ignore_eos=True)
        try:
            connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json"})
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()

    def tell_all(self, stories: int, *, at_once: int, tokens: int = 60) -> list[Told]:
        with ThreadPoolExecutor(at_once) as clients:
            return list(clients.map(lambda _: self.tell(tokens), range(stories)))

    def set_fault(self, name: str, order: dict[str, str]) -> None:
        assert ask(self.backends[name], "POST", "/stub/fault", order).status == 200

    def findings(self) -> dict[tuple[str, str], int]:
        """How often each thing was found: (backend, finding) -> times."""
        return self._counted("slotgate_watchdog_findings_total", "finding")

    def actions(self) -> dict[tuple[str, str], int]:
        return self._counted("slotgate_watchdog_actions_total", "action")

    def _counted(self, metric: str, label: str) -> dict[tuple[str, str], int]:
        counted = {}
        for labels, value in self.front.metrics(metric).items():
            named = dict(part.split("=") for part in labels.split(","))
            counted[named["backend"].strip('"'), named[label].strip('"')] = int(value)
        return counted

    def state(self, name: str) -> str:
        state: str = ask(self.front.url, "GET", "/ready").json()["backends"][name]["state"]
        return state

    def wait_rest(self, slots: int) -> None:
        """Wait until all slots are idle again, by our books and by the backends' own."""
        wait_until(lambda: self.front.queue()["slots_idle"] == slots)
        for url in self.backends.values():
            views = json.loads(read(f"{url}/slots"))
            assert not any(view["is_processing"] for view in views)

    def open_files(self) -> int:
        """How many files and sockets the gateway has open."""
        self.front.queue()  # a look is a request: whoever waits for this does not spin
        return len(list(Path(f"/proc/{self.front.process.pid}/fd").iterdir()))

    def wait_files(self, before: int) -> None:
        wait_until(lambda: self.open_files() <= before)

    def hooked(self) -> list[dict[str, Any]]:
        """What the hook was given."""
        if not self.hook_file.exists():
            return []
        return [json.loads(line) for line in self.hook_file.read_text().splitlines()]


def wait_seconds(condition: Callable[[], bool]) -> float:
    """Wait until the condition holds; return how long that took."""
    began = perf_counter()
    wait_until(condition)
    return round(perf_counter() - began, 2)


def _told(status: int, backend: str, body: bytes) -> Told:
    lines = [line for line in body.split(b"\n") if line.startswith(b"data: {")]
    events = [json.loads(line.removeprefix(b"data: ")) for line in lines]
    choices = [choice for event in events for choice in event.get("choices", [])]
    tokens = sum(bool(choice["delta"].get("content")) for choice in choices)
    errors = tuple(event["error"]["code"] for event in events if "error" in event)
    is_whole = body.endswith(b"data: [DONE]\n\n") and not errors
    return Told(status, backend, tokens, errors, is_whole)


@contextlib.contextmanager
def drill(directory: Path, backends: dict[str, str], **settings: Any) -> Iterator[Drill]:
    """Run a gateway within the block; `settings` are for the watchdog, but for `settle_bound`."""
    hook_file = directory / "hook.jsonl"
    top = {key: settings.pop(key) for key in ("settle_bound",) if key in settings}
    hook = ["/bin/sh", "-c", f"cat >> '{hook_file}'"]
    document = {
        "listen": "127.0.0.1:0",
        "log": {"level": "error"},
        "classes": {"standard": {"budget": "80s"}},
        "backends": [{"name": name, "alias": MODEL, "url": url} for name, url in backends.items()],
        "watchdog": {**HASTY, "hook": hook, **settings},
        **top,
    }
    with gateway("-c", write_config(directory / "drill.yaml", document)) as front:
        yield Drill(front, backends, hook_file)
