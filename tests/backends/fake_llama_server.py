"""A program that looks like llama-server from outside, and misbehaves as its --alias says.

stubborn   serves, and ignores SIGTERM
never      runs, and never serves
chatty     prints a line of three million characters, then serves
family     serves, and has a child of its own
quiet      serves without saying so, and prints what it is asked
dying      serves, and exits with status 7 on the first request after /health
"""

import os
import signal
import socket
import sys


def argument(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def serve(path: str, mode: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        if mode != "quiet":
            say(f"listening on unix://{path}")
        while True:
            connection, _ = listener.accept()
            with connection:
                head = connection.recv(65536)
                if mode == "dying" and b"/health" not in head:
                    os._exit(7)
                if mode == "quiet":
                    say(f"asked: {head!r}")
                body = b"[]" if b" /slots" in head else b'{"status":"ok"}'
                answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                connection.sendall(answer + body)


def main() -> None:
    if "--version" in sys.argv:
        say("version: 1 (fake)")
        return
    mode = argument("--alias")
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "never":
        say("still thinking")
        signal.pause()
    if mode == "chatty":
        say("x" * 3_000_000)
    if mode == "family":
        child = os.fork()
        if child == 0:
            signal.pause()
        say(f"child {child}")
    serve(argument("--host"), mode)


if __name__ == "__main__":
    main()
