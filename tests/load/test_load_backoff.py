"""A client comes back when the SDK comes back that it is called after."""

from __future__ import annotations

from random import Random

import anthropic
import httpx2
import openai
import pytest
from anthropic import _base_client as anthropic_client
from anthropic._models import FinalRequestOptions as AnthropicOptions
from hypothesis import given
from hypothesis import strategies as st
from openai import _base_client as openai_client
from openai._models import FinalRequestOptions as OpenAIOptions

from slotgate.load.backoff import ClientKind, Refusal, delay_seconds, read_refusal

OPENAI = openai.OpenAI(api_key="none", base_url="http://127.0.0.1:9")
ANTHROPIC = anthropic.Anthropic(api_key="none", base_url="http://127.0.0.1:9")


class SameChance:
    """Every throw gives the same."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


headers = st.fixed_dictionaries(
    {},
    optional={
        "retry-after": st.one_of(
            st.integers(-5, 200).map(str),
            st.floats(0, 300).map(str),
            st.sampled_from(["soon", "nan", "inf", "", "0", "60", "61", "120", "121"]),
        ),
        "retry-after-ms": st.one_of(
            st.integers(-100, 200_000).map(str), st.sampled_from(["x", "0", "60000", "nan"])
        ),
        "x-should-retry": st.sampled_from(["true", "false", "maybe"]),
    },
)
statuses = st.sampled_from([400, 401, 404, 408, 409, 413, 429, 500, 502, 503, 504, 529])


@given(headers=headers, status=statuses, attempts=st.integers(1, 3), chance=st.floats(0, 0.99))
def test_it_does_what_the_installed_openai_package_does(
    headers: dict[str, str], status: int, attempts: int, chance: float
) -> None:
    options = OpenAIOptions(method="post", url="/")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_client, "random", lambda: chance)
        theirs = _answer(OPENAI, options, headers, status, attempts)
    ours = delay_seconds(
        ClientKind.OPENAI, attempts, read_refusal(status, headers), SameChance(chance)
    )
    assert ours == (None if theirs is None else pytest.approx(theirs))


@given(headers=headers, status=statuses, attempts=st.integers(1, 3), chance=st.floats(0, 0.99))
def test_it_does_what_the_installed_anthropic_package_does(
    headers: dict[str, str], status: int, attempts: int, chance: float
) -> None:
    options = AnthropicOptions(method="post", url="/")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anthropic_client, "random", lambda: chance)
        theirs = _answer(ANTHROPIC, options, headers, status, attempts)
    ours = delay_seconds(
        ClientKind.ANTHROPIC, attempts, read_refusal(status, headers), SameChance(chance)
    )
    assert ours == (None if theirs is None else pytest.approx(theirs))


def _answer(
    client: openai.OpenAI | anthropic.Anthropic,
    options: OpenAIOptions | AnthropicOptions,
    headers: dict[str, str],
    status: int,
    attempts: int,
) -> float | None:
    response = httpx2.Response(status, headers=headers)
    remaining = client.max_retries - (attempts - 1)
    if remaining <= 0 or not client._should_retry(response):
        return None
    delay: float = client._calculate_retry_timeout(remaining, options, response.headers)  # type: ignore[arg-type]
    return delay


def test_an_old_client_ignores_a_delay_above_a_minute_and_is_back_within_half_a_second() -> None:
    delay = delay_seconds(ClientKind.OPENAI_OLD, 1, Refusal(429, 61.0), Random(1))
    assert delay is not None
    assert 0.375 <= delay <= 0.5
    assert delay_seconds(ClientKind.OPENAI_OLD, 1, Refusal(429, 60.0), Random(1)) == 60.0


def test_a_node_client_comes_back_at_once_when_told_so() -> None:
    assert delay_seconds(ClientKind.NODE, 1, Refusal(429, 0.0), Random(1)) == 0.0


def test_the_ai_sdk_doubles_two_seconds_without_chance_and_believes_below_a_minute() -> None:
    kind = ClientKind.VERCEL
    assert delay_seconds(kind, 1, Refusal(503), Random(1)) == 2.0
    assert delay_seconds(kind, 2, Refusal(503), Random(1)) == 4.0
    assert delay_seconds(kind, 1, Refusal(429, 59.0), Random(1)) == 59.0
    assert delay_seconds(kind, 1, Refusal(429, 60.0), Random(1)) == 2.0


@pytest.mark.parametrize("kind", ClientKind)
def test_nobody_comes_back_a_third_time(kind: ClientKind) -> None:
    assert delay_seconds(kind, 3, Refusal(429, 1.0), Random(1)) is None


@pytest.mark.parametrize("kind", [each for each in ClientKind if each is not ClientKind.NONE])
def test_a_broken_connection_is_tried_again_and_a_bad_request_is_not(kind: ClientKind) -> None:
    assert delay_seconds(kind, 1, Refusal(0), Random(1)) is not None
    assert delay_seconds(kind, 1, Refusal(400), Random(1)) is None


def test_a_date_counts_from_the_date_of_the_answer() -> None:
    refusal = read_refusal(
        429,
        {
            "retry-after": "Wed, 21 Oct 2015 07:28:30 GMT",
            "date": "Wed, 21 Oct 2015 07:28:00 GMT",
        },
    )
    assert refusal.retry_after == 30.0
