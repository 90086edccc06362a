"""`tocsin check-receiver` as a process, against receivers in frameworks that people use, and against the one of `tocsin dev`."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from shared.client.errors import BadDelivery
from shared.client.receiving import verify
from tests.integration.cli.dev import LocalProcess
from tests.integration.client.conftest import as_installed
from tests.integration.client.receivers import fastapi
from tests.paths import ROOT
from tests.waiting import run

__all__ = ["as_installed"]

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def check(url: str, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run the command; return its exit code, and its lines by name."""
    command = [sys.executable, "-m", "shared.cli", "check-receiver", url, "--local", "--json", "--rate", "50", "--late", "3", *words]
    done = run(command, cwd=ROOT, env={**os.environ, "TOCSIN_SECRET": SECRET})
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout, done.stderr
    return done.returncode, {line["check"]: line for line in json.loads(done.stdout)["checks"]}


def results(lines: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the results that are not ok."""
    return {name: line["result"] for name, line in lines.items() if line["result"] != "ok"}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_documented_asgi_receiver_has_no_fault(tmp_path: Path, as_installed: Path) -> None:
    payload = tmp_path / "reminder.json"
    payload.write_text('{"text": "tea"}')
    with fastapi(tmp_path, as_installed, SECRET, free_port()) as url:
        code, lines = check(f"{url}/hooks/reminders", "--payload", str(payload), "--count-url", f"{url}/reminders")
    assert (code, results(lines)) == (0, {})
    assert {"duplicates", "parallel", "late", "effect", "same payload"} <= set(lines)


class WsgiReceiver:
    """A receiver with `tocsin.verify` in a WSGI application."""

    def __init__(self) -> None:
        self.known = set[str]()

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        headers = {name.removeprefix("HTTP_").replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
        try:
            id = verify(headers, body, SECRET).id
        except BadDelivery:
            start("401 Unauthorized", [])
            return []
        start("204 No Content", [("tocsin-duplicate", "yes" if id in self.known else "no")])
        self.known.add(id)
        return []


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Write no line for each request."""


@contextmanager
def wsgi(receiver: WsgiReceiver) -> Iterator[str]:
    """Serve in a thread; yield the address."""
    with make_server("127.0.0.1", 0, receiver, handler_class=_Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_wsgi_receiver_has_no_fault_but_keeps_no_connection() -> None:
    with wsgi(WsgiReceiver()) as url:
        code, lines = check(f"{url}/hook")
    assert (code, results(lines)) == (0, {"connections": "look"})


def test_receiver_of_tocsin_dev_verifies_nothing_and_has_no_other_fault(tmp_path: Path) -> None:
    with LocalProcess(tmp_path / "dev") as dev:
        code, lines = check(f"{dev.url}/receiver")
    assert code == 1 and {name for name, result in results(lines).items() if result == "bad"} == {"signature"}
    assert results(lines) == {
        "signature": "bad",
        **dict.fromkeys(("timestamp", "rotation", "bytes", "duplicates", "parallel", "late", "ce-id"), "unseen"),
    }
