"""A backend that costs almost nothing: llama-server's answers, said at once.

`python -m bench.raw_backend PORT` serves /health and /props of a server with 64 slots, and answers
every POST: one small JSON object, or with `"stream":true` a stream of frames as long as the
request's `"max_tokens"`.  A stream ends with the connection, as
llama-server's do, but says so: HAProxy else sends the next request to its closed end (502).
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import cast

import uvloop

JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: close\r\n\r\n"
)
CHUNK = (
    b'data: {"choices":[{"finish_reason":%s,"index":0,"delta":%s}],"created":1,'
    b'"id":"chatcmpl-1","model":"raw","system_fingerprint":"b1","object":"chat.completion.chunk"%s}\n\n'
)
TIMINGS = (
    b',"timings":{"cache_n":0,"prompt_n":4,"prompt_ms":1.0,"prompt_per_token_ms":0.25,'
    b'"prompt_per_second":4000.0,"predicted_n":2,"predicted_ms":1.0,'
    b'"predicted_per_token_ms":0.5,"predicted_per_second":2000.0}'
)
USAGE = (
    b'data: {"choices":[],"created":1,"id":"chatcmpl-1","model":"raw","object":'
    b'"chat.completion.chunk","usage":{"completion_tokens":2,"prompt_tokens":4,"total_tokens":6,'
    b'"prompt_tokens_details":{"cached_tokens":0}}}\n\n'
)
ANSWER = (
    b'{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"hi"}}],'
    b'"created":1,"model":"raw","object":"chat.completion","usage":{"completion_tokens":2,'
    b'"prompt_tokens":4,"total_tokens":6},"id":"chatcmpl-1"}'
)
PROPS = b'{"default_generation_settings":{"n_ctx":4096},"total_slots":64,"build_info":"b1-raw"}'
# A stream this short is written in one piece: what a request costs apart from its chunks.
AT_ONCE_TOKENS = 2
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
TOKENS = re.compile(rb'"max_tokens": *(\d+)')
STREAM = re.compile(rb'"stream": *true')


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Backend(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, end, rest = self.data.partition(b"\r\n\r\n")
        if not end:
            return
        length = LENGTH.search(head)
        if length is not None and len(rest) < int(length[1]):
            return
        self.data = b""
        self.answer(head, rest)

    def answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET"):
            found = PROPS if b" /props" in head else b'{"status":"ok"}'
            if b" /slots" in head or b" /metrics" in head:
                self.transport.write(b"HTTP/1.1 501 No\r\nContent-Length: 2\r\n\r\n{}")
            else:
                self.transport.write(JSON_HEAD % len(found) + found)
        elif STREAM.search(body):
            self.stream(int(TOKENS.search(body)[1]), usage=b"include_usage" in body)  # type: ignore[index]
        else:
            self.transport.write(JSON_HEAD % len(ANSWER) + ANSWER)

    def stream(self, tokens: int, *, usage: bool) -> None:
        frames = [CHUNK % (b"null", b'{"role":"assistant","content":null}', b"")]
        frames += [CHUNK % (b"null", b'{"content":" tok"}', b"")] * tokens
        frames.append(CHUNK % (b'"stop"', b"{}", TIMINGS))
        if usage:
            frames.append(USAGE)
        frames.append(b"data: [DONE]\n\n")
        if tokens <= AT_ONCE_TOKENS:
            self.transport.write(STREAM_HEAD + b"".join(map(chunk, frames)) + b"0\r\n\r\n")
            self.transport.close()
            return
        self.transport.write(STREAM_HEAD)
        self.frames = iter(frames)
        self.next_frame()

    def next_frame(self) -> None:
        """One frame a turn of the loop, so that they arrive one by one, as tokens do."""
        frame = next(self.frames, None)
        if frame is None:
            self.transport.write(b"0\r\n\r\n")
            self.transport.close()
            return
        self.transport.write(chunk(frame))
        asyncio.get_running_loop().call_later(0.001, self.next_frame)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(
        Backend, "127.0.0.1", port, backlog=1024
    )
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
