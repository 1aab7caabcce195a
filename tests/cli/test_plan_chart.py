"""The chart of `slotgate plan --plot`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from tests.capacity.tiny_models import write_model
from tests.cli.plans import LLAMA, run

if TYPE_CHECKING:
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"


def draw(path: Path, *arguments: str) -> ET.Element:
    run(*(arguments or LLAMA), "--plot", str(path))
    return ET.fromstring(path.read_text(encoding="utf-8"))


def words(picture: ET.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text")]


def lines(picture: ET.Element) -> list[list[tuple[float, float]]]:
    found = []
    for line in picture.iter(f"{SVG}polyline"):
        pairs = (pair.split(",") for pair in line.attrib["points"].split())
        found.append([(float(x), float(y)) for x, y in pairs])
    return found


def test_the_chart_names_its_axes_with_units_and_each_line_with_its_type(tmp_path: Path) -> None:
    picture = draw(tmp_path / "chart.svg")
    told = words(picture)
    assert "slots (number, logarithmic)" in told
    assert "largest context of a slot (tokens, logarithmic)" in told
    assert {"f16", "q8_0", "q4_0", "trained", "planned", "131,072", "64"} <= set(told)
    assert len(lines(picture)) == 3


def test_more_slots_never_have_more_context_and_smaller_types_have_no_less(tmp_path: Path) -> None:
    f16, q8_0, q4_0 = lines(draw(tmp_path / "chart.svg"))
    for line in (f16, q8_0, q4_0):
        assert len(line) == 12
        assert line == sorted(line)
        # Down the picture is larger y.
        assert [y for _, y in line] == sorted(y for _, y in line)
    for (_, most), (_, less), (_, least) in zip(f16, q8_0, q4_0, strict=True):
        assert most >= less >= least


def test_everything_is_within_the_picture(tmp_path: Path) -> None:
    for number, arguments in enumerate([LLAMA, (*LLAMA, "-np", "256", "--context", "131072")]):
        picture = draw(tmp_path / f"{number}.svg", *arguments)
        _, _, width, height = map(float, picture.attrib["viewBox"].split())
        for line in lines(picture):
            assert all(0 <= x <= width and 0 <= y <= height for x, y in line)
        for text in picture.iter(f"{SVG}text"):
            assert 0 <= float(text.attrib["x"]) <= width
            assert 0 <= float(text.attrib["y"]) <= height


def test_what_does_not_fit_is_an_empty_dot(tmp_path: Path) -> None:
    fits = draw(tmp_path / "a.svg", *LLAMA, "-np", "4")
    not_so = draw(tmp_path / "b.svg", *LLAMA, "-np", "64", "--context", "65536")
    [full], [empty] = fits.iter(f"{SVG}circle"), not_so.iter(f"{SVG}circle")
    assert (full.attrib["fill"], empty.attrib["fill"]) == ("#222", "#fff")
    assert "asked, does not fit" in words(not_so)


def test_a_type_that_is_refused_has_no_line(tmp_path: Path) -> None:
    falcon = str(write_model("falcon", tmp_path))
    picture = draw(tmp_path / "c.svg", falcon, "--memory", "64MiB", "-ngl", "0")
    assert len(lines(picture)) == 1
    assert "q8_0" not in words(picture)


def test_where_nothing_fits_there_is_still_a_picture(tmp_path: Path) -> None:
    picture = draw(tmp_path / "c.svg", *LLAMA[:3], "--memory", "1GiB", "-ngl", "0")
    assert lines(picture) == []
    assert "asked, does not fit" in words(picture)


def test_a_page_has_the_picture_and_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "chart.HTML"
    run(*LLAMA, "--plot", str(path))
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.count("<svg ") == 1
    assert len(re.findall("<tr>", page)) == 13
    assert "<caption>Largest context of a slot, in tokens</caption>" in page
    refused = tmp_path / "refused.html"
    falcon = str(write_model("falcon", tmp_path))
    run(falcon, "--memory", "1MiB", "-ngl", "0", "--plot", str(refused))
    told = refused.read_text(encoding="utf-8")
    assert "<td>refused</td>" in told
    assert "<td>-</td>" in told


def test_names_are_written_so_that_they_cannot_be_markup(tmp_path: Path) -> None:
    path = write_model("llama", tmp_path).rename(tmp_path / "a<b>&c.gguf")
    picture = draw(tmp_path / "c.svg", str(path), "--memory", "64MiB", "-ngl", "0")
    assert "a<b>&c: how many slots of which context fit" in words(picture)


def test_the_report_is_printed_beside_the_chart(tmp_path: Path) -> None:
    result = run(*LLAMA, "--plot", str(tmp_path / "c.svg"))
    assert "fits: " in result.stdout
