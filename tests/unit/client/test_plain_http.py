"""Keys travel over plain http to this machine only, unless the caller or the environment allows more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.checkpoints.node.messages import Health
from shared.checkpoints.node.participant import CheckpointParticipant
from shared.cli.connections import resolve_connection
from shared.cli.exits import Exit
from shared.cli.failures import CommandFailed
from shared.cli.main import main
from shared.client.blocking import Client
from shared.client.concurrent import AsyncClient
from shared.client.http import ALLOW_PLAIN_HTTP, BadUrl, PlainHttpRefused, client_options
from tests.texts import has_text

KEY = "a-very-secret-key"
REMOTE = [
    "http://app.example",
    "http://10.0.0.4:7071",
    "http://0.0.0.0",
    "http://localhost.example",
    "http://127.0.0.1.nip.io",
    "http://[fe80::1]",
]
LOCAL = ["http://localhost:7071", "http://LOCALHOST", "http://127.0.0.1:7071/", "http://127.8.8.8", "http://[::1]:7071"]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOCSIN_URL", "TOCSIN_KEY", "TOCSIN_PROFILE", ALLOW_PLAIN_HTTP):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TOCSIN_PROFILES", "/nonexistent")


@pytest.mark.parametrize("url", REMOTE)
async def test_a_key_is_never_sent_in_the_clear_to_another_machine(url: str) -> None:
    for make in (Client, AsyncClient):
        with pytest.raises(PlainHttpRefused) as refused:
            make(url, KEY)
        assert "use https://" in str(refused.value) and "allow_plain_http=True" in str(refused.value) and KEY not in str(refused.value)
    with pytest.raises(PlainHttpRefused):
        CheckpointParticipant("f", "n", url, KEY, health=Health)


@pytest.mark.parametrize("url", [*LOCAL, "https://app.example", "https://10.0.0.4"])
def test_this_machine_and_https_need_no_leave(url: str) -> None:
    Client(url, KEY).close()
    assert resolve_connection({"TOCSIN_URL": url, "TOCSIN_KEY": KEY}).allow_plain_http is False


def test_an_argument_or_the_environment_allows_it_and_the_argument_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    Client(REMOTE[0], KEY, allow_plain_http=True).close()
    monkeypatch.setenv(ALLOW_PLAIN_HTTP, "1")
    Client(REMOTE[0], KEY).close()
    with pytest.raises(PlainHttpRefused):
        Client(REMOTE[0], KEY, allow_plain_http=False)
    monkeypatch.setenv(ALLOW_PLAIN_HTTP, "0")
    with pytest.raises(PlainHttpRefused):
        Client(REMOTE[0], KEY)


def test_a_transport_that_uses_no_network_decides_itself() -> None:
    Client(REMOTE[0], KEY, transport=httpx.MockTransport(lambda _: httpx.Response(200))).close()
    with pytest.raises(PlainHttpRefused):
        Client(REMOTE[0], KEY, transport=httpx.HTTPTransport())


def test_a_malformed_address_is_not_taken_for_a_key() -> None:
    with pytest.raises(BadUrl) as refused:
        client_options("http://key:7071/?key=1", KEY, 1)
    assert not isinstance(refused.value, PlainHttpRefused)
    with pytest.raises(CommandFailed) as failed:
        resolve_connection({"TOCSIN_URL": "monkey", "TOCSIN_KEY": KEY})
    assert failed.value.where == "TOCSIN_URL"


@pytest.mark.parametrize("words", [("events", "list"), ("status",), ("checkpoint", "run", "--fleet", "f", "--node", "n", "--", "true")])
def test_a_command_refuses_and_names_the_option(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOCSIN_URL", REMOTE[0])
    monkeypatch.setenv("TOCSIN_KEY", KEY)
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    printed = capsys.readouterr()
    assert ended.value.code == Exit.USAGE and "where: TOCSIN_URL" in printed.err and KEY not in printed.err
    assert "https://" in printed.err and "--allow-plain-http" in printed.err and f"{ALLOW_PLAIN_HTTP}=1" in printed.err


def test_option_variable_and_named_connection_each_allow_it(tmp_path: Path) -> None:
    given = {"TOCSIN_URL": REMOTE[0], "TOCSIN_KEY": KEY}
    with pytest.raises(CommandFailed):
        resolve_connection(given)
    assert resolve_connection(given, allow_plain_http=True).allow_plain_http
    assert resolve_connection({**given, ALLOW_PLAIN_HTTP: "true"}).allow_plain_http
    file = tmp_path / "profiles.toml"
    file.write_text(f'[lab]\nurl = "{REMOTE[0]}"\nkey_env = "TOCSIN_KEY"\n')
    given = {"TOCSIN_PROFILES": str(file), "TOCSIN_KEY": KEY}
    with pytest.raises(CommandFailed):
        resolve_connection(given, profile="lab")
    file.write_text(f"{file.read_text()}allow_plain_http = true\n")
    assert resolve_connection(given, profile="lab").allow_plain_http
    file.write_text(file.read_text().replace("true", '"yes"'))
    with pytest.raises(CommandFailed, check=has_text("connection.allow-plain-http")):
        resolve_connection(given, profile="lab")


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[Any]]]:
    """A proxy, and the keys that reached it."""
    found: list[Any] = []

    class Seen(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.append(self.headers.get("authorization"))
            self.send_response(404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Seen)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
async def test_a_proxy_of_the_environment_never_gets_the_key_for_this_machine(
    host: str, proxy: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTP_PROXY", proxy[0])
    monkeypatch.setenv("ALL_PROXY", proxy[0])
    # Port 9 of this machine answers nothing: an answer can only be the proxy's.
    with Client(f"http://{host}:9", KEY, retries=0) as client, pytest.raises(Exception, match="no connection"):
        client.get("x")
    async with AsyncClient(f"http://{host}:9", KEY, retries=0) as concurrent:
        with pytest.raises(Exception, match="no connection"):
            await concurrent.get("x")
    assert proxy[1] == []
