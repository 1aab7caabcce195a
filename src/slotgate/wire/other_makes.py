"""A request as servers of other makes take it: vLLM, Ollama, TGI, LM Studio, transformers.

They speak OpenAI's API and nothing of llama-server's own.  Some refuse fields that they do not know
(422 `Unexpected fields in the request`), and most a model by another name than their own (404),
where llama-server answers to any name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from slotgate.wire.fields import encode_fields, parse_fields
from slotgate.wire.models import public_name
from slotgate.wire.routes import Shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.wire.models import ListedModel
    from slotgate.wire.request import Prepared


def adapted(shape: Shape, prepared: Prepared, listed: Sequence[ListedModel]) -> Prepared:
    """Return the request without what we added for llama-server, with the server's own model."""
    if shape is Shape.TRANSCRIPTION:
        return prepared  # a form
    body, model = prepared.body, model_for(prepared.model, listed)
    if model != prepared.model or prepared.added:
        fields = parse_fields(body)
        for name in prepared.added:
            fields.pop(name, None)
        if model is not None:
            fields["model"] = msgspec.Raw(msgspec.json.encode(model))
        body = encode_fields(fields)
    return replace(prepared, body=body, upstream_progress=False, has_end_mark=False)


def model_for(asked: str | None, listed: Sequence[ListedModel]) -> str | None:
    """Return the server's own name for the model that was asked for.

    What it does not know is its only model, if it has but one; else it is asked for as it was.
    """
    for model in listed:
        if asked in model.names:
            return asked
    for model in listed:
        if asked in [public_name(name) for name in model.names]:
            return model.id
    return listed[0].id if len(listed) == 1 else asked
