"""Servers by their pace, what they bear, and what is looked at while they are rehearsed."""

from __future__ import annotations

import pytest

from slotgate.core.fairness import Vtc
from slotgate.errors import ConfigError
from slotgate.load.capacity import MACHINES
from slotgate.load.lengths import CLASSES
from slotgate.sim.metering import Meter
from slotgate.sim.policies import POLICIES, make_policy
from slotgate.sim.setting import Servers, faster, parse_pace
from slotgate.sim.watching import Leads, watched
from slotgate.slotsim import ServerSpec
from tests.sim.scenes import arrival, gateway, play


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_a_pace_by_name_bears_what_the_load_generator_takes_it_to_bear(
    name: str, kind: object
) -> None:
    servers = Servers(ServerSpec(slots=8, ctx=100, pace=parse_pace(name, 8)), 1)
    assert servers.cost(kind) == pytest.approx(MACHINES[name](8).cost(kind))  # type: ignore[arg-type]


def test_several_servers_bear_several_times_as_much() -> None:
    spec = ServerSpec(slots=8, ctx=100, pace=parse_pace("10,1,1000", 8))
    arrivals = [arrival(at, read=100, write=50) for at in range(10)]
    # 0.1 s to read, and 50 steps of 18 ms that eight share.
    assert Servers(spec, 1).load_of(arrivals, 10.0) == pytest.approx(0.1 + 50 * 0.018 / 8)
    assert Servers(spec, 4).load_of(arrivals, 10.0) == pytest.approx((0.1 + 50 * 0.018 / 8) / 4)
    assert [each.at for each in faster(arrivals, 2.0)] == [at / 2 for at in range(10)]


def test_an_unknown_policy_is_said_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="no policy is called 'x'; there are slotgate, bare"):
        make_policy("x", gateway().dice, 1.0)
    assert all(policy.help for policy in POLICIES.values())


def test_the_scheduler_s_work_is_counted_and_timed() -> None:
    ticks = iter(range(100))
    meter = Meter(lambda: float(next(ticks)))
    meter.call(list)
    meter.call(list)
    assert (meter.events, meter.seconds) == (2, 2.0)
    # A deployment, a submit, two charges (the first token, the rest), the prompt, the times, leave.
    assert play(gateway(), arrival(0.0)).core_events == 7


def test_a_lead_counts_only_while_both_wait() -> None:
    leads = Leads()
    policy = watched(Vtc, leads)()
    policy.arrive("a")
    policy.charge("a", 50.0, 0.0)  # alone: no lead
    policy.arrive("b")
    assert policy.key("b") == policy.key("a") == 50.0  # lifted: it does as it would unwatched
    policy.charge("a", 10.0, 1.0)
    policy.charge("b", 4.0, 1.0)
    policy.charge("b", 9.0, 2.0)
    assert (leads.widest, leads.longest) == (13.0, 23.0)
    policy.depart("b")
    policy.charge("a", 500.0, 3.0)
    assert (leads.widest, leads.longest) == (13.0, 23.0)
