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
class Residence:
    """Where a model lives that may have to share its place: a router, by its name.

    That holds `room` of its models at once (0: all of them); `is_loaded` says whether this one is
    there now.
    """

    router: str
    room: int
    is_loaded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentReport:
    """What the shell last learned of a deployment.

    `slots` is what the backend itself says it has; `outside` how many of them are busy with work
    that is not ours; `ctx_per_slot` is in tokens, None where unknown.  `kv_pool_tokens` is the KV
    cache that all its slots share, in tokens; None: each slot has its own.  A deployment that was
    ready is expected back for `restart_grace` seconds after it went away.  `is_ejected`: it is down
    only because requests failed there, and is used if nothing else serves its model.  `residence`
    is set for a model of a router.
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
    residence: Residence | None = None
