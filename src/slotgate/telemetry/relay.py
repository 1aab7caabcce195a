"""The backends' own `llamacpp:` metrics, merged into one page with a `backend` label.

llama-server's rate gauges start anew at every scrape, so two scrapers spoil each other's numbers.
One probe of ours reads each backend; everybody else reads here, as often as they like.

Rule 1: only families whose name begins with `llamacpp:` pass, so that no backend can pretend to be
        the gateway.
Rule 2: what cannot be understood is left out and counted, a line at a time; nothing raises.
Rule 3: a text is parsed once, when it arrives; a page is then only put together.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

PREFIX = "llamacpp:"
LABEL = "backend"
MAX_TEXT_BYTES = 256 << 10
MAX_LINE_CHARACTERS = 2048
MAX_SAMPLES = 1000
UNTYPED = "untyped"

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,199}")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]{0,99})\s*=\s*"((?:[^"\\\n]|\\["\\n])*)"\s*(,|$)')
_SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]{0,199})\s*(?:\{(.*)\})?\s+"
    r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?|[-+]?inf|[-+]?nan)"
    r"(?:\s+-?[0-9]+)?\s*",
    re.IGNORECASE,
)
# As C++ writes them, and as Prometheus wants them.
_NOT_FINITE = {
    "nan": "NaN",
    "+nan": "NaN",
    "-nan": "NaN",
    "inf": "+Inf",
    "+inf": "+Inf",
    "-inf": "-Inf",
}
_KINDS = {"counter", "gauge", "histogram", "summary", UNTYPED}
_PARTS = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}

Count = Callable[[tuple[str, ...], float], None]


@dataclass(slots=True)
class _Family:
    """What one backend says of one family; `samples` are finished lines."""

    help: str = ""
    kind: str = UNTYPED
    samples: list[str] = field(default_factory=list)


class BackendMetrics:
    """The last metrics of every backend."""

    def __init__(self, *, on_skipped: Count = lambda _labels, _amount: None) -> None:
        self._on_skipped = on_skipped
        # Backend -> family name -> family, in the backend's own order.
        self._backends: dict[str, dict[str, _Family]] = {}

    def update(self, backend: str, text: bytes) -> None:
        """Take what a backend answered to a scrape, in place of what it answered before."""
        parser = _Parser(backend)
        lines = text[:MAX_TEXT_BYTES].decode("utf-8", "replace").split("\n")
        if len(text) > MAX_TEXT_BYTES:
            lines[-1] = "cut short"  # half a number is another number
        for line in lines:
            parser.feed(line.strip())
        self._backends[backend] = parser.families
        if parser.skipped:
            self._on_skipped((backend,), parser.skipped)

    def forget(self, backend: str) -> None:
        """Drop what a backend said; old numbers of one that is gone would look alive."""
        self._backends.pop(backend, None)

    def render(self) -> bytes:
        """Return the merged page."""
        lines: list[str] = []
        names = dict.fromkeys(name for families in self._backends.values() for name in families)
        for name in names:
            members = [f[name] for f in self._backends.values() if name in f]
            samples = [line for family in members for line in family.samples]
            if samples:
                if text := next((family.help for family in members if family.help), ""):
                    lines.append(f"# HELP {name} {text}")
                kinds = (family.kind for family in members if family.kind != UNTYPED)
                lines.append(f"# TYPE {name} {next(kinds, UNTYPED)}")
                lines += samples
        return "".join(f"{line}\n" for line in lines).encode()


class _Parser:
    """Reads one text, line by line."""

    def __init__(self, backend: str) -> None:
        self._label = f'{LABEL}="{_escaped(backend)}"'
        # Samples already seen, without their values: Prometheus takes each only once.
        self._seen: set[str] = set()
        self.families: dict[str, _Family] = {}
        self.skipped = 0

    def feed(self, line: str) -> None:
        if not line:
            return
        is_understood = (
            len(line) <= MAX_LINE_CHARACTERS
            and line.isprintable()
            and (self._comment(line) if line.startswith("#") else self._sample(line))
        )
        self.skipped += not is_understood

    def _comment(self, line: str) -> bool:
        match line.split(None, 3):
            case ["#", "HELP", name, text] if _is_ours(name):
                self._family(name).help = text
            case ["#", "TYPE", name, kind] if _is_ours(name):
                if kind not in _KINDS:
                    return False
                self._family(name).kind = kind
        return True

    def _sample(self, line: str) -> bool:
        match = _SAMPLE.fullmatch(line)
        if match is None:
            return False
        name, labels, value = match.groups()
        if not _is_ours(name):
            return True
        own = _labels(labels or "")
        series = f"{name}{{{self._label}{own}}}"
        if own is None or series in self._seen or len(self._seen) >= MAX_SAMPLES:
            return False
        self._seen.add(series)
        number = _NOT_FINITE.get(value.lower(), value)
        self._family(self._base(name)).samples.append(f"{series} {number}")
        return True

    def _base(self, name: str) -> str:
        """Return the family of a sample: `x_bucket` belongs to the histogram `x`."""
        for kind, parts in _PARTS.items():
            for part in parts:
                base = name.removesuffix(part)
                if base != name and base in self.families and self.families[base].kind == kind:
                    return base
        return name

    def _family(self, name: str) -> _Family:
        return self.families.setdefault(name, _Family())


def _is_ours(name: str) -> bool:
    return name.startswith(PREFIX) and _NAME.fullmatch(name) is not None


def _labels(text: str) -> str | None:
    """Rewrite a sample's own labels, each with a comma before it; None if they are malformed."""
    result, names, position = "", {LABEL}, 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            return None
        name = match[1] if match[1] != LABEL else f"exported_{LABEL}"
        if name in names:
            return None
        names.add(name)
        result += f',{name}="{match[2]}"'
        position = match.end()
    return result


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
