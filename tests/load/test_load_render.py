"""A report reads the same as a table, a document and a page."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest

from slotgate.load.metrics import METRICS
from slotgate.load.metrics_whole import WHOLE_METRICS
from slotgate.load.numbers import Estimate
from slotgate.load.record import Outcome
from slotgate.load.render_html import as_html
from slotgate.load.render_json import as_document, as_json
from slotgate.load.render_table import groups, show, summary
from slotgate.load.report import Report, make_report
from slotgate.load.run import Run, Targets
from tests.load.records import record


@pytest.fixture
def report() -> Report:
    runs = [
        Run(
            records=(
                record(1.0, tenant="<b>"),
                record(2.0, tenant="a", ttft=5.0 + seed),
                record(3.0, tenant="a", outcome=Outcome.REFUSED, refused_after=0.002),
            ),
            seconds=60.0,
            seed=seed,
        )
        for seed in range(3)
    ]
    return make_report(
        runs, title="a <test>", targets=Targets(ttft=1.0), facts={"model": "m&m"}, notes=["a note"]
    )


def test_the_document_has_every_number_that_is_known_under_its_key(report: Report) -> None:
    document = json.loads(as_json(report))
    keys = {metric.key for metric in (*METRICS, *WHOLE_METRICS)}
    assert set(document["all"]) <= keys
    assert document["all"]["attainment"] == {"mean": pytest.approx(1 / 3), "margin": 0.0}
    assert set(document["tenants"]) == {"a", "<b>"}
    assert document["targets"] == {"ttft": 1.0, "tpot": None}
    assert document["seeds"] == [0, 1, 2]
    assert document == as_document(report)


def test_keys_are_declared_once() -> None:
    keys = [metric.key for metric in (*METRICS, *WHOLE_METRICS)]
    assert len(keys) == len(set(keys))


def test_the_page_needs_nothing_else(report: Report) -> None:
    page = as_html(report)
    assert not re.search(r"<script|<link|<img|@import|url\(|src=", page)
    outside = re.findall(r"https?://[^\s\"']+", page)
    assert set(outside) == {"http://www.w3.org/2000/svg"}
    assert "prefers-color-scheme: dark" in page


def test_names_of_others_are_shown_as_text(report: Report) -> None:
    page = as_html(report)
    assert "a &lt;test&gt;" in page
    assert "m&amp;m" in page
    assert "<b>" not in page


def test_every_plot_is_well_formed_and_inside_its_frame(report: Report) -> None:
    plots = re.findall(r"<svg.*?</svg>", as_html(report), re.DOTALL)
    assert len(plots) == 4
    for plot in plots:
        tree = ET.fromstring(plot)
        width, height = map(float, tree.attrib["viewBox"].split()[2:])
        for element in tree.iter():
            for path in (element.get("d", ""), element.get("points", "")):
                for x, y in re.findall(r"(?<![\d.])(\d+(?:\.\d+)?)[ ,](\d+(?:\.\d+)?)", path):
                    assert 0 <= float(x) <= width
                    assert 0 <= float(y) <= height


def test_a_load_of_one_request_and_one_of_none_served_are_drawn() -> None:
    for records in ((record(),), (record(outcome=Outcome.REFUSED),)):
        one = make_report([Run(records=records, seconds=1.0)], title="one")
        assert "</html>" in as_html(one)


def test_the_table_leaves_out_what_is_unknown(report: Report) -> None:
    rows = {row[0]: row[1] for row in summary(report)}
    assert rows["met the targets"] == "33.3 ±0.0 %"
    assert "slots in use" not in rows


def test_only_the_largest_tenants_have_a_row() -> None:
    records = tuple(record(tenant=f"t{number:02}") for number in range(20))
    rows = groups(make_report([Run(records=records, seconds=1.0)], title="many").tenants)
    assert len(rows) == 14
    assert rows[-1][0] == "and 8 more"


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("attainment", Estimate(0.5, None, 1), "50.0 %"),
        ("ttft_p50", Estimate(0.05, 0.001, 3), "50.0 ±1.0 ms"),
        ("ttft_p50", Estimate(5.0, None, 1), "5.00 s"),
        ("goodput_requests", Estimate(1.25, 0.1, 3), "1.25 ±0.10 requests/s"),
        ("requests", Estimate(1234.0, None, 1), "1234"),
        ("jain", Estimate(0.98, None, 1), "0.98"),
    ],
)
def test_numbers_are_written_with_unit_and_margin(key: str, value: Estimate, shown: str) -> None:
    assert show(key, value) == shown
