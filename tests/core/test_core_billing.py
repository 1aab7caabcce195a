"""What a tenant is charged, when, and whom."""

from __future__ import annotations

from math import log2

import pytest

from slotgate.core.billing import Costs
from slotgate.core.fairness import Vtc
from slotgate.core.limits import ClassLimits, Limits, TenantCaps
from slotgate.core.policies import Policies
from slotgate.testing import Script, ready


def key(script: Script, tenant: str = "default", model: str = "m") -> float:
    return script.scheduler._fleet.models[model].queue.key(tenant)


# Costs.


def test_an_output_token_costs_ten_until_both_speeds_are_known() -> None:
    costs = Costs()
    assert costs.output == 10
    costs.wrote(tokens=100, seconds=1.0, prefill=None)
    assert costs.output == 10


def test_an_output_token_costs_the_prompt_tokens_that_could_have_been_read() -> None:
    costs = Costs()
    costs.wrote(tokens=100, seconds=0.5, prefill=5000.0)
    # 5 ms of the machine for each, in which 25 tokens are read.
    assert costs.output == pytest.approx(25)


def test_what_was_written_long_ago_fades() -> None:
    costs = Costs()
    for _ in range(1000):
        costs.wrote(tokens=100, seconds=1.0, prefill=5000.0)
    assert costs.output == pytest.approx(50)
    for _ in range(1000):
        costs.wrote(tokens=100, seconds=0.2, prefill=5000.0)
    assert costs.output == pytest.approx(10, rel=0.05)
    costs.wrote(tokens=50_000, seconds=500.0, prefill=5000.0)
    assert costs.output == pytest.approx(50)


@pytest.mark.parametrize(("seconds", "cost"), [(1e-9, 1.0), (1e3, 200.0)])
def test_the_cost_has_bounds(seconds: float, cost: float) -> None:
    costs = Costs()
    costs.wrote(tokens=10, seconds=seconds, prefill=5000.0)
    assert costs.output == cost


# Charges.


def test_a_prompt_is_charged_at_the_grant_and_output_as_it_comes() -> None:
    script = Script(ready("left")).run("0 submit a tokens=40 class=x -> granted a on left")
    assert key(script) == 40
    script.run("1 charge a output=3")
    script.run("1 charge a output=2")
    assert key(script) == 40 + 50
    script.run("2 leave a")
    assert key(script) == 90


def test_a_prompt_is_corrected_once_it_was_counted() -> None:
    script = Script(ready("left")).run("0 submit a tokens=40 class=x -> granted a on left")
    script.run("1 charge a input=100")
    assert key(script) == 100
    script.run("1 charge a input=70 cached=40 output=1")
    assert key(script) == 30 + 10


def test_what_came_from_the_cache_is_refunded() -> None:
    script = Script(ready("left")).run("0 submit a tokens=40 class=x -> granted a on left")
    script.run("1 charge a input=41 cached=30 output=1")
    assert key(script) == 11 + 10


def test_a_cache_that_is_said_to_have_had_more_than_the_prompt_earns_nothing() -> None:
    script = Script(ready("left")).run("0 submit a tokens=40 class=x -> granted a on left")
    script.run("1 charge a input=10 cached=30")
    assert key(script) == 0


def test_a_charge_of_nothing_charges_nothing() -> None:
    script = Script(ready("left")).run("""
        0  submit a class=x  -> granted a on left
        1  charge a
    """)
    assert key(script) == 0


def test_service_is_divided_by_the_weights_of_tenant_and_class() -> None:
    limits = Limits(
        tenants={"heavy": TenantCaps(weight=2.0)},
        classes={"x": ClassLimits(budget=30.0, weight=5.0)},
    )
    script = Script(ready("left", slots=2), limits=limits).run("""
        0  submit a tokens=40 class=x tenant=heavy  -> granted a on left
        0  charge a output=6
    """)
    assert key(script, "heavy") == (40 + 60) / 10


def test_a_charge_goes_to_whoever_asked() -> None:
    script = Script(ready("left", slots=2)).run("""
        0  submit a tokens=40 class=x tenant=one  -> granted a on left
        0  submit b tokens=10 class=x tenant=two  -> granted b on left
        1  charge a output=1
    """)
    # The second was lifted to the first one's forty.
    assert key(script, "one") == 50
    assert key(script, "two") == 50
    script.run("1 charge b output=2")
    assert (key(script, "one"), key(script, "two")) == (50, 70)


def test_a_prompt_that_was_not_answered_is_refunded() -> None:
    script = Script(ready("left")).run("""
        0  submit a tokens=40 class=x  -> granted a on left
        1  pause left
        1  requeue a
    """)
    assert key(script) == 0


def test_a_refund_is_of_what_was_charged_and_comes_once() -> None:
    script = Script(ready("left", slots=3)).run("""
        0  submit a tokens=40 class=x  -> granted a on left
        0  charge a input=60 cached=50
        1  requeue a free              -> granted a on left
    """)
    assert key(script) == 40
    script.run("2 charge a output=1")
    script.run("2 requeue a free -> granted a on left")
    assert key(script) == 40 + 10 + 40, "what was written was had"


def test_a_refund_lets_its_tenant_go_first() -> None:
    """The queue finds a key again that has become smaller."""
    script = Script(ready("left", slots=2)).run("""
        0  submit a tokens=400 tenant=one class=x  -> granted a on left
        0  submit b tokens=1 tenant=two class=x    -> granted b on left
        0  submit c tenant=one class=x
        0  submit d tenant=two class=x
        0  charge b output=10
        0  charge a output=20
    """)
    assert key(script, "one") > key(script, "two")
    script.run("""
        1  charge a input=500 cached=400
        2  leave b                                 -> granted c on left
    """)


@pytest.mark.parametrize("order", ["left", "right"])
def test_service_on_a_deployment_that_serves_another_model_now_is_its_models(order: str) -> None:
    """What runs there was asked of the model that it served then."""
    script = Script(ready("left"), ready("right"))
    script.run(f"""
        0  submit a tokens=40 class=x          -> granted a on left
        0  submit b tokens=40 class=x          -> granted b on right
        1  deployment {order} model=n
        2  charge a output=5
        2  charge b output=5
    """)
    assert key(script) == 80 + 100
    assert key(script, model="n") == 0


def test_a_model_that_is_gone_is_charged_nothing() -> None:
    Script(ready("left")).run("""
        0  submit a tokens=40   -> granted a on left
        1  remove left
        2  charge a output=5
        3  timed a prompt=40 prompt_seconds=1 output=5 output_seconds=1
        4  leave a
        # The backend's word may come too late.
        5  timed a prompt=40 prompt_seconds=1 output=5 output_seconds=1
    """)


def test_a_refund_of_a_removed_deployment_is_none() -> None:
    """Its model may have been made anew, and knows of no charge."""
    script = Script(ready("left")).run("""
        0  submit a tokens=40 class=x within=90    -> granted a on left
        1  remove left
        2  deployment right state=starting
        3  requeue a
    """)
    assert key(script) == 0
    script.run("4 deployment right state=ready -> granted a on right")
    assert key(script) == 40


def test_wide_requests_are_charged_for_all_their_sequences() -> None:
    script = Script(ready("left", slots=4)).run("""
        0  submit a tokens=40 width=4 class=x  -> granted a on left
        1  charge a output=8
    """)
    assert key(script) == 40 + 80


def test_by_round_robin_a_grant_is_what_counts() -> None:
    script = Script(ready("left"), policies=Policies.named(fairness="round_robin")).run("""
        0  submit a tokens=40 class=x  -> granted a on left
        0  charge a output=8
        1  requeue a free              -> granted a on left
    """)
    assert key(script) == 2


def test_the_rest_of_a_broken_answer_pays_for_what_is_written_and_not_for_its_prompt_again() -> (
    None
):
    script = Script(ready("left"), ready("right")).run("""
        0  submit a tokens=40 class=x          -> granted a on left
        1  charge a output=5
        2  requeue a rest tokens=45 class=x    -> granted a on right
        3  charge a output=1
        4  charge a input=47 cached=0 output=2
    """)
    assert key(script) == 40 + 50 + 30


def test_where_service_fades_a_refund_is_of_the_prompt_as_it_was_charged() -> None:
    script = Script(ready("left", slots=3), policies=Policies.named(fairness="las")).run("""
        0   submit a tokens=40 class=x within=900  -> granted a on left
        0   submit b tokens=30 class=x within=900  -> granted b on left
        0   submit c tokens=60 class=x within=900  -> granted c on left
        60  pause left
        60  charge a input=40 cached=40
        60  requeue b free
    """)
    assert key(script) == pytest.approx(log2(60))


def test_whoever_has_had_slots_is_let_go_with_the_last_of_them() -> None:
    script = Script(ready("left", slots=3)).run("""
        0  submit a class=x tenant=one  -> granted a on left
        0  submit b class=x tenant=one  -> granted b on left
        1  leave a
        2  leave a
    """)
    fairness = script.scheduler._fleet.models["m"].queue._fairness
    assert isinstance(fairness, Vtc)
    assert fairness._running == {"one": 1}
    script.run("""
        3  requeue b                    -> granted b on left
        4  leave b abandoned
    """)
    assert not fairness._running
