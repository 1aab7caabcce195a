"""A backend's URL: what is read from it, and what is refused."""

from __future__ import annotations

import pytest

from slotgate.errors import ConfigError
from slotgate.net.address import Address


@pytest.mark.parametrize(
    ("url", "address", "authority"),
    [
        (
            "http://127.0.0.1:8081",
            Address("127.0.0.1", 8081, tls=False, unix_path=None, prefix=""),
            "127.0.0.1:8081",
        ),
        (
            "http://box/",
            Address("box", 80, tls=False, unix_path=None, prefix=""),
            "box",
        ),
        (
            "https://Box.example:443/llm/",
            Address("box.example", 443, tls=True, unix_path=None, prefix="/llm"),
            "box.example",
        ),
        (
            "https://box:80/a/b",
            Address("box", 80, tls=True, unix_path=None, prefix="/a/b"),
            "box:80",
        ),
        (
            "http://[::1]:8081/llm",
            Address("::1", 8081, tls=False, unix_path=None, prefix="/llm"),
            "[::1]:8081",
        ),
        (
            "unix:///run/llama.sock",
            Address("localhost", 80, tls=False, unix_path="/run/llama.sock", prefix=""),
            "localhost",
        ),
        (
            "unix:///run/llama.sock:/llm",
            Address("localhost", 80, tls=False, unix_path="/run/llama.sock", prefix="/llm"),
            "localhost",
        ),
    ],
)
def test_a_url_says_where_to_connect_and_what_the_host_header_says(
    url: str, address: Address, authority: str
) -> None:
    assert Address.parse(url) == address
    assert address.authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8081",
        "ftp://box",
        "http://",
        "http://:8081",
        "http://box:0",
        "http://box:70000",
        "http://box:port",
        "http://box/path?query",
        "http://box/path#part",
        "http://box/a path",
        "http://box/\u00e9",
        "http://b ox/",
        "http://a..b",
        f"http://{'x' * 64}.example",
        "http://[::g]",
        "http://box\u00e9/",
        "http://[::1/",
        "unix:run/llama.sock",
        "unix://run/llama.sock",
        "unix:///",
        "unix:///run/llama.sock:llm",
    ],
)
def test_nonsense_is_refused_with_the_url_and_the_forms_that_exist(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Address.parse(url)
    assert repr(url) in str(caught.value)
    assert "http://host:port" in str(caught.value)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        Address.parse("http://user:secret@box")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8081", "https://box/llm", "http://[::1]:8081", "unix:///run/x.sock:/llm"],
)
def test_an_address_reads_as_the_url_it_came_from(url: str) -> None:
    assert str(Address.parse(url)) == url
