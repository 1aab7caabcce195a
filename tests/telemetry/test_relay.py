"""The backends' own metrics on one page."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from slotgate.telemetry.relay import MAX_SAMPLES, MAX_TEXT_BYTES, BackendMetrics

RECORDED = (Path(__file__).parent / "recorded" / "llama_server_metrics.txt").read_bytes()


class Relay:
    """BackendMetrics, with what it skipped."""

    def __init__(self) -> None:
        self.skipped: dict[str, float] = {}
        self.metrics = BackendMetrics(on_skipped=self._note)

    def _note(self, labels: tuple[str, ...], amount: float) -> None:
        self.skipped[labels[0]] = self.skipped.get(labels[0], 0) + amount

    def update(self, backend: str, text: str | bytes) -> None:
        self.metrics.update(backend, text.encode() if isinstance(text, str) else text)

    def lines(self) -> list[str]:
        return self.metrics.render().decode().splitlines()


def samples(page: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_what_llama_server_says_passes_with_the_name_of_its_backend() -> None:
    relay = Relay()
    relay.update("left", RECORDED)
    wanted = {
        (name, frozenset({*labels, ("backend", "left")})): value
        for (name, labels), value in samples(RECORDED).items()
    }
    assert samples(relay.metrics.render()) == wanted
    assert len(wanted) == 15
    assert relay.skipped == {}
    helps = [line for line in RECORDED.decode().splitlines() if line.startswith("#")]
    assert [line for line in relay.lines() if line.startswith("#")] == helps


def test_two_backends_share_one_family() -> None:
    relay = Relay()
    relay.update("left", "# HELP llamacpp:x how many\n# TYPE llamacpp:x counter\nllamacpp:x 1\n")
    relay.update("right", "# TYPE llamacpp:x counter\nllamacpp:x 2\nllamacpp:y 3\n")
    assert relay.lines() == [
        "# HELP llamacpp:x how many",
        "# TYPE llamacpp:x counter",
        'llamacpp:x{backend="left"} 1',
        'llamacpp:x{backend="right"} 2',
        "# TYPE llamacpp:y untyped",
        'llamacpp:y{backend="right"} 3',
    ]


def test_a_samples_own_labels_stay() -> None:
    relay = Relay()
    relay.update(
        "left", 'llamacpp:p{position="0", x="a\\"b}\\\\"} 1\nllamacpp:p{position="1",} 2\n'
    )
    assert relay.lines()[1:] == [
        'llamacpp:p{backend="left",position="0",x="a\\"b}\\\\"} 1',
        'llamacpp:p{backend="left",position="1"} 2',
    ]


def test_a_backends_own_backend_label_is_renamed_as_prometheus_does() -> None:
    relay = Relay()
    relay.update("left", 'llamacpp:p{backend="right"} 1\n')
    assert relay.lines()[1:] == ['llamacpp:p{backend="left",exported_backend="right"} 1']


def test_the_name_of_a_backend_is_escaped() -> None:
    relay = Relay()
    relay.update('a"\\\nb', "llamacpp:x 1\n")
    assert samples(relay.metrics.render()) == {
        ("llamacpp:x", frozenset({("backend", 'a"\\\nb')})): 1.0
    }


def test_only_families_of_llama_cpp_pass() -> None:
    relay = Relay()
    relay.update(
        "left",
        "# HELP slotgate_waiting lies\n# TYPE slotgate_waiting gauge\nslotgate_waiting 0\n"
        "process_cpu_seconds_total 1\nllamacpp:x 1\n",
    )
    assert relay.lines() == ["# TYPE llamacpp:x untyped", 'llamacpp:x{backend="left"} 1']
    assert relay.skipped == {}


def test_what_cannot_be_understood_is_left_out_and_counted() -> None:
    relay = Relay()
    rubbish = [
        "llamacpp:a",
        "llamacpp:a b",
        "llamacpp:a 1 2 3",
        "llamacpp:a{ 1",
        "llamacpp:a{x} 1",
        'llamacpp:a{x="1} 1',
        'llamacpp:a{x="1" y="2"} 1',
        'llamacpp:a{x="1",x="2"} 1',
        'llamacpp:a{x="\\t"} 1',
        "llamacpp:a 1_0",
        "llamacpp:a 0x10",
        "llamacpp:a \x001",
        "llamacpp:\u00e9 1",
        "# TYPE llamacpp:b nonsense",
        "<html>",
        "llamacpp:" + "a" * 3000 + " 1",
    ]
    relay.update(
        "left", "\n".join([*rubbish, "llamacpp:good 1", "\xff"]).encode("latin-1", "replace")
    )
    assert relay.lines() == ["# TYPE llamacpp:good untyped", 'llamacpp:good{backend="left"} 1']
    assert relay.skipped == {"left": len(rubbish) + 1}


def test_a_sample_that_comes_twice_is_taken_once() -> None:
    relay = Relay()
    relay.update("left", "llamacpp:x 1\nllamacpp:x 2\n")
    assert relay.lines()[1:] == ['llamacpp:x{backend="left"} 1']
    assert relay.skipped == {"left": 1}


def test_numbers_that_are_none_are_written_as_prometheus_reads_them() -> None:
    relay = Relay()
    text = "llamacpp:a nan\nllamacpp:b -nan\nllamacpp:c inf\nllamacpp:d -inf\nllamacpp:e 1e+06\n"
    relay.update("left", text)
    values = [line.split()[-1] for line in relay.lines() if not line.startswith("#")]
    assert values == ["NaN", "NaN", "+Inf", "-Inf", "1e+06"]


def test_times_of_samples_are_dropped() -> None:
    relay = Relay()
    relay.update("left", "llamacpp:x 1 1700000000000\n")
    assert relay.lines()[1:] == ['llamacpp:x{backend="left"} 1']


def test_the_parts_of_a_histogram_stay_together() -> None:
    relay = Relay()
    relay.update(
        "left",
        "# TYPE llamacpp:h histogram\n"
        'llamacpp:h_bucket{le="1"} 1\nllamacpp:h_bucket{le="+Inf"} 2\n'
        "llamacpp:h_sum 3\nllamacpp:h_count 2\nllamacpp:other_sum 1\n",
    )
    assert [line for line in relay.lines() if line.startswith("#")] == [
        "# TYPE llamacpp:h histogram",
        "# TYPE llamacpp:other_sum untyped",
    ]


def test_lines_may_end_as_http_ends_them() -> None:
    relay = Relay()
    relay.update("left", b"# TYPE llamacpp:x gauge\r\nllamacpp:x 1\r\n")
    assert relay.lines() == ["# TYPE llamacpp:x gauge", 'llamacpp:x{backend="left"} 1']


def test_a_new_scrape_takes_the_place_of_the_old_one() -> None:
    relay = Relay()
    relay.update("left", "llamacpp:x 1\nllamacpp:y 1\n")
    relay.update("left", "llamacpp:x 2\n")
    assert relay.lines()[1:] == ['llamacpp:x{backend="left"} 2']


def test_of_a_backend_that_is_gone_nothing_is_shown() -> None:
    relay = Relay()
    relay.update("left", "llamacpp:x 1\n")
    relay.metrics.forget("left")
    relay.metrics.forget("left")
    assert relay.metrics.render() == b""


def test_a_text_without_end_is_cut_between_lines() -> None:
    relay = Relay()
    padding = "# x\n" * ((MAX_TEXT_BYTES - 13) // 4)
    text = "llamacpp:x 1\n" + padding
    text += "llamacpp:y 1234567"[: MAX_TEXT_BYTES - len(text) + 1]
    relay.update("left", text)
    assert relay.lines() == ["# TYPE llamacpp:x untyped", 'llamacpp:x{backend="left"} 1']
    assert relay.skipped == {"left": 1}


def test_a_backend_cannot_fill_the_page() -> None:
    relay = Relay()
    relay.update("left", "".join(f"llamacpp:x{n} 1\n" for n in range(MAX_SAMPLES + 50)))
    assert len(samples(relay.metrics.render())) == MAX_SAMPLES
    assert relay.skipped == {"left": 50}


LINE = st.one_of(
    st.text(alphabet='llamacpp:ab{}="\\,. 0123#\n', max_size=30),
    st.builds(
        "{} llamacpp:{} {}".format,
        st.sampled_from(["# HELP", "# TYPE", "#"]),
        st.sampled_from(["a", "b", "a_bucket"]),
        st.sampled_from(["counter", "gauge", "histogram", "text \\ text", ""]),
    ),
    st.builds(
        "llamacpp:{}{} {}".format,
        st.sampled_from(["a", "b", "a_bucket"]),
        st.sampled_from(["", "{}", '{x="1"}', '{le="1"}', '{backend="q"}', '{x="a\\\\"}']),
        st.sampled_from(["1", "-2.5", "nan", "1e5", "", "x"]),
    ),
)


@given(st.lists(LINE, max_size=8), st.lists(LINE, max_size=8))
def test_whatever_backends_say_the_page_can_be_read(left: list[str], right: list[str]) -> None:
    relay = Relay()
    relay.update("left", "\n".join(left))
    relay.update("right", "\n".join(right))
    page = relay.metrics.render().decode()
    seen: set[tuple[str, str]] = set()
    for line in page.splitlines():
        if not line.startswith("#"):
            name, _, labels = line.rpartition(" ")[0].partition("{")
            assert 'backend="left"' in labels or 'backend="right"' in labels
            assert (name, labels) not in seen
            seen.add((name, labels))
    types = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


@given(st.binary(max_size=200))
def test_no_bytes_of_a_backend_raise(content: bytes) -> None:
    relay = Relay()
    relay.update("left", content)
    relay.metrics.render()
