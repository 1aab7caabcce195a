"""The operator's commands against a running gateway: what they print, and how they end."""

from __future__ import annotations

import json
import signal
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner
from typing_extensions import override

from slotgate.cli import COMMANDS, app
from slotgate.wire.tables import TABLES
from tests.cli.processes import Stream, ask, command, free_port, stub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result

pytestmark = pytest.mark.process

KEY = "operator-key-0123456789"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    file = tmp_path_factory.mktemp("gateway") / "slotgate.yaml"
    with stub("--decode", "50", "--slots", "2", "--ctx", "100000") as url:
        backend = {"name": "left", "url": url}
        settings = {"listen": "127.0.0.1:0", "backends": [backend], "admin_key_env": "THE_KEY"}
        file.write_text(json.dumps(settings))
        with command("serve", "--config", str(file), env={"THE_KEY": KEY}) as gateway:
            yield gateway.wait_ready()


def run(port: int, *arguments: str, key: str = KEY, **env: str) -> Result:
    variables = {"SLOTGATE_GATEWAY": f"http://127.0.0.1:{port}", "SLOTGATE_ADMIN_KEY": key, **env}
    return CliRunner().invoke(app, arguments, env=variables)


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_its_titles_in_one_line_and_a_line_for_each_row(port: int, table: str) -> None:
    result = run(port, "show", table)
    assert result.exit_code == 0
    titles, *rows = result.stdout.splitlines()
    assert titles.split() == " ".join(c.title for c in TABLES[table] if c.title).split()
    assert len(rows) == {"tickets": 0, "leases": 0}.get(table, 1)
    as_json = json.loads(run(port, "show", table, "--json").stdout)
    assert len(as_json[table]) == len(rows)


def test_the_settings_are_shown_as_they_would_stand_in_the_file(port: int) -> None:
    shown = run(port, "show", "config").stdout
    assert "name: left" in shown
    assert "max_waiting: 512" in shown


def test_a_backend_is_paused_and_resumed_disabled_and_enabled(port: int) -> None:
    assert run(port, "pause", "left").stdout == (
        "left: paused (hold: paused), 0 running, 0 settling\n"
    )
    assert "left: ready (hold: none)" in run(port, "resume", "left").stdout
    assert "left: down (hold: down)" in run(port, "disable", "left").stdout
    said_no = run(port, "resume", "left")
    assert said_no.exit_code == 1
    assert "`enable` does" in said_no.stderr
    assert json.loads(run(port, "enable", "left", "--json").stdout)["backend"]["hold"] is None


def test_a_drain_waits_until_nothing_runs_any_more(port: int) -> None:
    stream = Stream(port, tokens=40)
    stream.read_some()
    assert "1 running" in run(port, "drain", "left").stdout
    late = run(port, "drain", "left", "--timeout", "0.01")
    assert late.exit_code == 1
    assert "not empty yet" in late.stderr
    done = run(port, "drain", "left", "--wait")
    assert done.exit_code == 0
    assert "0 running, 0 settling" in done.stdout
    assert stream.read_rest().endswith(b"[DONE]\n\n")
    assert run(port, "enable", "left").exit_code == 0


def test_a_ticket_is_killed_by_the_id_that_is_shown(port: int) -> None:
    stream = Stream(port, tokens=50_000)
    stream.read_some()
    [ticket] = ask(port, "GET", "/-/tickets", key=KEY)[1]["tickets"]
    assert run(port, "kill", ticket["id"]).stdout == f"{ticket['id']}: killed\n"
    assert b"killed: " in stream.read_rest()
    assert run(port, "kill", ticket["id"], "--json").exit_code == 4


def test_a_reload_says_what_has_changed(port: int) -> None:
    assert run(port, "reload").stdout == "unchanged\n"
    assert json.loads(run(port, "reload", "--json").stdout)["result"] == "unchanged"


def test_a_table_is_shown_again_and_again_until_ctrl_c(port: int) -> None:
    watching = ("show", "pools", "--watch", "0.1", "--gateway", f"http://127.0.0.1:{port}")
    with command(*watching, env={"SLOTGATE_ADMIN_KEY": KEY}) as shown:
        shown.wait_line("MODEL")
        shown.wait_line("MODEL")
        shown.signal(signal.SIGINT)
        assert shown.wait() == 0


# What is wrong is said in words, and told by the exit code.


def test_an_unknown_name_is_said_with_those_that_there_are(port: int) -> None:
    result = run(port, "drain", "right")
    assert result.exit_code == 4
    assert "there are: left" in result.stderr


@pytest.mark.parametrize("key", ["", "another-key-0123456789"])
def test_a_wrong_key_is_said(port: int, key: str) -> None:
    result = run(port, "show", "pools", key=key)
    assert result.exit_code == 5
    assert "operator's key" in result.stderr


def test_the_key_may_be_in_another_variable(port: int) -> None:
    named = ("show", "pools", "--admin-key-env", "OTHER")
    assert run(port, *named, key="", OTHER=KEY).exit_code == 0
    missing = run(port, "show", "pools", "--admin-key-env", "NOT_SET")
    assert missing.exit_code == 2
    assert "NOT_SET is not set" in missing.stderr


def test_a_gateway_that_does_not_run_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        for verb in (("show", "pools"), ("reload",)):
            result = run(taken.getsockname()[1], *verb)
            assert result.exit_code == 3
            assert "no gateway answers on http://127.0.0.1:" in result.stderr


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://x", "http://[", "http://x:y", ""])
def test_an_address_that_is_none_is_said(url: str) -> None:
    result = run(0, "reload", "--gateway", url)
    assert result.exit_code == 2
    assert "--gateway" in result.stderr


class Stranger(BaseHTTPRequestHandler):
    """Some other server."""

    def do_GET(self) -> None:
        self.send_response(200 if "pools" in self.path else 404)
        self.end_headers()
        self.wfile.write(b"<html>")

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.parametrize("table", ["pools", "leases"])
def test_what_is_no_gateway_of_ours_is_said(table: str) -> None:
    with HTTPServer(("127.0.0.1", free_port()), Stranger) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        result = run(server.server_port, "show", table)
        thread.join()
    assert result.exit_code == 3
    assert "not as a Slotgate gateway does" in result.stderr


def test_a_gateway_on_a_unix_socket_is_asked_too(tmp_path: Path) -> None:
    listen = f"unix://{tmp_path}/gateway"
    with stub() as url, command("serve", "--backend", url, "--listen", listen) as gateway:
        gateway.wait_line("ready on unix://")
        shown = run(0, "show", "backends", "--gateway", listen, key="")
        assert shown.exit_code == 0
        assert "ready" in shown.stdout
        said_no = run(0, "reload", "--gateway", listen, key="")
        assert said_no.exit_code == 1
        assert "nothing to reload" in said_no.stderr


def test_every_verb_has_a_command() -> None:
    wanted = {"pause", "resume", "drain", "disable", "enable", "kill", "reload", "show"}
    assert wanted <= set(COMMANDS)
