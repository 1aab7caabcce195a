"""CPU that each proxy spends on a request and on a stream, in front of the same raw backend.

One run, one machine: the proxy is alone on the first core, backend and load on the second.  What
counts is the processor time of the proxy's processes, so the load's own speed does not matter.
Figures compare within one table, not between machines.

A request that wants one answer is one small JSON object to the others, on a kept connection.
Slotgate asks for it as a stream (so that leaving is noticed), on a connection of its own, as any
proxy's streams from llama-server need: `haproxy, no reuse` shows what that alone costs.

`python -m bench.overhead [--requests N] [--streams N]`; needs haproxy and nginx on the PATH (what
is missing is left out of the table, and said).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
CHUNKS = 64
CONCURRENCY = 8
COLUMNS = ("a request", "a stream of 2 tokens", f"a stream of {CHUNKS} chunks")
REQUEST = b'{"model":"raw","messages":[{"role":"user","content":"hello"}],"max_tokens":%d%s}'

HAPROXY = """
global
  maxconn 4000
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen proxy
  bind 127.0.0.1:{port}
  server backend 127.0.0.1:{backend}
"""
# As it must be in front of llama-server, which ends each stream with the connection.
HAPROXY_FRESH = HAPROXY.replace(
    "mode http", "mode http\n  http-reuse never\n  option http-server-close"
)
NGINX = """
daemon off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events {{ worker_connections 4000; }}
http {{
  access_log off;
  client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/f;
  uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  upstream backend {{ server 127.0.0.1:{backend}; keepalive 16; }}
  server {{
    listen 127.0.0.1:{port};
    keepalive_requests 1000000;
    location / {{
      proxy_pass http://backend; proxy_http_version 1.1;
      proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_port(port: int) -> None:
    for _ in range(500):
        with socket.socket() as sock:
            sock.settimeout(0.1)
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        subprocess.run(["sleep", "0.02"], check=True)
    raise SystemExit(f"nothing listens on {port}")


@contextlib.contextmanager
def process(command: list[str], *, core: int, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    pinned = ["taskset", "-c", str(core), *command] if shutil.which("taskset") else command
    child = subprocess.Popen(
        pinned, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def cpu_seconds(root: int) -> float:
    """Processor time of a process and its descendants."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            ticks[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
    family = {root}
    for _ in range(4):
        family |= {pid for pid, parent in parents.items() if parent in family}
    return sum(ticks.get(pid, 0) for pid in family) / TICK


async def client(port: int, body: bytes, count: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    for _ in range(count):
        writer.write(head + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the proxy answered {answer[:200]!r}")
        lower = answer.lower()
        if b"content-length:" in lower:
            length = lower.partition(b"content-length:")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
        elif not (await reader.readuntil(b"0\r\n\r\n")).endswith(b"[DONE]\n\n\r\n0\r\n\r\n"):
            raise SystemExit("the stream has no end")
        if b"connection: close" in lower:
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


async def load(port: int, body: bytes, count: int) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(client(port, body, count // CONCURRENCY))


def measure(port: int, pid: int, requests: int, streams: int) -> list[float]:
    """Microseconds of the proxy's CPU for each of `COLUMNS`."""
    results = []
    for body, count in (
        (REQUEST % (2, b""), requests),
        (REQUEST % (2, b',"stream":true'), requests),
        (REQUEST % (CHUNKS, b',"stream":true'), streams),
    ):
        asyncio.run(load(port, body, CONCURRENCY * 25))  # warm up
        before = cpu_seconds(pid)
        asyncio.run(load(port, body, count))
        results.append((cpu_seconds(pid) - before) / count * 1e6)
    return results


def proxies(directory: Path, backend: int) -> dict[str, tuple[list[str], int, dict[str, str]]]:
    """Name -> command, port and environment."""
    found: dict[str, tuple[list[str], int, dict[str, str]]] = {}
    upstream = f"http://127.0.0.1:{backend}"
    peers = (("haproxy", HAPROXY), ("haproxy, no reuse", HAPROXY_FRESH), ("nginx", NGINX))
    for name, template in peers:
        program = name.partition(",")[0]
        if shutil.which(program) is None:
            print(f"{program} is not installed: {name} is left out", file=sys.stderr)
            continue
        port = free_port()
        config = directory / f"{port}.cfg"
        config.write_text(template.format(port=port, backend=backend, dir=directory))
        arguments = ["-db", "-f"] if program == "haproxy" else ["-c"]
        found[name] = ([program, *arguments, str(config)], port, {})
    port = free_port()
    serve = ["-m", "slotgate", "serve", "--backend", upstream, "--listen", f"127.0.0.1:{port}"]
    found["slotgate"] = ([sys.executable, *serve], port, {})
    port = free_port()
    options = ["--log-level", "warning", "--no-access-log", "--port", str(port)]
    command = [sys.executable, "-m", "uvicorn", *options, "bench.httpx_proxy:app"]
    found["uvicorn + httpx"] = (command, port, {"UPSTREAM": upstream})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--streams", type=int, default=800)
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rows: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        backend = free_port()
        raw = [sys.executable, "-m", "bench.raw_backend", str(backend)]
        with process(raw, core=max(os.sched_getaffinity(0))):
            wait_port(backend)
            for proxy, (command, port, env) in proxies(Path(name), backend).items():
                with process(command, core=0, **env) as child:
                    wait_port(port)
                    rows[proxy] = measure(port, child.pid, options.requests, options.streams)
    base = rows.get("haproxy", next(iter(rows.values())))
    print(f"{'us, and times haproxy':<22}" + "".join(f"{name:>24}" for name in COLUMNS))
    for proxy, costs in rows.items():
        cells = (f"{cost:>16.0f}{cost / one:>8.1f}" for cost, one in zip(costs, base, strict=True))
        print(f"{proxy:<22}" + "".join(cells))


if __name__ == "__main__":
    main()
