"""Behaviour that only real HTTP shows: the devhost as a child process, Azurite beside it, bytes on a socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from devhost.azurite import ROOT
from tests.starting import ready
from tests.unit.scheduler.harness import ADMIN, DEMO
from tests.waiting import ended, wait_until

from .conftest import DOCUMENT

EVENTS = "/api/v1/events"
GOOD = {"delay": "PT12H", "payload": 1}


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """The URL of a devhost of its own, which is ended whatever happens."""
    output = folder / "devhost.txt"
    keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    ports = {f"AZURITE_{name}_PORT": "0" for name in ("BLOB", "QUEUE", "TABLE")}
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "devhost"],
            cwd=ROOT,
            env={**keep, **ports, "PORT": "0", "RECEIVER_PORT": "0", "AZURITE": "memory", "DEVHOST_GRACE": "5"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        yield ready(process, output)
        process.send_signal(signal.SIGINT)
        assert ended(process, "the devhost", seen=output.read_text) == 0
        text = output.read_text(errors="replace")
        assert "Traceback" not in text and "failed unexpectedly" not in text, text
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("http")) as found:
        yield found


@pytest.fixture(scope="module")
def demo(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {DEMO}"}, timeout=180, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def admin(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {ADMIN}"}, timeout=180, trust_env=False) as client:
        yield client


class Raw(NamedTuple):
    """An answer read off the socket."""

    status: int
    text: str

    @property
    def problem(self) -> dict[str, Any]:
        head, _, body = self.text.partition("\r\n\r\n")
        assert "application/problem+json" in head
        found: dict[str, Any] = json.loads(body)
        return found


def raw(url: str, head: str, body: bytes = b"", *, key: str | None = DEMO) -> Raw:
    """Send bytes as they are; the connection is closed by the server."""
    host, _, port = url.removeprefix("http://").partition(":")
    lines = [head, f"Host: {host}", "Connection: close", *([f"Authorization: Bearer {key}"] if key else [])]
    with socket.create_connection((host, int(port)), timeout=180) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        # The host's answers are chunked.
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        text = "\r\n".join(f"{name}: {value}" for name, value in answer.getheaders()) + "\r\n\r\n" + answer.read().decode()
        return Raw(answer.status, text)


def code(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body = answer.json()
    assert {"type", "title", "status", "detail", "instance"} <= set(body) and body["status"] == answer.status_code
    return str(body["type"]).rpartition("/")[2]


def count(demo: httpx.Client) -> int:
    """Events of the tenant."""
    page = demo.get(EVENTS, params={"limit": 1000}).json()
    assert page["next"] is None
    return len(page["items"])


def test_chunked_body_is_411_and_stores_nothing(url: str, demo: httpx.Client) -> None:
    before = count(demo)
    body = json.dumps(GOOD).encode()
    chunked = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
    for path in (EVENTS, f"{EVENTS}/batch"):
        answer = raw(url, f"POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked", chunked)
        assert answer.status == 411 and answer.problem["type"].endswith("/length-required")
    assert raw(url, f"POST {EVENTS} HTTP/1.1\r\nTransfer-Encoding: chunked", chunked, key=None).status == 401
    assert count(demo) == before


def test_body_with_a_length_of_nothing_is_422(url: str) -> None:
    answer = raw(url, f"POST {EVENTS} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 0")
    assert answer.status == 422 and answer.problem["errors"][0]["pointer"] == ""


def test_oversize_bodies_are_413_and_store_nothing(demo: httpx.Client) -> None:
    before = count(demo)
    kind = {"content-type": "application/json"}
    event = json.dumps(GOOD).encode()
    for path, body in (
        (EVENTS, event + b" " * (512 * 1024)),
        (EVENTS, json.dumps(GOOD | {"payload": "x" * (256 * 1024)}).encode()),
        (f"{EVENTS}/batch", b"[" + event + b" " * (16 * 1024 * 1024) + b"]"),
        (f"{EVENTS}/batch", b"[" + b",".join([event] * 10_001) + b"]"),
    ):
        answer = demo.post(path, content=body, headers=kind)
        assert answer.status_code == 413 and code(answer) in ("content-too-large", "payload-too-large")
    assert count(demo) == before


def test_bytes_that_are_no_utf_8_are_422(demo: httpx.Client) -> None:
    before = count(demo)
    kind = {"content-type": "application/json"}
    for body in (b'{"delay":"PT1H","payload":"\xff"}', b'{"delay":"PT1H","payload":"\xed\xa0\x80"}', '{"a":1}'.encode("utf-16"), b"\x00"):
        answer = demo.post(EVENTS, content=body, headers=kind)
        assert (answer.status_code, code(answer), answer.json()["errors"][0]["pointer"]) == (422, "malformed-json", "")
    assert count(demo) == before


def test_no_or_another_content_type_is_415(url: str, demo: httpx.Client) -> None:
    body = json.dumps(GOOD).encode()
    answer = raw(url, f"POST {EVENTS} HTTP/1.1\r\nContent-Length: {len(body)}", body)
    assert answer.status == 415 and answer.problem["type"].endswith("/unsupported-media-type")
    for kind in ("text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert demo.post(EVENTS, content=body, headers={"content-type": kind}).status_code == 415
    assert demo.post(EVENTS, content=body, headers={"content-type": "application/json", "content-encoding": "gzip"}).status_code == 415


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "TRACE", "PURGE"])
def test_method_that_no_route_has_is_404(demo: httpx.Client, method: str) -> None:
    for path in (EVENTS, f"{EVENTS}/batch", f"{EVENTS}/a/fire", "/api/v1/tenants/demo/channels/default/pause"):
        answer = demo.request(method, path)
        assert answer.status_code == 404


@pytest.mark.parametrize("path", ["/api", "/api/v1", "/api/v2/events", f"{EVENTS}/a/b/c", "/api/v1/event", "/%2e%2e/"])
def test_path_that_no_route_has_is_404(demo: httpx.Client, path: str) -> None:
    assert demo.get(path).status_code == 404


@pytest.mark.parametrize("event_id", ["a%00b", "a%0D%0Ab", "a%2Fb", "%C3%A4", "%FF", "a%20b", "%22", "a" * 201])
def test_ids_that_are_none_are_404(demo: httpx.Client, event_id: str) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/fire"), ("POST", "/redrive")):
        assert demo.request(method, f"{EVENTS}/{event_id}{path}").status_code == 404


def test_control_characters_in_an_id_are_422(demo: httpx.Client) -> None:
    for chosen in ("a\x00", "a\nb", "\x7f", "a\u202eb"):
        answer = demo.post(EVENTS, json=GOOD | {"id": chosen})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/id")


def test_query_is_read_as_sent(demo: httpx.Client) -> None:
    wrong = (("limit=1&limit=2", "?limit"), ("limit=", "?limit"), ("limit=%31%30x", "?limit"), ("%00=1", "?\x00"), ("x", "?x"))
    for query, pointer in wrong:
        answer = demo.get(f"{EVENTS}?{query}")
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert demo.get(f"{EVENTS}?from=2030-01-01T00:00:00+02:00&limit=%31%30").status_code == 200


def test_event_lives_over_http_with_etag_and_if_match(demo: httpx.Client) -> None:
    text = '{ "id" : "http:1", "delay":"PT12H","payload":{"n": 1e2, "s":"\\u00e4\U0001f514", "b": 12345678901234567890123}}'
    made = demo.post(EVENTS, content=text.encode(), headers={"content-type": "application/json; charset=utf-8"})
    assert (made.status_code, made.headers["location"]) == (201, f"{EVENTS}/http:1")
    again = demo.post(EVENTS, content=text.encode(), headers={"content-type": "application/json"})
    assert (again.status_code, again.headers["etag"], again.content) == (200, made.headers["etag"], made.content)
    assert code(demo.post(EVENTS, json={"id": "http:1", "delay": "PT12H", "payload": 0})) == "id-conflict"
    url, tag = made.headers["location"], made.headers["etag"]
    assert '"payload":{"n": 1e2, "s":"\\u00e4\U0001f514", "b": 12345678901234567890123}' in demo.get(url).text
    assert code(demo.patch(url, json={"payload": 2}, headers={"if-match": '"x"'})) == "precondition-failed"
    changed = demo.patch(url, json={"payload": "x" * 50_000}, headers={"if-match": tag})
    assert changed.status_code == 200 and changed.headers["etag"] != tag
    shrunk = demo.patch(url, json={"payload": 2, "delay": "PT13H"})
    assert (shrunk.status_code, shrunk.json()["payload"]) == (200, 2)
    assert code(demo.delete(url, headers={"if-match": tag})) == "precondition-failed"
    assert demo.delete(url, headers={"if-match": shrunk.headers["etag"]}).status_code == 204
    assert code(demo.delete(url)) == "already-final"


def test_batch_over_http_takes_good_lines_and_shows_bad_ones(demo: httpx.Client) -> None:
    line = json.dumps(GOOD | {"id": "http:twice"}).encode()
    other = json.dumps(GOOD | {"id": "http:twice", "payload": 2}).encode()
    body = b"\r\n".join([line, b'{"delay":"PT1H","payload":"\xff"}', line, other, b"17", json.dumps(GOOD).encode()]) + b"\r\n"
    answer = demo.post(f"{EVENTS}/batch", content=body, headers={"content-type": "application/x-ndjson"})
    assert answer.status_code == 200
    assert [entry["status"] for entry in answer.json()["results"]] == [201, 422, 200, 409, 422, 201]


def test_event_is_fired_and_delivered_to_the_local_receiver(demo: httpx.Client) -> None:
    made = demo.post(EVENTS, json=GOOD | {"labels": {"a": "b"}})
    fired = demo.post(f"{made.headers['location']}/fire")
    assert fired.status_code == 202

    def delivered() -> Any:
        found = demo.get(made.headers["location"]).json()
        assert found["state"] not in ("dead", "cancelled", "lapsed"), found
        return found if found["state"] == "delivered" else None

    event = wait_until(delivered, "the delivery")
    assert event["late_ms"] >= 0 and len(event["attempts"]) == 1


def test_limits_are_429_with_retry_after(admin: httpx.Client, url: str) -> None:
    assert admin.put("/api/v1/tenants/slow", json={"limits": {"events_per_second": 0.01}}).status_code == 201
    hook = {"type": "http", "url": "http://127.0.0.1:9/"}
    assert admin.put("/api/v1/tenants/slow/channels/default", json=hook).status_code == 201
    assert admin.post(EVENTS, params={"tenant": "slow"}, json=GOOD).status_code == 201
    answer = admin.post(EVENTS, params={"tenant": "slow"}, json=GOOD)
    assert (answer.status_code, code(answer)) == (429, "too-many-requests")
    assert 1 <= int(answer.headers["retry-after"]) <= 100


def test_strangers_learn_nothing(url: str) -> None:
    for head in (f"GET {EVENTS} HTTP/1.1", "GET /api/v1/tenants HTTP/1.1", f"POST {EVENTS}?x=%ff HTTP/1.1\r\nContent-Length: 1"):
        answer = raw(url, head, b"{" if "POST" in head else b"", key=None)
        assert answer.status == 401 and "WWW-Authenticate" in answer.text.title().replace("Www-", "WWW-")
    assert raw(url, f"GET {EVENTS} HTTP/1.1\r\nAuthorization: Bearer wrong-key-123", key=None).status == 401


def test_document_is_served(url: str) -> None:
    answer = httpx.get(f"{url}/api/openapi.json", trust_env=False, timeout=180)
    assert answer.status_code == 200
    assert answer.json() == DOCUMENT


def test_probes_answer_without_a_key(url: str) -> None:
    assert httpx.get(f"{url}/api/healthz", trust_env=False, timeout=180).json() == {"status": "alive"}
    assert httpx.get(f"{url}/api/readyz", trust_env=False, timeout=180).status_code == 200
