"""One HTTP exchange is bounded in time and size, and whatever a peer does comes back as a value."""

from __future__ import annotations

import socket
import time

import pytest

from shared.core.http_exchange import HttpProxy, HttpReply, TransportFailure, exchange, root_of
from tests.unit.maintenance.agent.byte_server import Peer, Say, peer, saying


def ask(url: str, timeout: float = 60, largest: int = 1000) -> HttpReply | TransportFailure:
    return exchange("GET", f"{url}/path?x=1", headers={"Metadata": "true"}, timeout=timeout, largest=largest)


def dripping(it: list[Peer]) -> Say:
    """A byte now and then, for as long as anyone listens: no single wait is ever long."""

    def say(connection: socket.socket) -> None:
        while not it[0].closing.wait(0.02):
            connection.sendall(b"H")

    return say


def test_any_status_comes_back_with_its_body() -> None:
    with peer(saying(200, b"yes"), saying(503, b"no")) as it:
        first, second = ask(it.url), ask(it.url)
    assert isinstance(first, HttpReply) and (first.status, first.body) == (200, b"yes")
    assert isinstance(second, HttpReply) and (second.status, second.body) == (503, b"no")
    assert it.heard[0].startswith(b"GET /path?x=1 HTTP/1.1\r\n") and b"Metadata: true" in it.heard[0]


def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with peer(saying(500, b"proxy")) as proxy, peer(saying(200, b"direct")) as it:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert isinstance(answer := ask(it.url), HttpReply) and answer.body == b"direct"
    assert proxy.heard == []


def ask_through(proxy: str, timeout: float = 60) -> HttpReply | TransportFailure:
    via = HttpProxy("127.0.0.1", int(proxy.rpartition(":")[2]), "Basic dXNlcjpzZWNyZXQ=")
    return exchange("GET", "https://app.example/path", headers={"Authorization": "Bearer key"}, timeout=timeout, proxy=via)


def test_a_proxy_is_asked_for_a_tunnel_and_its_refusal_is_no_answer_of_the_peer() -> None:
    with peer(saying(407, b"who are you?")) as proxy:
        answer = ask_through(proxy.url)
    assert isinstance(answer, TransportFailure) and "407" in answer.reason
    [heard] = proxy.heard
    assert heard.startswith(b"CONNECT app.example:443 HTTP/1.") and b"Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=" in heard
    assert b"Bearer" not in heard and "secret" not in repr(HttpProxy("proxy", 1, "Basic secret"))


def test_a_proxy_that_drips_bytes_cannot_hold_the_agent_longer_than_the_time_out() -> None:
    it: list[Peer] = []
    with peer(dripping(it)) as dripper:
        it.append(dripper)
        answer = ask_through(dripper.url, timeout=0.3)
    assert answer == TransportFailure("no answer within 0.3 s", timed_out=True)


def test_peer_that_drips_bytes_cannot_hold_the_agent_longer_than_the_time_out() -> None:
    it: list[Peer] = []
    with peer(dripping(it)) as dripper:
        it.append(dripper)
        began = time.monotonic()
        answer = ask(dripper.url, timeout=0.3)
        # Ten thousand drips would take minutes: what ends it is the time-out, however slow the machine.
        assert isinstance(answer, TransportFailure) and answer.timed_out and time.monotonic() - began >= 0.3


def test_peer_that_says_nothing_is_silence_that_timed_out() -> None:
    it: list[Peer] = []
    with peer(lambda connection: it[0].closing.wait() and None) as mute:
        it.append(mute)
        assert ask(mute.url, timeout=0.1) == TransportFailure("no answer within 0.1 s", timed_out=True)


def test_nobody_there_is_silence_with_its_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    answer = ask(f"http://127.0.0.1:{port}")
    assert isinstance(answer, TransportFailure) and not answer.timed_out and "refused" in answer.reason


@pytest.mark.parametrize(
    "say",
    [
        saying(200, b"half of it", declared=100),
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"),
        lambda connection: connection.sendall(b"this is not HTTP\r\n\r\n"),
        lambda connection: None,
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n"),
        saying(200, b"x" * 1001),
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n"),
    ],
    ids=["cut-body", "cut-chunk", "no-http", "hang-up", "endless-head", "too-long", "endless-length"],
)
def test_answer_that_is_cut_broken_or_too_long_is_silence(say: Say) -> None:
    with peer(say) as it:
        assert isinstance(ask(it.url), TransportFailure)


def test_body_without_a_length_is_read_to_its_end() -> None:
    with peer(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nall of it")) as it:
        assert isinstance(answer := ask(it.url), HttpReply) and answer.body == b"all of it"


@pytest.mark.parametrize("url", ["http://169.254.169.254", "https://app.example", "http://[::1]:8080/", "http://localhost:7071"])
def test_root_is_an_address_without_a_slash_at_its_end(url: str) -> None:
    assert root_of(url) == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "app.example",
        "ftp://x",
        "https://",
        "https://u:pa55@x",
        "https://x/api",
        "https://x?a=b",
        "https://x#f",
        "http://x:0",
        "http://x:y",
    ],
)
def test_what_is_no_root_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="not an address") as caught:
        root_of(url)
    assert "pa55" not in str(caught.value)
