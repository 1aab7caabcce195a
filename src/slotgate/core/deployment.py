"""One model on one backend, as the core is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """What a deployment can be used for now."""

    STARTING = "starting"  # not heard of yet: wait for it
    LOADING = "loading"  # said that it loads: wait for it
    READY = "ready"
    DEGRADED = "degraded"  # on trial: it has failed, and may show that it serves again
    PAUSED = "paused"  # by the operator: newcomers wait
    DRAINING = "draining"  # no new leases; those that run may end
    DOWN = "down"  # unreachable or disabled


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentReport:
    """What the shell last learned of a deployment.

    `slots` is what the backend itself says it has; `outside` how many of them are busy with work
    that is not ours; `ctx_per_slot` is in tokens, None where unknown.  `kv_pool_tokens` is the KV
    cache that all its slots share, in tokens; None: each slot has its own.  A deployment that was
    ready is expected back for `restart_grace` seconds after it went away.  `is_ejected`: it is down
    only because requests failed there, and is used if nothing else serves its model.
    """

    id: str
    model: str
    slots: int
    state: State
    ctx_per_slot: int | None = None
    outside: int = 0
    kv_pool_tokens: int | None = None
    restart_grace: float = 0.0
    is_ejected: bool = False
