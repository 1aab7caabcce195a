"""What is known of a pool that slots share, from outside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.runtime.kv_pool import KvPool, Sharing
from slotgate.wire.llama_cpp import SlotView


def slot(
    number: int, tokens: int | None = 0, *, task: int | None = None, decoded: int | None = None
) -> SlotView:
    """A slot: it runs if it has `decoded` anything, or nothing yet."""
    return SlotView(
        id=number,
        n_ctx=1024,
        is_processing=decoded is not None,
        id_task=task,
        n_decoded=decoded,
        n_prompt_tokens=tokens,
        n_prompt_tokens_processed=None,
        raw={},
    )


def pool_of(slots: int = 4, context: int = 1024) -> KvPool:
    pool = KvPool()
    pool.sized(slots, context)
    return pool


def test_four_slots_are_taken_to_share_what_one_may_hold() -> None:
    pool = pool_of(4)
    assert pool.tokens(4) == 1024
    assert pool.sharing is Sharing.PRESUMED
    assert pool.sharing.is_guess


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8])
def test_any_other_number_was_asked_for_and_such_slots_are_separate(slots: int) -> None:
    pool = pool_of(slots)
    assert pool.tokens(slots) is None
    assert pool.sharing is Sharing.SEPARATE


def test_nothing_is_known_of_a_server_that_tells_no_context() -> None:
    pool = KvPool()
    pool.sized(4, None)
    assert pool.tokens(4) is None


def test_one_slot_alone_cannot_overflow_what_is_shared() -> None:
    assert pool_of(4).tokens(1) is None


def test_the_operators_word_is_believed_whatever_is_seen() -> None:
    pool = KvPool(configured=3000)
    pool.sized(8, 1024)
    pool.looked([slot(n, 900, task=n) for n in range(8)], is_all_ours=True)
    assert (pool.tokens(8), pool.sharing) == (3000, Sharing.CONFIGURED)
    assert not pool.sharing.is_guess


def test_a_pool_with_room_for_all_slots_is_as_good_as_none() -> None:
    pool = KvPool(configured=4096)
    pool.sized(4, 1024)
    assert pool.tokens(4) is None
    smaller = KvPool(configured=4095)
    smaller.sized(4, 1024)
    assert smaller.tokens(4) == 4095
    assert smaller.tokens(3) is None


def test_the_operators_word_counts_also_where_the_server_tells_nothing() -> None:
    pool = KvPool(configured=4096)
    pool.sized(4, None)
    assert pool.tokens(4) == 4096


def test_slots_that_are_known_to_be_separate_stay_so() -> None:
    pool = KvPool(is_separate=True)
    pool.sized(4, 1024)
    pool.exceeded()
    assert (pool.tokens(4), pool.sharing) == (None, Sharing.SEPARATE)


def test_a_slot_that_is_emptied_while_it_idles_proves_that_they_share() -> None:
    pool = pool_of(2)
    pool.looked([slot(0, 700, task=1), slot(1)], is_all_ours=True)
    pool.looked([slot(0, 0, task=1), slot(1, 20, task=2, decoded=3)], is_all_ours=True)
    assert (pool.tokens(2), pool.sharing) == (1024, Sharing.EMPTIED)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (slot(0), slot(0)),  # never used
        (slot(0, 700, task=1), slot(0, 700, task=1)),  # still there
        (slot(0, 700, task=1), slot(0, 0, task=2)),  # another task was in it, and left at once
        (slot(0, 700, task=1), slot(0, 0, task=2, decoded=0)),  # another is in it
        (slot(0, 700, task=1, decoded=9), slot(0, 0, task=1)),  # one of several of one request
        (slot(0, None, task=1), slot(0, None, task=1)),  # a build that does not tell
    ],
)
def test_nothing_else_proves_it(before: SlotView, after: SlotView) -> None:
    pool = pool_of(2)
    pool.looked([before], is_all_ours=True)
    pool.looked([after], is_all_ours=True)
    assert pool.tokens(2) is None


def test_slots_that_keep_their_tokens_are_doubted_to_share_but_guarded_still() -> None:
    pool = pool_of(4)
    pool.looked([slot(0, 700, task=1), slot(1, 9, task=0)], is_all_ours=True)
    pool.looked([slot(0, 700, task=1), slot(1, 9, task=0)], is_all_ours=True)
    assert pool.sharing is Sharing.PRESUMED  # nothing else has run since
    pool.looked([slot(0, 700, task=1), slot(1, 20, task=2, decoded=3)], is_all_ours=True)
    assert (pool.tokens(4), pool.sharing) == (1024, Sharing.DOUBTED)
    pool.looked([slot(0, 0, task=1), slot(1, 20, task=3, decoded=3)], is_all_ours=True)
    assert (pool.tokens(4), pool.sharing) == (1024, Sharing.EMPTIED)


def test_a_slot_that_is_emptied_while_the_server_rests_was_erased_by_somebody() -> None:
    pool = pool_of(2)
    pool.looked([slot(0, 700, task=1), slot(1)], is_all_ours=True)
    pool.looked([slot(0, 0, task=1), slot(1)], is_all_ours=True)
    assert pool.tokens(2) is None


def test_a_request_that_ended_for_want_of_context_proves_that_they_share() -> None:
    pool = pool_of(2)
    pool.exceeded()
    assert (pool.tokens(2), pool.sharing) == (1024, Sharing.EXCEEDED)


def test_the_pool_holds_what_was_seen_in_it_at_once() -> None:
    pool = pool_of(4)
    pool.looked([slot(n, 700, task=n) for n in range(4)], is_all_ours=True)
    assert pool.tokens(4) == 1024 + 6 * 256
    pool.looked([slot(0, 5, task=9)], is_all_ours=True)
    assert pool.tokens(4) == 1024 + 6 * 256
    pool.looked([slot(n, 1024, task=20 + n) for n in range(4)], is_all_ours=True)
    assert pool.tokens(4) is None


def test_what_is_learned_of_large_slots_comes_in_large_steps() -> None:
    pool = pool_of(4, 1 << 16)
    told = set()
    for tokens in range(0, 1 << 16, 512):
        pool.looked([slot(n, tokens, task=n) for n in range(4)], is_all_ours=True)
        told.add(pool.tokens(4))
    assert 16 < len(told) <= 3 * 16 + 1


def test_a_prompt_that_is_being_read_is_not_in_the_pool_yet() -> None:
    pool = pool_of(4)
    pool.looked([slot(n, 1000, task=n, decoded=0) for n in range(4)], is_all_ours=True)
    assert pool.tokens(4) == 1024
    pool.looked([slot(n, 1000, task=n, decoded=1) for n in range(4)], is_all_ours=True)
    assert pool.tokens(4) is not None
    assert pool.tokens(4) == 1024 + 11 * 256


def test_sequences_of_one_request_may_share_their_tokens_so_they_prove_nothing() -> None:
    pool = pool_of(4)
    pool.looked([slot(n, 900, task=n, decoded=1) for n in range(4)], is_all_ours=False)
    assert pool.tokens(4) == 1024


def test_after_a_failure_no_more_is_believed_than_one_slot_may_hold() -> None:
    pool = pool_of(4)
    full = [slot(n, 900, task=n) for n in range(4)]
    pool.looked(full, is_all_ours=True)
    pool.exceeded()
    pool.looked(full, is_all_ours=True)
    assert pool.tokens(4) == 1024


def test_a_server_that_was_restarted_is_seen_anew_and_shares_as_before() -> None:
    pool = pool_of(2)
    pool.looked([slot(0, 900, task=7), slot(1, 900, task=8)], is_all_ours=True)
    pool.exceeded()
    # Numbers of tasks begin again: nobody was told, but it was restarted.
    pool.looked([slot(0, 0, task=0), slot(1)], is_all_ours=True)
    assert pool.tokens(2) == 1024
    pool.sized(2, 1024)
    assert pool.tokens(2) == 1024


def test_a_slots_task_before_a_restart_is_not_taken_for_the_one_after_it() -> None:
    pool = pool_of(2)
    pool.looked([slot(0, 900, task=1), slot(1, 900, task=2)], is_all_ours=True)
    pool.looked([slot(0, 0, task=1), slot(1)], is_all_ours=True)
    assert pool.sharing is Sharing.SEPARATE


def test_with_other_slots_all_is_forgotten() -> None:
    pool = pool_of(2)
    pool.exceeded()
    pool.sized(2, 2048)
    assert pool.tokens(2) is None
    pool.sized(4, 1024)
    pool.looked([slot(n, 900, task=n) for n in range(4)], is_all_ours=True)
    pool.sized(4, 2048)
    assert pool.tokens(4) == 2048


ACTIONS = st.sampled_from(["run", "run", "end", "look", "look"])


@given(
    pool_tokens=st.integers(4, 16).map(lambda n: n * 256),
    steps=st.lists(st.tuples(ACTIONS, st.integers(0, 3), st.integers(1, 1024)), max_size=80),
    empties=st.booleans(),
)
def test_no_more_is_ever_told_than_a_server_has(
    pool_tokens: int, steps: list[tuple[str, int, int]], *, empties: bool
) -> None:
    """A server whose shared pool is at least one slot's context, and is never overfilled."""
    known = pool_of(4, 1024)
    held, tasks, running = [0] * 4, [-1] * 4, [False] * 4
    for number, (action, which, tokens) in enumerate(steps):
        if action == "end":
            running[which] = False
        elif action == "run" and not running[which]:
            for other in range(4):
                if other != which and not running[other] and (empties or sum(held) > pool_tokens):
                    held[other] = 0
            free = pool_tokens - sum(held) + held[which]
            held[which] = min(tokens, max(0, free))
            tasks[which], running[which] = number, True
        else:
            views = [
                slot(n, held[n], task=tasks[n] if tasks[n] >= 0 else None,
                     decoded=1 if running[n] else None)
                for n in range(4)
            ]  # fmt: skip
            known.looked(views, is_all_ours=True)
        told = known.tokens(4)
        assert told is None or 1024 <= told <= pool_tokens
        assert told is not None or pool_tokens >= 4096
