"""The books of a deployment count what they hold, whatever comes in whatever order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slotgate.runtime.books import DeploymentBooks, RunningLease

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["grant", "end", "close", "settle", "peak"]),
        st.integers(0, 5),
        st.integers(1, 4),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_slots_held_are_the_sum_of_the_leases_and_the_peak_is_the_most_of_them(
    steps: list[tuple[str, int, int]],
) -> None:
    books = DeploymentBooks()
    running: dict[str, int] = {}
    settling: dict[str, int] = {}
    peak = 0
    for number, (step, which, width) in enumerate(steps):
        known = sorted({*running, *settling}, key=int)
        lease = known[which % len(known)] if known else "none"
        match step:
            case "grant":
                books.granted(RunningLease(str(number), width))
                running[str(number)] = width
            case "end":
                books.ended(lease)
                running.pop(lease, None)
            case "close":
                books.closed(lease, float(number))
                if lease in running:
                    settling[lease] = running.pop(lease)
            case "settle":
                assert books.settled(lease) is (settling.pop(lease, None) is not None)
            case _:
                assert books.take_peak() == peak
                peak = 0
        held = sum(running.values()) + sum(settling.values())
        peak = max(peak, held)
        assert books.width == held
        assert list(books.running) == list(running)
        assert list(books.settling) == list(settling)
        assert all(entry.closed_at is not None for entry in books.settling.values())
