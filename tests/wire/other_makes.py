"""What `transformers serve` 5.24 answers, as it was seen, with shorter ids and paths."""

from __future__ import annotations

MODEL = "/models/tiny"
MODELS = (
    b'{"object":"list","data":[{"owned_by":"local","id":"/models/tiny","object":"model",'
    b'"created":0,"status":{"value":"loaded"}}]}'
)
NOT_FOUND = b'{"detail":"Not Found"}'
UNEXPECTED = b'{"detail":"Unexpected fields in the request: {\'return_progress\'}"}'
OTHER_MODEL = b"{\"detail\":\"Server is pinned to '/models/tiny'; requested 'nope'.\"}"

_HEAD = b'"created":1796055311,"model":"/models/tiny","object":"chat.completion.chunk"'
ROLE = (
    b'data: {"id":"91","choices":[{"delta":{"role":"assistant"},"index":0}],'
    + _HEAD
    + b',"system_fingerprint":""}\n\n'
)
TOKENS = (
    b'data: {"id":"91","choices":[{"delta":{"content":"O"},"index":0}],'
    + _HEAD
    + b',"system_fingerprint":""}\n\n',
    b'data: {"id":"91","choices":[{"delta":{"content":"\xef\xbf\xbdO"},"index":0}],'
    + _HEAD
    + b',"system_fingerprint":""}\n\n',
)
END = (
    b'data: {"id":"91","choices":[{"delta":{},"index":0,"finish_reason":"length"}],'
    + _HEAD
    + b',"system_fingerprint":"",'
    b'"usage":{"completion_tokens":4,"prompt_tokens":19,"total_tokens":23}}\n\n'
)
# No `data: [DONE]` comes after it.
CHAT = b"".join((ROLE, *TOKENS, END))
TEXT = (
    b'data: {"id":"2d","choices":[{"index":0,"text":"N"}],"created":1796055315,'
    b'"model":"/models/tiny","object":"text_completion"}\n\n'
    b'data: {"id":"2d","choices":[{"finish_reason":"length","index":0,"text":""}],'
    b'"created":1796055316,"model":"/models/tiny","object":"text_completion",'
    b'"usage":{"completion_tokens":4,"prompt_tokens":2,"total_tokens":6}}\n\n'
)

_RESPONSE = (
    b'"id":"resp_11","created_at":1796055328.5278196,"model":"/models/tiny","object":"response"'
)
_REST = b'"parallel_tool_calls":false,"tool_choice":"auto","tools":[]'
_ITEM = (
    b'{"id":"msg_11","content":[{"annotations":[],"text":"OO","type":"output_text"}],'
    b'"role":"assistant","status":"completed","type":"message","annotations":[]}'
)
# Events of which none is named but in its data.
RESPONSES = (
    b'data: {"response":{' + _RESPONSE + b',"output":[],' + _REST + b',"status":"queued"},'
    b'"sequence_number":0,"type":"response.created"}\n\n'
    b'data: {"content_index":0,"delta":"O","item_id":"msg_11","logprobs":[],"output_index":0,'
    b'"sequence_number":4,"type":"response.output_text.delta"}\n\n'
    b'data: {"content_index":0,"delta":"O","item_id":"msg_11","logprobs":[],"output_index":0,'
    b'"sequence_number":5,"type":"response.output_text.delta"}\n\n'
    b'data: {"item":' + _ITEM + b',"output_index":0,"sequence_number":8,'
    b'"type":"response.output_item.done"}\n\n'
    b'data: {"response":{' + _RESPONSE + b',"output":[' + _ITEM + b"]," + _REST + b","
    b'"status":"completed","usage":{"input_tokens":19,"input_tokens_details":'
    b'{"cache_write_tokens":0,"cached_tokens":0},"output_tokens":4,"output_tokens_details":'
    b'{"reasoning_tokens":0},"total_tokens":23}},"sequence_number":9,'
    b'"type":"response.completed"}\n\n\n'
)
