"""`tocsin dev`: a real process, real HTTP, and the call that it prints."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import httpx
import pytest

from devhost.azurite import Azurite
from tests.waiting import DEADLINE, ended, run, wait_until

from .dev import COMMAND, LocalProcess, call, post, put_channel, state

OWN = {
    "TOCSIN_ADMIN_KEY": "an-admin-key-of-my-own",
    "TOCSIN_SIGNING_KEY": "a-signing-key-of-my-own",
    "TOCSIN_KEY": "a-tenants-key-of-my-own",
}


def test_the_printed_call_is_delivered_to_the_receiver_and_shown_in_the_terminal(tmp_path: Path) -> None:
    with LocalProcess(tmp_path) as service:
        words = service.curl()
        assert words[:2] == ["curl", "-X"]
        made = json.loads(run([*words, "-sS"]).stdout)
        shown = service.received(made["id"])
        assert (json.loads(shown["body"]), shown["attempt"], shown["status"]) == ({"hello": "world"}, "1", 204)
        service.printed(f"delivered 204 {made['id']} to default")
        assert state(service.url, made["id"]) == "delivered"
        assert service.end() == 128 + signal.SIGINT
        assert "Traceback" not in service.seen()


def test_dashboard_document_and_page_of_the_receiver_answer_on_the_same_port(tmp_path: Path) -> None:
    with LocalProcess(tmp_path) as service, httpx.Client(base_url=service.url, trust_env=False, timeout=DEADLINE) as client:
        front = client.get("/", follow_redirects=True)
        assert (front.url.path, front.status_code) == ("/api/dashboard", 200)
        assert client.get("/api/openapi.json").json()["openapi"].startswith("3.")
        page = client.get("/receiver", headers={"accept": "text/html"})
        assert "/receiver/page.js" in page.text
        assert [client.get(f"/receiver/{name}").headers["content-type"] for name in ("page.js", "page.css")] == [
            "text/javascript; charset=utf-8",
            "text/css; charset=utf-8",
        ]
        assert client.get("/api/readyz").status_code == 200
        assert client.get("/nothing").status_code == 404


def test_a_request_for_another_host_name_is_refused(tmp_path: Path) -> None:
    with LocalProcess(tmp_path) as service:
        assert httpx.get(f"{service.url}/receiver", headers={"host": "evil.example"}, trust_env=False, timeout=DEADLINE).status_code == 403


def test_a_failing_receiver_is_retried_and_the_terminal_shows_it(tmp_path: Path) -> None:
    with LocalProcess(tmp_path) as service:
        put_channel(service.url, "fails", f"{service.url}/receiver/status/503")
        post(service.url, {"id": "no", "delay": "PT0S", "payload": 1, "channel": "fails"})
        service.printed("retry 503")
        service.printed("attempt 2")


def test_json_reports_have_one_line_each(tmp_path: Path) -> None:
    with LocalProcess(tmp_path, "--json") as service:
        ready = json.loads(service.printed('"kind": "ready"').splitlines()[0])
        assert ready["key"] == "local-demo-key"
        url = ready["api"].removesuffix("/api/v1")
        made = post(url, {"delay": "PT0S", "payload": {"a": "b\nc"}})
        lines = [json.loads(line) for line in service.printed(made["id"]).splitlines()]
        assert [(line["kind"], line["outcome"], line["status"]) for line in lines[1:]] == [("delivery", "delivered", 204)]


def test_events_of_a_killed_service_are_delivered_after_the_next_start_with_the_same_folder(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    with LocalProcess(tmp_path / "one", "--data", folder) as service:
        kept = post(service.url, {"id": "kept", "delay": "PT3S", "payload": 1})
        queued = post(service.url, {"id": "retried", "delay": "PT0S", "payload": 2, "channel": "default", "on_delivered": "default"})
        assert service.received(queued["id"])["id"] == "retried"
        service.process.kill()
        service.process.wait()
    with LocalProcess(tmp_path / "two", "--data", folder) as service:
        # On another port: the channel has followed the receiver.
        assert service.received(kept["id"])["body"] == "1"
        assert service.end() == 128 + signal.SIGINT
    with LocalProcess(tmp_path / "three", "--data", folder) as service:
        assert state(service.url, "kept") == "delivered"


def test_a_second_service_with_the_same_folder_is_refused(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    with LocalProcess(tmp_path / "one", "--data", folder) as service:
        assert service.url
        done = run([*COMMAND, "--port", "0", "--data", folder])
        assert (done.returncode, done.stdout) == (2, "")
        assert "in use by another process" in done.stderr and "--data" in done.stderr and "Traceback" not in done.stderr
        assert service.process.poll() is None


def test_a_folder_that_was_used_with_the_public_key_does_not_keep_it_for_other_machines(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    with LocalProcess(tmp_path / "one", "--data", folder) as service:
        post(service.url, {"id": "first", "delay": "PT0S", "payload": 1})
        assert service.end() == 128 + signal.SIGINT
    with LocalProcess(tmp_path / "two", "--data", folder, "--host", "0.0.0.0", environment=OWN) as service:
        url = f"{service.url}/api/v1/events/first"
        assert [call("GET", url, key).status_code for key in ("local-demo-key", OWN["TOCSIN_KEY"])] == [401, 200]


def test_the_storage_may_be_an_emulator(tmp_path: Path) -> None:
    with Azurite(memory=True) as emulator, LocalProcess(tmp_path / "one", "--storage", emulator.connection_string) as service:
        made = post(service.url, {"id": "e", "delay": "PT3S", "payload": 1})
        assert service.received(made["id"])["body"] == "1"
        service.process.kill()
        service.process.wait()
        with LocalProcess(tmp_path / "two", "--storage", emulator.connection_string) as again:
            assert state(again.url, "e") == "delivered"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--storage", "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=c2VjcmV0"), "TOCSIN_ADMIN_KEY"),
        (("--storage", "shop"), "TOCSIN_ADMIN_KEY"),
        (("--storage", "Shop!"), "--storage"),
        (("--storage", "azurite", "--data", "folder"), "--data, --storage"),
    ],
)
def test_a_storage_that_cannot_be_used_is_refused_with_advice(arguments: tuple[str, ...], named: str, tmp_path: Path) -> None:
    with LocalProcess(tmp_path, *arguments) as service:
        assert ended(service.process, "tocsin dev", seen=service.seen) == 2
        assert named in service.seen() and "Traceback" not in service.seen() and "c2VjcmV0" not in service.seen()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run([*COMMAND, "--port", str(port)])
    assert done.returncode == 2
    assert f"port {port}" in done.stderr and "--port" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "own",
    [{}, OWN | {"TOCSIN_KEY": "local-demo-key-of-mine"}, OWN | {"TOCSIN_KEY": OWN["TOCSIN_ADMIN_KEY"]}, OWN | {"TOCSIN_KEY": "short"}],
)
def test_an_address_of_other_machines_is_refused_without_keys_of_ones_own(own: dict[str, str], tmp_path: Path) -> None:
    with LocalProcess(tmp_path, "--host", "0.0.0.0", environment=own) as service:
        assert ended(service.process, "tocsin dev", seen=service.seen) == 2
        assert "TOCSIN_ADMIN_KEY" in service.seen() and "Traceback" not in service.seen()
        assert not any(key in service.seen() for key in own.values())


def test_with_keys_of_ones_own_the_public_keys_open_nothing(tmp_path: Path) -> None:
    with (
        LocalProcess(tmp_path, "--host", "0.0.0.0", environment=OWN) as service,
        httpx.Client(base_url=service.url, trust_env=False, timeout=DEADLINE) as client,
    ):
        for key in ("local-demo-key", "local-admin-key"):
            assert client.get("/api/v1/events", headers={"authorization": f"Bearer {key}"}).status_code == 401
        assert client.get("/receiver").status_code == 401
        made = post(service.url, {"delay": "PT0S", "payload": 1}, OWN["TOCSIN_KEY"])
        wait_until(lambda: made["id"] in client.get("/receiver", auth=("", OWN["TOCSIN_KEY"])).text, "the delivery", seen=service.seen)
        assert not any(key in service.seen() for key in OWN.values())


def test_a_second_interrupt_ends_it_at_once(tmp_path: Path) -> None:
    with LocalProcess(tmp_path) as service, socket.create_server(("127.0.0.1", 0)) as silent:
        # A delivery that is under way keeps the first end waiting.
        put_channel(service.url, "silent", f"http://127.0.0.1:{silent.getsockname()[1]}/")
        post(service.url, {"delay": "PT0S", "payload": 1, "channel": "silent"})
        connection, _ = silent.accept()
        with connection:
            service.process.send_signal(signal.SIGINT)
            wait_until(lambda: "Ending." in service.seen(), "the first interrupt is heard", seen=service.seen)
            assert service.end() == 128 + signal.SIGINT
