"""The answer of `slotgate plan --json`: one document, sizes in bytes, lengths in tokens."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from slotgate.capacity import LLAMA_CPP_BUILD
from slotgate.capacity.table import SLOTS

if TYPE_CHECKING:
    from slotgate.backends.plan_server import RunningServer
    from slotgate.capacity.host_costs import HostCosts
    from slotgate.capacity.model import Model
    from slotgate.capacity.outcomes import Remedy
    from slotgate.capacity.plan import Plan
    from slotgate.capacity.usage import DeviceUse
    from slotgate.cli.plan_answer import Answer


def document(answer: Answer) -> dict[str, Any]:
    """Return what is printed; None where something was not asked or is not known."""
    plan, request = answer.plan, answer.request
    return {
        "fits": plan.fits,
        "slots": plan.slots,
        "ctx_per_slot": plan.ctx_per_slot,
        "n_ctx": plan.usage.memory.n_ctx,
        **_settings(plan),
        **_totals(plan),
        "parts": dict(plan.usage.memory.parts),
        "compute_parts": dict(plan.usage.compute.parts),
        "devices": [_device(use) for use in plan.usage.devices],
        "host": _host(plan.host),
        "command": list(answer.command),
        "command_line": shlex.join(answer.command),
        "would_fit": [{"slots": size.slots, "ctx_per_slot": size.tokens} for size in answer.room],
        "concurrency": request
        and {"request_tokens": request.tokens, "requests": request.at_once, "most": request.most},
        "table": _table(plan),
        "warnings": [{"code": one.code, "message": one.message} for one in answer.warnings],
        "remedies": [_remedy(one) for one in answer.remedies],
        "notes": [*answer.notes, *plan.devices.notes],
        "explanation": list(answer.arithmetic),
        "server": answer.server and _server(answer.server),
        "model": _model(plan.model),
        "llama_cpp_build": LLAMA_CPP_BUILD,
    }


def _settings(plan: Plan) -> dict[str, Any]:
    settings = plan.usage.settings
    return {
        "kv_unified": settings.unified,
        "cache_type_k": settings.type_k,
        "cache_type_v": settings.type_v,
        "n_gpu_layers": plan.usage.placement.n_gpu_layers,
    }


def _totals(plan: Plan) -> dict[str, int]:
    usage = plan.usage
    return {
        "context_bytes": usage.context_bytes,
        "weights_bytes": usage.weights.total,
        "compute_bytes": usage.compute.total,
        "compute_planned_bytes": sum(use.compute for use in usage.devices),
        "overhead_bytes": sum(use.device.overhead_bytes for use in usage.devices if use.device),
        "bytes_per_token": plan.bytes_per_token,
        "bytes_per_slot": plan.bytes_per_slot,
    }


def _device(use: DeviceUse) -> dict[str, Any]:
    device = use.device
    return {
        "name": use.name,
        "kind": device and str(device.kind),
        "total_bytes": device and device.total_bytes,
        "free_bytes": device and device.free_bytes,
        "overhead_bytes": device and device.overhead_bytes,
        "reserved_bytes": device and device.reserved_bytes,
        "weights_bytes": use.weights,
        "context_bytes": use.context,
        "compute_planned_bytes": use.compute,
        "left_bytes": use.left,
    }


def _host(host: HostCosts) -> dict[str, Any]:
    return {
        "cache_ram_bytes": host.cache_ram,
        "checkpoint_bytes": host.checkpoint,
        "checkpoints_per_slot": host.checkpoints,
        "checkpoints_bytes": host.all_checkpoints,
        "prompt_bytes": host.prompt,
        "total_bytes": host.total,
        "free_bytes": host.free,
    }


def _table(plan: Plan) -> dict[str, Any]:
    rows = [
        {"cache_type": row.cache_type, "ctx_per_slot": list(row.tokens), "refusal": row.refusal}
        for row in plan.table
    ]
    return {"slots": list(SLOTS), "rows": rows}


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "code": remedy.code,
        "question": remedy.question,
        "verdict": str(remedy.verdict),
        "answer": remedy.answer,
        "before": asdict(remedy.before),
        "after": [asdict(outcome) for outcome in remedy.after],
    }


def _server(server: RunningServer) -> dict[str, Any]:
    return {
        "url": server.url,
        "slots": server.slots,
        "ctx_per_slot": server.ctx_per_slot,
        "model_path": server.model_path,
        "model_alias": server.model_alias,
        "build": server.build,
    }


def _model(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "source": model.source,
        "architecture": model.shape.row.name,
        "verified": model.is_verified,
        "from_file": model.header is not None,
        "n_ctx_train": model.shape.n_ctx_train,
        "layers": model.shape.layers.all,
    }
