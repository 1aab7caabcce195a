"""The operator's tables: their columns, declared once for the API, the command line and the docs.

No column holds anything that a client or a model said, nor a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name in JSON, its title in a terminal ("" leaves it out), its meaning."""

    name: str
    title: str
    meaning: str


POOLS = (
    Column("model", "MODEL", "the model's name; empty where all backends serve one"),
    Column("backends", "BACKENDS", "how many backends serve it"),
    Column("ready", "READY", "how many of them can be given work now"),
    Column("slots", "SLOTS", "slots of all of them"),
    Column("idle", "IDLE", "slots that may be handed out now"),
    Column("running", "RUNNING", "requests that run"),
    Column("settling", "SETTLING", "requests that were closed, whose slots are not known free"),
    Column("outside", "OUTSIDE", "slots busy with work that is not ours"),
    Column("waiting", "WAITING", "requests that wait"),
    Column("oldest_seconds", "OLDEST", "how long the first of them to come has waited"),
)
BACKENDS = (
    Column("name", "NAME", "as in the configuration"),
    Column("model", "MODEL", "the name that clients ask for, if it has one of its own"),
    Column("kind", "KIND", "`server` that already runs, `engine` of ours, or a router's `model`"),
    Column("state", "STATE", "what it can be used for now"),
    Column("reported", "REPORTED", "what it says of itself"),
    Column("hold", "HOLD", "what the operator said: `paused`, `draining` or `down`; or `removed`"),
    Column("slots", "SLOTS", "its slots"),
    Column("limit", "LIMIT", "how many of them are worth using"),
    Column("idle", "IDLE", "slots that may be handed out now"),
    Column("running", "RUNNING", "requests that run there"),
    Column("settling", "SETTLING", "requests that were closed, whose slots are not known free"),
    Column("outside", "OUTSIDE", "slots busy with work that is not ours"),
    Column("loaded", "LOADED", "whether its router holds the model now; empty for all others"),
    Column("awaits_turn", "", "whether it waits until it is its turn on its router"),
    Column("ctx_per_slot", "CONTEXT", "tokens that a slot holds"),
    Column("kv_pool_tokens", "", "tokens that its slots share"),
    Column("expected_seconds", "", "how long newcomers still wait for it, as it was just there"),
    Column("why", "WHY", "why it is in its state"),
)
TICKETS = (
    Column("id", "TICKET", "as in the log"),
    Column("state", "STATE", "`waiting` or `running`"),
    Column("tenant", "TENANT", "whose it is"),
    Column("class", "CLASS", "its priority class"),
    Column("model", "MODEL", "the model that it is for"),
    Column("backend", "BACKEND", "where it runs"),
    Column("position", "POSITION", "its place among those that wait for its model"),
    Column("age_seconds", "AGE", "since it came"),
    Column("deadline_seconds", "DEADLINE", "until it is refused, if it still waits then"),
    Column("predicted_wait_seconds", "WAIT", "how long it will probably still wait"),
    Column("width", "WIDTH", "slots that it takes at once"),
    Column("input_tokens", "INPUT", "the length of its prompt, as far as it is known"),
    Column("max_output_tokens", "OUTPUT", "the most that it asks for in each sequence"),
    Column("body_bytes", "BYTES", "the memory that its body takes"),
)
LEASES = (
    Column("id", "LEASE", "a ticket's id and the number of the grant"),
    Column("ticket", "TICKET", "whose right it is"),
    Column("tenant", "TENANT", "whose ticket it is"),
    Column("backend", "BACKEND", "where its slots are"),
    Column("state", "STATE", "`running` or `settling`"),
    Column("age_seconds", "AGE", "since it was granted"),
    Column(
        "free_in_seconds", "FREE IN", "until its slots count as free, if nothing says so before"
    ),
    Column("width", "WIDTH", "its slots"),
    Column("input_tokens", "INPUT", "prompt tokens, as the backend counted them"),
    Column("cached_tokens", "CACHED", "those of them that were in the backend's cache"),
    Column("output_tokens", "OUTPUT", "tokens written so far"),
)
TENANTS = (
    Column("name", "TENANT", "as in the configuration; `default` where there are none"),
    Column("class", "CLASS", "the class of its new requests"),
    Column("weight", "WEIGHT", "its share of a busy server, compared with others'"),
    Column("in_flight", "IN FLIGHT", "leases that it has, those that settle included"),
    Column("max_in_flight", "MAX", "the most that it may have"),
    Column("waiting", "WAITING", "requests of it that wait"),
    Column("max_waiting", "MAX", "the most that may wait"),
    Column("is_configured", "CONFIGURED", "whether it is (still) in the configuration"),
)

TABLES: Mapping[str, tuple[Column, ...]] = {
    "pools": POOLS,
    "backends": BACKENDS,
    "tickets": TICKETS,
    "leases": LEASES,
    "tenants": TENANTS,
}
