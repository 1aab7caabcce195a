"""Everything that the reader of a plan should know before relying on it, in plain words.

A warning has a stable code, and a message with this plan's own figures and what to do.  They come
in the order of the table below: what stops the plan first, then what costs memory, then what to
know of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.capacity import warnings_context as context
from slotgate.capacity import warnings_devices as devices
from slotgate.capacity import warnings_model as model
from slotgate.capacity.replan import Replan
from slotgate.capacity.warnings_builds import of_build

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.capacity.plan import Plan


@dataclass(frozen=True, slots=True)
class PlanWarning:
    """One thing to know; `code` is for programs and does not change."""

    code: str
    message: str


_CHECKS: tuple[tuple[str, Callable[[Replan], str | None]], ...] = (
    ("does-not-fit", devices.does_not_fit),
    ("overcommitted", context.overcommitted),
    ("partial-offload", devices.partial_offload),
    ("host-memory-short", devices.host_memory_short),
    ("compressed-unified", context.compressed_unified),
    ("old-latent-file", model.old_latent_file),
    ("without-flash-attention", context.without_flash),
    ("above-trained", context.above_trained),
    ("doubtful-training", context.doubtful_training),
    ("rounded-up", context.rounded_up),
    ("swa-full", context.windows_full),
    ("window-caches", context.window_caches),
    ("unified-saves", context.unified_saves),
    ("recurrent-state", context.recurrent_state),
    ("state-copies", context.state_copies),
    ("mtp-context", model.mtp_context),
    ("f16-copy", devices.f16_copy),
    ("host-memory", devices.host_memory),
    ("prompt-not-kept", devices.prompt_not_kept),
    ("batch-limits-slots", context.batch_limits_slots),
    ("cache-type-refused", model.refused_types),
    ("equal-cache-types", model.equal_types),
    ("t5-slots", model.t5_slots),
    ("no-context", context.no_context),
    ("unverified", model.unverified),
    ("catalog", model.of_the_catalog),
    ("catalog-unchecked", model.unchecked_shape),
)

# The codes of all warnings but those of a build, which are `build-` and the name of a change.
CODES = tuple(code for code, _ in _CHECKS)


def warnings_of(plan: Plan, *, build: int | None = None) -> tuple[PlanWarning, ...]:
    """All warnings that apply to a plan; with a build of llama.cpp also those that it brings."""
    what = Replan(plan)
    checked = ((code, check(what)) for code, check in _CHECKS)
    found = [PlanWarning(code, message) for code, message in checked if message]
    if build is not None:
        found += [PlanWarning(code, message) for code, message in of_build(what, build)]
    return tuple(found)
