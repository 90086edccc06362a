"""Calls that end in time whatever they wait for."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from typing import Any, cast

import pytest
from azure.core.credentials import TokenCredential

from devhost.azurite import ROOT
from shared.core.errors import OutcomeUnknown, Unavailable
from shared.storage import blocking
from shared.storage.azure.account import Account
from shared.storage.blocking import HttpTables, IdentityTokens, run_through
from shared.storage.bounded_calls import Bounded, Full
from shared.storage.ports import Insert

from .conftest import connection


def test_a_call_that_hangs_is_given_up_and_the_next_ones_go_on() -> None:
    bounded, gate = Bounded("test", most=4), threading.Event()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            bounded.call(lambda: gate.wait(60), 0.01)
    assert [bounded.call(lambda: 7, 60) for _ in range(3)] == [7, 7, 7]
    with pytest.raises(TimeoutError):
        bounded.call(lambda: gate.wait(60), 0.01)
    with pytest.raises(Full):
        bounded.call(lambda: 7, 60)
    gate.set()
    bounded.close()


def test_what_a_call_raises_is_raised_and_its_thread_is_kept() -> None:
    bounded = Bounded("test")
    used = {bounded.call(threading.get_ident, 60)}
    for error in (KeyError("x"), SystemExit(1)):
        with pytest.raises(type(error)):
            bounded.call(lambda error=error: _raise(error), 60)  # type: ignore[misc]
    used.add(bounded.call(threading.get_ident, 60))
    assert len(used) == 1 and threading.get_ident() not in used
    bounded.close()


def _raise(error: BaseException) -> None:
    raise error


def test_closing_ends_the_threads() -> None:
    bounded, gate, threads = Bounded("test"), threading.Event(), list[threading.Thread]()
    with pytest.raises(TimeoutError):
        bounded.call(lambda: (threads.append(threading.current_thread()), gate.wait(60)), 0.01)
    bounded.call(lambda: threads.append(threading.current_thread()), 60)
    bounded.close()
    gate.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


class Hangs:
    """A credential whose endpoint does not answer."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def get_token(self, *scopes: str, **options: Any) -> Any:
        self.gate.wait(60)
        raise OSError("the endpoint at http://169.254.169.254/secret is gone")


def test_an_identity_that_hangs_holds_no_request_up_and_what_it_raises_is_kept_to_itself() -> None:
    credential = Hangs()
    tables = HttpTables(Account("https://account.table.core.windows.net", IdentityTokens(cast(TokenCredential, credential))))
    with pytest.raises(OutcomeUnknown, match="too long"):
        tables.write("Table", "p", [Insert("r", {})], timeout=0.05)
    credential.gate.set()
    with pytest.raises(Unavailable, match=r"token .*: OSError$"):
        tables.get("Table", "p", "r", timeout=60)
    tables.close()


def test_while_a_token_lasts_no_call_waits_for_its_renewal() -> None:
    credential = Hangs()
    tokens = IdentityTokens(cast(TokenCredential, credential))
    tokens._token, tokens._until = "Bearer old", int(time.time()) + 50
    renewing = threading.Thread(target=lambda: run_through(tokens.authorize("GET", "/", {}, {}, 0)))
    renewing.start()
    while not tokens._lock.locked():
        time.sleep(0.01)
    headers: dict[str, str] = {}
    run_through(tokens.authorize("POST", "/", {}, headers, 0))
    assert headers["Authorization"] == "Bearer old" and renewing.is_alive()
    credential.gate.set()
    renewing.join()


def test_a_name_that_is_not_resolved_holds_no_request_up(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def resolve(*_: object, **__: object) -> object:
        gate.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    tables = HttpTables.from_connection_string(connection(9))
    with pytest.raises(Unavailable, match="too long"):
        tables.get("Table", "p", "r", timeout=0.05)
    gate.set()
    with pytest.raises(Unavailable, match="not sent"):
        tables.get("Table", "p", "r", timeout=60)
    tables.close()


def test_an_answer_that_drips_is_given_up() -> None:
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connected, _ = server.accept()
            with connected:
                connected.recv(65536)
                connected.sendall(b"HTTP/1.1 200 OK\r\nx: ")
                while not done.wait(0.02):
                    connected.sendall(b"x")

        dripping = threading.Thread(target=drip)
        dripping.start()
        tables = HttpTables.from_connection_string(connection(server.getsockname()[1]))
        with pytest.raises(Unavailable, match="too long"):
            tables.get("Table", "p", "r", timeout=0.5)
        done.set()
        dripping.join()
        tables.close()


FORKS = """
import os, sys
from shared.storage.blocking import HttpTables
from shared.storage.bounded_calls import Bounded

bounded = Bounded("test")
bounded.call(os.getpid, 60)
child = os.fork()
if child == 0:
    os._exit(0 if bounded.call(os.getpid, 60) == os.getpid() else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_has_threads_of_its_own() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], cwd=ROOT, check=True, timeout=120)


def test_a_forked_child_has_connections_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = HttpTables.from_connection_string(connection(9))
    mine = tables._http
    monkeypatch.setattr(blocking.os, "getpid", lambda: -1)
    with pytest.raises(Unavailable):
        tables.get("Table", "p", "r", timeout=1)
    assert tables._http is not mine
    mine.close()
    tables.close()
