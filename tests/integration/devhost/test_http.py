"""The HTTP side against the sample app, through real sockets."""

import base64
import http.client
import json
import os
import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.waiting import wait_until

from .conftest import BODY_LIMIT, Process


@pytest.fixture
def client(sample_url: str) -> Any:
    with httpx.Client(base_url=f"{sample_url}/api", timeout=180) as made:
        yield made


@pytest.mark.parametrize(
    ("method", "path", "function", "route"),
    [
        ("GET", "/items/17", "item_1_int", {"id": "17"}),
        ("GET", "/items/7d444840-9dc0-11d1-b245-5ffdce74fad2", "item_2_guid", {"id": "7d444840-9dc0-11d1-b245-5ffdce74fad2"}),
        ("GET", "/items/a%20%C3%A4", "item_3_any", {"id": "a ä"}),
        ("GET", "/items/fixed", "item_3_any", {"id": "fixed"}),
        ("PUT", "/items/fixed", "item_put", {"id": "fixed"}),
        ("POST", "/items/x/fire", "fire", {"id": "x"}),
        ("GET", "/optional", "optional", {}),
        ("GET", "/optional/1", "optional", {"id": "1"}),
        ("DELETE", "/echo/a/b%2Fc", "echo", {"rest": "a/b%2Fc"}),
        ("GET", "/plain", "plain", {}),
    ],
)
def test_request_reaches_the_function(client: httpx.Client, method: str, path: str, function: str, route: dict[str, str]) -> None:
    answer = client.request(method, path).json()
    assert (answer["function"], answer["route"], answer["method"]) == (function, route, method)


@pytest.mark.parametrize(("method", "path"), [("GET", "/nothing"), ("DELETE", "/items/1"), ("POST", "/noop"), ("GET", "/items/x/fire")])
def test_unknown_path_and_wrong_method_are_404_without_a_body(client: httpx.Client, method: str, path: str) -> None:
    response = client.request(method, path)
    assert (response.status_code, response.content) == (404, b"")


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
def test_methods_that_no_route_names_are_404(client: httpx.Client, method: str) -> None:
    assert client.request(method, "/noop").status_code == 404


def test_answers_are_framed_as_those_of_the_hosts_server(client: httpx.Client) -> None:
    full, empty = client.get("/noop"), client.get("/nothing")
    assert full.headers["server"] == empty.headers["server"] == "Kestrel"
    assert full.headers["transfer-encoding"] == "chunked" and full.text == "ok"
    assert empty.headers["content-length"] == "0"


def test_a_caller_of_http_1_0_gets_an_answer_that_is_not_chunked(sample_url: str) -> None:
    parts = urlsplit(sample_url)
    with socket.create_connection((parts.hostname, parts.port), timeout=180) as connection:
        connection.sendall(b"GET /api/noop HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(1000), b""))
    assert answer.endswith(b"\r\n\r\nok") and b"chunked" not in answer


def ask(url: str, host: bytes, path: bytes = b"/api/noop") -> bytes:
    """Return the answer's bytes to a GET with this Host header."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=180) as connection:
        connection.sendall(b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (path, host))
        return b"".join(iter(lambda: connection.recv(1000), b""))


@pytest.mark.parametrize(
    "host", [b"localhost", b"LocalHost.:1", b"127.0.0.1:9", b"127.8.0.1", b"[::1]:7071", b"tocsin", b"Named.Example:80", b"[fd00::7]"]
)
def test_loopback_and_named_hosts_are_answered(sample_url: str, host: bytes) -> None:
    assert ask(sample_url, host).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "host",
    [b"evil.example", b"localhost.evil.example:7071", b"127.0.0.1.nip.io", b"127.1", b"10.0.0.1", b"", b"[::1", b"::1", b"a@localhost"],
)
def test_a_web_page_that_resolves_its_name_to_this_machine_reaches_nothing(sample_url: str, client: httpx.Client, host: bytes) -> None:
    receiver = client.get("/environment/TOCSIN_RECEIVER").text
    for url, path in ((sample_url, b"/api/noop"), (sample_url, b"/"), (sample_url, b"/admin/host/ping"), (receiver, b"/")):
        assert ask(url, host, path).startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 "))


def test_a_body_over_the_hosts_limit_is_a_500_that_does_not_wait_for_it(sample_url: str) -> None:
    parts = urlsplit(sample_url)
    with socket.create_connection((parts.hostname, parts.port), timeout=180) as connection:
        connection.sendall(f"POST /api/mirror HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_LIMIT + 1}\r\n\r\nbegin".encode())
        answer = b"".join(iter(lambda: connection.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 500 ") and answer.endswith(b"\r\n\r\n")


def test_the_hosts_own_pages(sample_url: str) -> None:
    home = httpx.get(sample_url, timeout=180)
    assert home.status_code == 200 and "<title>" in home.text
    assert httpx.get(f"{sample_url}/admin/host/ping", timeout=180).status_code == 200
    for path in ("/admin", "/admin/host/status", "/admin/functions"):
        assert httpx.get(sample_url + path, timeout=180).status_code == 401
    assert httpx.get(f"{sample_url}/administration", timeout=180).status_code == 404


def test_prefix_is_needed(sample_url: str) -> None:
    assert httpx.get(f"{sample_url}/noop", timeout=180).status_code == 404


def test_query_and_headers_arrive_as_the_host_sends_them(client: httpx.Client) -> None:
    headers = [("X-Many", "1"), ("X-Many", "2"), ("X-Case", "Kept As Is")]
    answer = client.get("/echo/x?a=1&b=&c=%20y+z&a=2&d", headers=headers).json()
    assert answer["params"] == {"a": "1,2", "c": " y z"}
    assert answer["headers"]["x-many"] in ("1,2", "1, 2") and answer["headers"]["x-case"] == "Kept As Is"
    assert answer["url"] == f"{client.base_url}echo/x?a=1&b=&c=%20y+z&a=2&d"


@pytest.mark.parametrize("size", [0, 1, 70_000, 20 * 1024 * 1024])
def test_binary_body_passes_both_ways(client: httpx.Client, size: int) -> None:
    body = os.urandom(size)
    response = client.post("/mirror", content=body)
    assert response.status_code == 200 and response.content == body


def test_chunked_body_arrives_empty_and_the_connection_goes_on(client: httpx.Client) -> None:
    answer = client.post("/echo/x", content=iter([b"abc", b"def"])).json()
    assert answer["body"] == "" and answer["headers"]["transfer-encoding"] == "chunked"
    assert client.get("/noop").text == "ok"


def test_expect_100_continue_is_answered_before_the_body(sample_url: str) -> None:
    parts = urlsplit(sample_url)
    with socket.create_connection((parts.hostname, parts.port), timeout=180) as connection:
        head = "POST /api/echo/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"abc")
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        assert base64.b64decode(json.loads(reply.read())["body"]) == b"abc"
        reply.close()


def test_response_is_carried_through(client: httpx.Client) -> None:
    response = client.get("/reply")
    assert response.status_code == 207 and response.content == b"\x00\xff"
    assert response.headers["x-thing"] == "a b" and response.headers["etag"] == '"1"'
    assert response.headers["content-type"] == "application/x-thing"
    assert response.headers["transfer-encoding"] == "chunked" and "content-length" not in response.headers
    assert response.headers.get_list("set-cookie") == [
        "one=1; max-age=60; path=/; secure; samesite=lax; httponly",
        "two=2; expires=Wed, 21 Oct 2026 07:28:00 GMT; domain=example.org",
    ]


def test_failing_function_is_a_500_without_details_and_the_reason_is_logged(client: httpx.Client, sample: Process) -> None:
    response = client.get("/boom")
    assert (response.status_code, response.content) == (500, b"")
    wait_until(lambda: "function boom failed: RuntimeError: boom was asked for" in sample.text, "the log line")


def test_disconnect_of_the_client_does_not_stop_the_invocation(sample_url: str, sample: Process) -> None:
    parts = urlsplit(sample_url)
    for name in ("started", "release", "finished"):
        (sample.meeting / name).unlink(missing_ok=True)
    with socket.create_connection((parts.hostname, parts.port), timeout=180) as connection:
        connection.sendall(b"GET /api/gate HTTP/1.1\r\nHost: localhost\r\n\r\n")
        sample.wait_for_file("started")
    (sample.meeting / "release").touch()
    sample.wait_for_file("finished")


def test_app_learns_its_storage_and_receiver_before_it_is_imported(client: httpx.Client) -> None:
    storage = client.get("/environment/TocsinStorage").text
    assert "AccountName=devstoreaccount1" in storage and ":10001" not in storage
    assert client.get("/environment/AzureWebJobsStorage").text == storage
    receiver = client.get("/environment/TOCSIN_RECEIVER").text
    assert receiver.startswith("http://127.0.0.1:") and not receiver.endswith(":7072/")
    headers = {"ce-id": "e1", "ce-tocsinlatems": "7", "ce-tocsinattempt": "1"}
    assert httpx.post(receiver, headers=headers, content=b"hi", timeout=180).status_code == 204
    last = httpx.get(receiver, timeout=180).json()[-1]
    assert (last["id"], last["late_ms"], last["attempt"], last["body"], last["status"]) == ("e1", "7", "1", "hi", 204)
    assert httpx.post(f"{receiver}status/503", content=b"x" * 201, timeout=180).status_code == 503
    assert httpx.post(f"{receiver}status/99", content=b"hi", timeout=180).status_code == 204
    assert httpx.get(receiver, timeout=180).text.endswith("\n]\n")
