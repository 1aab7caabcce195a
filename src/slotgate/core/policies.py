"""The rules that may be exchanged, and their names in the configuration.

Each name stands for one class behind a Protocol.  To add a policy: write the class, enter it here,
and it is in the contract tests, the configuration and its reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from slotgate.core.admission import AdmissionPolicy, DeadlineAdmission, ExpiryAdmission
from slotgate.core.calendar import AdaptiveRetry, ConstantRetry, RetryPolicy, TenantCalendars
from slotgate.core.fairness import (
    DeficitRoundRobin,
    FairPolicy,
    LeastRecentService,
    NoFairness,
    RoundRobin,
    Vtc,
)
from slotgate.core.kv_budget import (
    ChanceBudget,
    KvBudget,
    NoBudget,
    QuantileBudget,
    WholeBudget,
)
from slotgate.core.lengths import Lengths
from slotgate.core.limit import AimdLimit, ConcurrencyPolicy, FixedLimit, GapTableLimit
from slotgate.core.order import EarliestDeadline, Fifo, OrderPolicy, ShortestFirst
from slotgate.core.placement import MostHeadroom, Placement, PredictedFinish

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


FAIRNESS: Mapping[str, Callable[[], FairPolicy]] = {
    "vtc": Vtc,
    "drr": DeficitRoundRobin,
    "round_robin": RoundRobin,
    "las": LeastRecentService,
    "none": NoFairness,
}
ORDER: Mapping[str, Callable[[], OrderPolicy]] = {
    "fifo": Fifo,
    "edf": EarliestDeadline,
    "sjf": ShortestFirst,
}
ADMISSION: Mapping[str, Callable[[], AdmissionPolicy]] = {
    "deadline": DeadlineAdmission,
    "expiry": ExpiryAdmission,
}
RETRY_AFTER: Mapping[str, Callable[..., RetryPolicy]] = {
    "calendar": TenantCalendars,
    "adaptive": AdaptiveRetry,
    "constant": ConstantRetry,
}
KV: Mapping[str, Callable[..., KvBudget]] = {
    "chance": ChanceBudget,
    "quantile": QuantileBudget,
    "max": WholeBudget,
    "off": NoBudget,
}
CONCURRENCY: Mapping[str, Callable[..., ConcurrencyPolicy]] = {
    "gap_table": GapTableLimit,
    "fixed": FixedLimit,
    "aimd": AimdLimit,
}
PLACEMENT: Mapping[str, Callable[[], Placement]] = {
    "predicted_finish": PredictedFinish,
    "headroom": MostHeadroom,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Makers of the rules: one of each for each model, of `concurrency` for each deployment."""

    fairness: Callable[[], FairPolicy] = Vtc
    order: Callable[[], OrderPolicy] = Fifo
    admission: Callable[[], AdmissionPolicy] = DeadlineAdmission
    retry_after: Callable[..., RetryPolicy] = TenantCalendars
    kv_budget: Callable[[], KvBudget] = ChanceBudget
    concurrency: Callable[[], ConcurrencyPolicy] = GapTableLimit
    placement: Callable[[], Placement] = PredictedFinish
    lengths: Callable[[], Lengths] = Lengths

    @classmethod
    def named(  # noqa: PLR0913 - one name for each kind of rule
        cls,
        *,
        fairness: str = "vtc",
        order: str = "fifo",
        admission: str = "deadline",
        retry_after: str = "calendar",
        kv: str = "chance",
        concurrency: str = "gap_table",
        placement: str = "predicted_finish",
        tpot_target: float | None = None,
        kv_confidence: float = 1.0,
        kv_watermark: float = 0.03,
    ) -> Policies:
        """Return the policies of those names.

        `tpot_target` is the longest gap between tokens in seconds (None: four times that of a lone
        sequence), `kv_confidence` the z of the chance constraint, `kv_watermark` the part of a
        shared KV cache that is never promised.  Raises ValueError for a name that there is not, and
        for `sjf` without fairness: shortest first over all tenants starves those with long answers.
        """
        if order == "sjf" and fairness == "none":
            raise ValueError("order 'sjf' needs fairness among tenants, which is 'none'")
        budget_options: dict[str, Any] = {} if kv == "off" else {"watermark": kv_watermark}
        if kv == "chance":
            budget_options["z"] = kv_confidence
        limit_options = {} if concurrency == "fixed" else {"target_seconds": tpot_target}
        return cls(
            fairness=_of(FAIRNESS, "fairness", fairness),
            order=_of(ORDER, "order", order),
            admission=_of(ADMISSION, "admission", admission),
            retry_after=_of(RETRY_AFTER, "retry_after", retry_after),
            kv_budget=partial(_of(KV, "kv", kv), **budget_options),
            concurrency=partial(_of(CONCURRENCY, "concurrency", concurrency), **limit_options),
            placement=_of(PLACEMENT, "placement", placement),
        )


def is_same(maker: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether two makers make the same rule, with the same options."""
    return _parts(maker) == _parts(other)


def _parts(maker: Callable[..., Any]) -> tuple[Any, ...]:
    return (maker.func, maker.keywords) if isinstance(maker, partial) else (maker, {})


def _of(table: Mapping[str, Callable[..., Any]], what: str, name: str) -> Callable[..., Any]:
    if name not in table:
        raise ValueError(f"{what} {name!r} is none of {', '.join(table)}")
    return table[name]
