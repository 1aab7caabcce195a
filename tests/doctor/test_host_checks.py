"""Whether kept prompts fit into the memory of the host."""

from __future__ import annotations

import pytest

from slotgate.doctor.evidence import Evidence
from slotgate.doctor.finding import Severity
from slotgate.doctor.flags import Flags
from slotgate.wire.llama_cpp import Props
from slotgate.wire.models import ListedModel
from tests.doctor.seen import ERROR, NOTE, OK, WARNING, only, props, seen, severity, stated

GiB = 1 << 30


@pytest.mark.parametrize(
    ("flags", "gib", "how"),
    [
        (None, 32, OK),
        (None, 12, OK),  # the model of 4 GiB and the prompts
        (None, 11, NOTE),
        (None, 7, WARNING),
        ("--cache-ram 8192", 7, ERROR),
        ("--cache-ram 8192", 8, NOTE),
        ("--cache-ram 2048", 7, OK),
        ("--cache-ram 0", 1, NOTE),
        ("--cache-ram -1", 512, WARNING),
        ("-np 4", 7, WARNING),
    ],
)
def test_kept_prompts_are_compared_with_the_host(
    flags: str | None, gib: int, how: Severity
) -> None:
    evidence = seen(stated=stated(flags, host_bytes=gib * GiB))
    assert severity("prompt-cache", evidence) is how
    assert severity("prompt-cache", seen(stated=stated(flags), local_bytes=gib * GiB)) is how


def test_it_says_whose_memory_and_whose_limit_that_is() -> None:
    told = only("prompt-cache", seen(stated=stated("-cram 100", host_bytes=64 * GiB)))
    assert told.known_by == "--cache-ram 100, of the flags you gave; the memory you gave with " + (
        "--host-memory"
    )
    own = only("prompt-cache", seen(local_bytes=64 * GiB))
    assert own.known_by == (
        "llama-server's default, --cache-ram 8192; the memory of this machine, on which it was "
        "asked"
    )


def test_what_is_advised_is_a_quarter_of_the_host_and_no_more_than_the_default() -> None:
    assert "--cache-ram 1792" in only("prompt-cache", seen(local_bytes=7 * GiB)).mend
    boundless = seen(stated=stated("-cram -1"), local_bytes=64 * GiB)
    assert "--cache-ram 8192" in only("prompt-cache", boundless).mend
    assert "--cache-ram 8192" in only("prompt-cache", seen(stated=stated("-cram -1"))).mend


def test_where_the_host_is_not_known_nothing_is_said() -> None:
    assert severity("prompt-cache", seen()) is None


def test_builds_that_keep_no_prompts_and_other_makes_are_left_alone() -> None:
    old = seen(props=props(build_info="b6000-x"), local_bytes=GiB)
    assert severity("prompt-cache", old) is None
    assert severity("prompt-cache", seen(props=None, local_bytes=GiB)) is None
    unknown = seen(props=Props(slots=1), local_bytes=GiB)
    assert severity("prompt-cache", unknown) is WARNING


@pytest.mark.parametrize("models", [(), (ListedModel(id="m"),)], ids=["none", "no size"])
def test_a_model_of_unknown_size_takes_none(models: tuple[ListedModel, ...]) -> None:
    assert severity("prompt-cache", seen(models=models, local_bytes=9 * GiB)) is OK


# A router's models.


def router_of(*models: ListedModel, gib: int = 12, **more: object) -> Evidence:
    return seen(props=Props(role="router"), models=models, looks=(), local_bytes=gib * GiB, **more)


def loaded(name: str, *arguments: str, status: str = "loaded") -> ListedModel:
    return ListedModel(id=name, arguments=arguments, status=status)


def test_what_the_models_of_a_router_may_keep_is_added_up() -> None:
    finding = only("prompt-caches", router_of(loaded("a"), loaded("b", "--cache-ram", "6000")))
    assert finding.severity is WARNING
    assert finding.known_by.startswith("GET /v1/models: a, b, --cache-ram 8192, 6000; ")
    assert finding.mend[0].startswith("--cache-ram 1536 of the router")


@pytest.mark.parametrize(
    "evidence",
    [
        router_of(loaded("a"), loaded("b"), gib=16),
        router_of(loaded("a")),
        router_of(loaded("a"), loaded("b", status="sleeping")),
        router_of(loaded("a"), loaded("b"), gib=7),
        router_of(loaded("a"), loaded("b", "--cache-ram", "-1")),
        router_of(loaded("a"), loaded("b"), read_flags=Flags(cache_ram_mib=100)),
        seen(models=(loaded("a"), loaded("b")), local_bytes=12 * GiB),
    ],
    ids=["fits", "one", "sleeps", "each too much", "boundless", "router says", "no router"],
)
def test_what_is_enough_or_told_of_each_is_not_added_up(evidence: Evidence) -> None:
    assert severity("prompt-caches", evidence) is None


def test_words_of_a_model_that_make_no_sense_count_as_none() -> None:
    assert severity("prompt-caches", router_of(loaded("a", "-cram"), loaded("b"))) is WARNING
