"""`tocsin mcp` as assistants run it: a real process on standard input and output, driven by the SDK's own client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.paths import ROOT
from tests.waiting import DEADLINE, ended, eventually

from .dev import LocalProcess, post

ARGUMENTS = ("-m", "shared.cli", "mcp")
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProcess]:
    with LocalProcess(tmp_path_factory.mktemp("dev")) as running:
        assert running.url
        yield running


@pytest.fixture
def environment(service: LocalProcess, tmp_path: Path) -> dict[str, str]:
    """A connection in a file, whose key a variable holds."""
    connections = tmp_path / "profiles.toml"
    connections.write_text(f'default = "here"\n[here]\nurl = "{service.url}"\nkey_env = "MY_KEY"\n')
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    return {**inherited, "TOCSIN_PROFILES": str(connections), "MY_KEY": "local-demo-key", "TZ": "Europe/Berlin"}


@asynccontextmanager
async def assistant(environment: dict[str, str], log: Path, *arguments: str) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(command=sys.executable, args=[*ARGUMENTS, *arguments], env=environment, cwd=ROOT)
    with log.open("w") as errors:
        async with Client(stdio_client(parameters, errlog=errors)) as client:
            yield client


async def ask(client: Client, name: str, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    [content] = result.content
    assert content.type == "text"
    assert not result.is_error, content.text
    return json.loads(content.text)


async def test_an_assistant_finds_out_why_an_event_was_late(service: LocalProcess, environment: dict[str, str], tmp_path: Path) -> None:
    made = post(service.url, {"delay": "PT0S", "payload": {"hello": "world"}})
    service.received(made["id"])
    log = tmp_path / "errors"
    async with assistant(environment, log) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert "why_was_it_late" in tools and "cancel_event" not in tools
        found = await ask(client, "why_was_it_late", event_id=made["id"])
        assert found["state"] == "delivered" and found["late_ms"] >= 0 and found["due"]["local"][-6:] in ("+01:00", "+02:00")
        assert made["id"] in {each["id"] for each in (await ask(client, "list_events", state="delivered"))["items"]}
        assert "findings" in await ask(client, "doctor")
        refused = await client.call_tool("cancel_event", {"event_id": made["id"]})
        assert refused.is_error
    assert log.read_text() == ""


async def test_with_writes_an_assistant_changes_many_events_only_by_their_number(
    service: LocalProcess, environment: dict[str, str], tmp_path: Path
) -> None:
    async with assistant(environment, tmp_path / "errors", "--allow-writes") as client:
        for number in range(3):
            await ask(client, "create_event", payload=number, delay="P1D", event_id=f"many-{number}")
        job = await ask(client, "prepare_bulk", action="cancel", id_prefix="many-")
        refused = await client.call_tool("confirm_bulk", {"job_id": job["id"], "count": 2})
        assert refused.is_error and (await ask(client, "get_event", event_id="many-0"))["state"] == "scheduled"
        await ask(client, "confirm_bulk", job_id=job["id"], count=job["count"])

        async def finished() -> Any:
            found = await ask(client, "get_bulk_job", job_id=job["id"])
            return found if found["state"] != "running" else None

        assert (await eventually(finished, "the end of the job"))["done"] == 3
        assert (await ask(client, "get_event", event_id="many-2"))["state"] == "cancelled"


@contextmanager
def started(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The server, after its first answer. Everything on its standard output is the protocol."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, *ARGUMENTS], stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=ROOT) as process:
        try:
            send(process, json.dumps(HELLO).encode())
            assert received(process)["result"]["serverInfo"]["name"] == "tocsin"
            yield process
        finally:
            process.kill()


def send(process: subprocess.Popen[bytes], *lines: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n".join([*lines, b""]))
    process.stdin.flush()


def received(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_the_server_ends_with_its_standard_input(environment: dict[str, str]) -> None:
    with started(environment) as process:
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out, err) == (0, b"", b"")


def test_lines_that_are_not_the_protocol_do_not_end_the_server(environment: dict[str, str]) -> None:
    with started(environment) as process:
        ready, wanted = {"method": "notifications/initialized"}, {"id": 7, "method": "tools/list"}
        send(process, b"garbage", b"\xff\xfe", *(json.dumps({"jsonrpc": "2.0", **each}).encode() for each in (ready, wanted)))
        while (answer := received(process)).get("id") != 7:
            pass
        assert len(answer["result"]["tools"]) == 12
        process.communicate(timeout=DEADLINE)
        assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_without_a_traceback(environment: dict[str, str], number: int) -> None:
    with started(environment) as process:
        process.send_signal(number)
        assert ended(process, "tocsin mcp") == -number
        assert process.stderr is not None and process.stderr.read() == b""


async def test_a_key_that_the_app_refuses_is_a_failure_that_says_what_to_do(environment: dict[str, str], tmp_path: Path) -> None:
    async with assistant({**environment, "MY_KEY": "not-the-key"}, tmp_path / "errors") as client:
        result = await client.call_tool("list_events", {})
        [content] = result.content
        assert content.type == "text" and result.is_error and "TOCSIN_KEY" in content.text and "not-the-key" not in content.text
