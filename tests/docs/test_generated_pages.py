"""What the documentation says of settings, metrics and events is what the program does."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from slotgate.config import Settings, load_settings
from slotgate.config.describe import Model, Setting, environment_names, settings_of
from slotgate.telemetry.catalog import CATALOG
from slotgate.telemetry.events import Event
from slotgate.telemetry.metrics import Telemetry

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def every_model(model: Model = Settings) -> Iterator[Model]:
    yield model
    for setting in settings_of(model):
        for inner in setting.models.values():
            yield from every_model(inner)


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def every_setting(model: Model = Settings) -> Iterator[Setting]:
    for setting in settings_of(model):
        yield setting
        for inner in setting.models.values():
            yield from every_setting(inner)


def test_generated_pages_are_current(generator: ModuleType) -> None:
    stale = [str(path.relative_to(ROOT)) for path in generator.stale_files()]
    assert stale == [], "python docs/generate.py writes them"


def test_a_stale_page_is_noticed(generator: ModuleType, tmp_path: Path) -> None:
    for name in [*generator.WHOLE_FILES, *generator.BLOCKS]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((DOCS / name).read_text())
    assert generator.stale_files(tmp_path) == {}
    page = tmp_path / "reference/metrics.md"
    page.write_text(page.read_text().replace("slotgate_waiting_bytes", "slotgate_bytes"))
    assert list(generator.stale_files(tmp_path)) == [page]


def test_a_page_without_its_block_is_noticed(generator: ModuleType, tmp_path: Path) -> None:
    for name in generator.BLOCKS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("no block")
    with pytest.raises(SystemExit, match="has no block"):
        generator.stale_files(tmp_path)


@pytest.mark.parametrize("setting", list(every_setting()), ids=lambda setting: setting.key)
def test_a_setting_has_a_type_a_sentence_and_bounds(setting: Setting) -> None:
    assert setting.type_text
    assert setting.sentence.endswith(".")
    assert setting.is_required or setting.models or setting.default_text
    is_number = setting.type_text in {"whole number", "number", "duration", "size"}
    assert ("ge" in setting.bounds) is is_number
    if setting.default not in (None, "", ()) and is_number:
        assert setting.bounds["ge"] <= setting.default <= setting.bounds.get("le", setting.default)


def test_the_reference_page_has_every_setting_and_variable() -> None:
    page = (DOCS / "reference/configuration.md").read_text()
    for setting in every_setting():
        assert re.search(rf"[`.]{setting.key}[`.\[]", page), setting.key
    for name in environment_names(Settings).values():
        assert f"`{name}`" in page


def test_no_variable_of_ours_is_one_that_kubernetes_sets_for_a_service_called_slotgate() -> None:
    for name in environment_names(Settings).values():
        assert not re.match(r"SLOTGATE_(PORT|SERVICE)(_|$)", name)


def test_the_example_file_is_what_applies_without_it(tmp_path: Path) -> None:
    example = load_settings(DOCS / "slotgate.example.yaml")
    minimal = tmp_path / "minimal.yaml"
    minimal.write_text("backends: [{name: left, url: 'http://127.0.0.1:8081'}]")
    assert example == load_settings(minimal)


def test_the_example_file_has_every_setting() -> None:
    text = (DOCS / "slotgate.example.yaml").read_text()
    for setting in every_setting():
        assert re.search(rf"^ *#?(?:- )?{setting.key}:", text, re.MULTILINE), setting.key


def test_what_the_example_file_comments_out_is_yaml_too() -> None:
    lines = (DOCS / "slotgate.example.yaml").read_text().splitlines()
    active = [re.sub(r"^( *)#(?=[^ #])", r"\1", line) for line in lines]
    data = yaml.safe_load("\n".join(active))
    assert [backend["name"] for backend in data["backends"]] == ["left", "right"]
    assert data["tenants"][0]["class"] == "standard"


def test_every_metric_and_event_has_its_entry() -> None:
    metrics = (DOCS / "reference/metrics.md").read_text()
    for metric in CATALOG:
        assert f"### `{metric.name}`" in metrics
    events = (DOCS / "reference/events.md").read_text()
    for event in Event:
        assert f"| `{event}` |" in events


def program() -> str:
    """The whole program but for the declarations themselves."""
    declared = {"events.py", "metrics.py", "catalog.py"}
    sources = (ROOT / "src").rglob("*.py")
    return "\n".join(path.read_text() for path in sources if path.name not in declared)


def test_every_event_is_logged_somewhere() -> None:
    text = program()
    assert [event.name for event in Event if f"Event.{event.name}" not in text] == []


def test_every_measurement_is_taken_somewhere() -> None:
    text = program()
    methods = [name for name in vars(Telemetry) if not name.startswith("_")]
    assert [name for name in methods if f"telemetry.{name}(" not in text] == []


def test_every_setting_is_read_somewhere() -> None:
    text = program()
    names = [name for model in every_model() for name in model.model_fields]
    assert [name for name in names if not re.search(rf"\.{name}\b", text)] == []
