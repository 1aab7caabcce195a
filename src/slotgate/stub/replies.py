"""Which class writes the answer of which shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.stub.reply_events import MessagesReply, ResponsesReply
from slotgate.stub.reply_native import NativeReply
from slotgate.stub.reply_openai import ChatReply, CompletionReply
from slotgate.stub.shapes import Shape

if TYPE_CHECKING:
    from slotgate.stub.ask import Ask
    from slotgate.stub.reply import Reply

_KINDS: dict[Shape, type[Reply]] = {
    Shape.NATIVE: NativeReply,
    Shape.INFILL: NativeReply,
    Shape.COMPLETION: CompletionReply,
    Shape.CHAT: ChatReply,
    Shape.RESPONSES: ResponsesReply,
    Shape.MESSAGES: MessagesReply,
}


def make_reply(ask: Ask, *, id: str, model: str, created: int) -> Reply:
    return _KINDS[ask.shape](ask, id=id, model=model, created=created)
