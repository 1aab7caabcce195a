"""Servers that cannot be examined, and those of other makes."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.doctor.evidence import Make, Place
from slotgate.doctor.examine import Examination, address_of, examine_all
from slotgate.doctor.judge import ExitStatus
from slotgate.doctor.where import where_is
from slotgate.errors import ConfigError
from slotgate.net.address import Address
from tests.doctor.examining import by_check, examine, only, severities
from tests.doctor.pages import pages, serving
from tests.net.scripted import answer, answer_and_close, plain

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from tests.net.scripted import Peer

pytestmark = [pytest.mark.anyio, pytest.mark.process]

OK = (200, {"status": "ok"})
LISTED = (200, {"object": "list", "data": [{"id": "qwen"}]})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ends(check: str, examined: Any) -> bool:
    return list(by_check(examined)) == [check] and examined.status is ExitStatus.NOT_EXAMINED


async def test_nobody_there_is_told() -> None:
    examined = await examine(f"http://127.0.0.1:{free_port()}", measures=True)
    assert ends("unreachable", examined)
    assert not any("firewall" in way for way in only(examined, "unreachable").mend)
    assert only(examined, "unreachable").known_by.startswith(
        "GET /health: no connection: connection refused"
    )


async def test_a_socket_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert ends("unreachable", await examine(f"unix://{tmp_path}/none.sock"))


async def test_where_connections_are_not_taken_nothing_answers() -> None:
    with socket.socket() as deaf, contextlib.ExitStack() as stack:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(4):  # more than it keeps for later
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        examined = await examine(f"http://127.0.0.1:{deaf.getsockname()[1]}", timeout=0.3)
        assert ends("unreachable", examined)
        finding = only(examined, "unreachable")
        assert finding.known_by == "GET /health: no connection within 0.3 s"
        assert "a firewall" in finding.mend[0]


async def test_a_certificate_that_is_not_trusted_is_told(server_tls: ssl.SSLContext) -> None:
    async with serving(pages(health=OK), tls=server_tls) as server:
        examined = await examine(server.url)
        assert ends("tls", examined)
        assert "its certificate is not trusted" in only(examined, "tls").known_by


async def test_a_certificate_that_is_trusted_is_no_trouble(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async with serving(pages(health=OK, models=LISTED), tls=server_tls) as server:
        examined = await examine(server.url, ssl_context=client_tls)
        assert examined.evidence.make is Make.OPENAI
        assert examined.evidence.is_encrypted


async def test_tls_where_there_is_none_is_told() -> None:
    async def refuse(peer: Peer) -> None:
        await peer.reader.read(1)
        await peer.send(plain(b"", status=b"400 Bad Request"))

    async with serving(refuse) as server:
        assert ends("tls", await examine(server.url.replace("http:", "https:")))


async def test_a_server_that_waits_for_the_rest_of_a_greeting_is_silent() -> None:
    async with serving(answer(plain(b"{}"))) as server:
        examined = await examine(server.url.replace("http:", "https:"), timeout=0.3)
        assert ends("silent", examined)
        assert "If it does not encrypt, write http://." in only(examined, "silent").mend


async def test_none_where_there_is_tls_is_told(server_tls: ssl.SSLContext) -> None:
    async with serving(pages(health=OK), tls=server_tls) as server:
        examined = await examine(server.url.replace("https:", "http:"))
        assert ends("unreachable", examined) or ends("not-http", examined)
        (finding,) = examined.findings
        assert any("https://" in way for way in finding.mend)


async def test_what_is_no_http_is_told() -> None:
    async with serving(answer_and_close(b"SSH-2.0-OpenSSH_9.7\r\n")) as server:
        assert ends("not-http", await examine(server.url))


async def test_silence_is_told_after_the_time_that_was_given() -> None:
    async def hold(peer: Peer) -> None:
        await peer.wait_closed_by_client()

    async with serving(hold) as server:
        examined = await examine(server.url, timeout=0.2)
        assert ends("silent", examined)
        assert only(examined, "silent").known_by.startswith("GET /health: no answer within 0.2 s")


async def test_an_answer_that_drips_is_bounded_too() -> None:
    async def drip(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
        await peer.wait_closed_by_client()

    async with serving(drip) as server:
        assert ends("silent", await examine(server.url, timeout=0.2))


async def test_a_proxy_without_its_server_is_told() -> None:
    async with serving(answer(plain(b"<html>Bad Gateway", status=b"502 Bad Gateway"))) as server:
        assert ends("not-serving", await examine(server.url))


async def test_another_make_gets_what_can_be_said_of_it() -> None:
    async with serving(pages(health=OK, models=LISTED)) as server:
        examined = await examine(server.url)
        assert set(severities(examined)) == {"other-make", "no-key"}
        assert examined.status is ExitStatus.GOOD
        assert [request.split(b" ")[1] for request in server.requests] == [
            b"/health",
            b"/v1/models",
            b"/props",
        ]


async def test_a_make_without_health_is_examined_too() -> None:
    async with serving(pages(models=LISTED)) as server:
        assert (await examine(server.url)).status is ExitStatus.GOOD


async def test_a_web_page_is_told_to_be_none_of_these() -> None:
    async with serving(answer(plain(b"<html>Welcome"))) as server:
        examined = await examine(server.url)
        assert severities(examined) == {"other-make": "error"}
        assert examined.status is ExitStatus.ERRORS


async def test_a_router_is_not_asked_for_the_slots_of_its_models() -> None:
    status = {"value": "sleeping", "args": ["llama-server", "--sleep-idle-seconds", "60"]}
    failed = {"value": "unloaded", "failed": True, "exit_code": 1}
    models = [{"id": "a", "status": status}, {"id": "b", "status": failed}]
    router = {"role": "router", "default_generation_settings": {"n_ctx": 0}}
    script = pages(health=OK, props=(200, router), models=(200, {"data": models}))
    async with serving(script) as server:
        examined = await examine(server.url, measures=True)
        found = severities(examined)
        assert {"router": "note", "model-failed": "warning", "model-sleeps": "note"}.items() <= (
            found.items()
        )
        paths = {request.split(b" ")[1] for request in server.requests}
        assert paths == {b"/health", b"/v1/models", b"/props"}


async def test_slotgate_is_known_and_its_sum_of_slots_is_not_judged() -> None:
    health = {"status": "ok", "slots_idle": 4, "slots_processing": 0, "queue": 0}
    props = {"total_slots": 4, "default_generation_settings": {"n_ctx": 512}}
    script = pages(health=(200, health), props=(200, props), models=LISTED)
    async with serving(script) as server:
        examined = await examine(server.url)
        assert set(severities(examined)) == {"gateway", "gateway-queue", "no-key"}
        assert b"/slots" not in {request.split(b" ")[1] for request in server.requests}


async def test_a_gateway_tells_how_the_servers_behind_it_are() -> None:
    health = {"status": "ok", "slots_idle": 0, "slots_processing": 0, "queue": 3}
    backends = {"left": {"state": "down", "why": "refused"}, "right": {"state": "ready", "why": ""}}
    ready = {"status": "not ready", "backends": backends}
    script = pages(health=(200, health), models=LISTED, ready=(503, ready))
    async with serving(script) as server:
        examined = await examine(server.url)
        assert str(only(examined, "backend-state").severity) == "warning"
        assert only(examined, "backend-state").known_by == "GET /ready: refused"
        assert only(examined, "gateway").found.endswith("behind it: left, right.")
        assert only(examined, "gateway-queue").found == "3 requests wait in its queue."


@pytest.mark.parametrize("ready", ["nonsense", [], {"backends": 3}, {"backends": {"a": 3}}])
async def test_a_gateway_that_tells_nothing_of_them_is_no_trouble(ready: Any) -> None:
    health = {"status": "ok", "queue": 0}
    async with serving(pages(health=(200, health), models=LISTED, ready=(200, ready))) as server:
        assert (await examine(server.url)).evidence.make is Make.SLOTGATE


async def test_the_key_goes_only_where_it_is_wanted() -> None:
    async with serving(pages(health=OK, models=LISTED)) as server:
        examined = await examine(server.url, key="sesame")
        assert not any(b"sesame" in request for request in server.requests)
        assert severities(examined)["no-key"] == "warning"


async def test_slots_that_anybody_may_see_are_told_though_the_rest_is_locked() -> None:
    slots = [{"id": 0, "n_ctx": 512, "is_processing": False}]

    async def play(peer: Peer) -> None:
        props = {"total_slots": 1, "default_generation_settings": {"n_ctx": 512}}
        bodies = {b"/props": props, b"/v1/models": LISTED[1], b"/slots": slots}
        while True:
            request = await peer.read_request()
            path = request.split(b" ")[1]
            is_allowed = b"Bearer sesame" in request or path in {b"/health", b"/slots"}
            body = json.dumps(bodies.get(path, {"status": "ok"})).encode()
            status = b"200 OK" if is_allowed else b"401 Unauthorized"
            await peer.send(plain(body if is_allowed else b"{}", status=status))

    async with serving(play) as server:
        examined = await examine(server.url, key="sesame")
        assert severities(examined)["slots-open"] == "warning"


@pytest.mark.parametrize("slots", [(200, "nonsense"), (200, [{"id": 0}]), (500, {}), (200, [])])
async def test_slots_that_make_no_sense_are_as_good_as_none(slots: tuple[int, Any]) -> None:
    props = {"total_slots": 2, "default_generation_settings": {"n_ctx": 512}}
    script = pages(health=OK, props=(200, props), models=LISTED, slots=slots)
    async with serving(script) as server:
        examined = await examine(server.url)
        assert examined.evidence.size == (2, 512)
        assert "slot-stuck" not in by_check(examined)


async def test_what_is_no_address_is_a_fault_of_the_command() -> None:
    with pytest.raises(ConfigError, match="is no backend URL"):
        await examine_all(["nonsense"], Examination())


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a/v1", "http://a"),
        ("http://a/v1/", "http://a"),
        ("http://a/llm/v1", "http://a/llm"),
        ("http://a/llm", "http://a/llm"),
        ("http://a/v12", "http://a/v12"),
        ("a:8080", "http://a:8080"),
        ("127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_the_v1_of_clients_is_no_prefix_and_http_is_understood(url: str, expected: str) -> None:
    assert str(address_of(url)) == expected


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://127.0.0.1", Place.HERE),
        ("http://127.9.9.9", Place.HERE),
        ("http://[::1]", Place.HERE),
        ("http://localhost", Place.HERE),
        ("unix:///x.sock", Place.HERE),
        ("http://10.1.2.3", Place.PRIVATE),
        ("http://192.168.0.9", Place.PRIVATE),
        ("http://100.64.0.1", Place.PRIVATE),
        ("http://[fd00::1]", Place.PRIVATE),
        ("http://8.8.8.8", Place.PUBLIC),
        ("http://[2001:4860:4860::8888]", Place.PUBLIC),
        ("http://nobody.invalid", Place.HERE),
    ],
)
async def test_an_address_tells_from_where_it_can_be_reached(url: str, place: Place) -> None:
    assert (await where_is(Address.parse(url), 5.0)).place is place
