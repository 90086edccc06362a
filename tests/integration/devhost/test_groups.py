"""Hosts that end and are started anew: because storage refuses connections, or because a group of functions has been idle."""

import asyncio
import base64
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from aiohttp import web
from azure.storage.queue import QueueClient

from devhost.azurite import Azurite, free_ports
from devhost.flex import FlexRules
from devhost.host.groups import HostGroup
from devhost.host.instance import HostParts
from devhost.host.queues import QueueFunctions, Refused
from devhost.worker.model import FunctionInfo, InvocationResult, Invoker
from devhost.worker.pool import WorkerPool
from tests.waiting import eventually, wait_until

from .conftest import Process, workers_of
from .test_azurite import alive
from .test_process import BARE, request
from .test_queues import QUICK

Start = Callable[..., Process]
SHORT = "ends=1.5,again=0.3,start=0.2,timers=0.5"
"""Rules of refusals, in less time."""
ENDS = "Host is shutting down"
KEY = {"x-functions-key": "the-key"}


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@contextmanager
def queue_of(azurite: Azurite) -> Iterator[QueueClient]:
    with QueueClient.from_connection_string(azurite.connection_string, f"groups-{os.urandom(6).hex()}") as queue:
        queue.create_queue()
        yield queue


def without_blobs(azurite: Azurite) -> str:
    """The connection string without the endpoint by which the devhost finds the account with the lease of the timers."""
    return ";".join(part for part in azurite.connection_string.split(";") if part and not part.startswith("BlobEndpoint=")) + ";"


def answers(url: str) -> str | None:
    """The answer of a route that needs no storage; None where the connection is refused or cut."""
    try:
        return httpx.get(f"{url}/api/process", timeout=180).text
    except httpx.TransportError:
        return None


def refuses(url: str) -> bool:
    with socket.socket() as probe:
        port = int(url.rpartition(":")[2])
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[tuple[Azurite, Azurite]]:
    """Storage of the test's own that it may stop, and the same storage once more, which it may start afterwards."""
    first = Azurite(location=tmp_path / "data")
    again = Azurite(location=tmp_path / "data", blob=first.blob, queue=first.queue, table=first.table)
    with ExitStack() as stack:
        stack.callback(again.stop)
        stack.callback(first.stop)
        first.start()
        yield first, again


def test_a_dead_account_ends_the_whole_host_again_and_again_until_it_is_back(devhost: Start, mortal: tuple[Azurite, Azurite]) -> None:
    azurite, again = mortal
    with queue_of(azurite) as queue:
        process = devhost(*BARE, AzureWebJobsStorage=azurite.connection_string, SAMPLE_QUEUE=queue.queue_name, DEVHOST_REFUSED=SHORT)
        url = process.ready()
        queue.send_message(encode("wait"))
        wait_until(lambda: process.notes("work"), "the message in work")
        pids = {answers(url)}
        running = request(f"{url}/api/hang")
        process.wait_for_file("started")
        azurite.stop()
        wait_until(lambda: refuses(url), "the end of the host, requests included")
        assert isinstance(running(), httpx.TransportError), "a running request is cut off"
        wait_until(lambda: not alive(int(next(iter(pids)) or 0)), "the end of its worker process")
        pids.add(wait_until(lambda: answers(url), "the next host to answer"))
        wait_until(lambda: process.text.count(ENDS) >= 3, "three ends")
        again.start()
        pids.add(wait_until(lambda: answers(url), "the last host to answer"))
        assert len(pids - {None}) >= 2
        queue.send_message(encode("later"))
        wait_until(lambda: "later" in [note["body"] for note in process.notes("work")], "a message of the time afterwards")
        # The killed host had taken the first message: it stays hidden, for ten minutes.
        assert [note["body"] for note in process.notes("work")].count("wait") == 1
        wait_until(lambda: queue.get_queue_properties().approximate_message_count == 1, "the end of the later message")
        ends = process.text.count(ENDS)
        assert answers(url) is not None and process.text.count(ENDS) == ends
        assert process.popen.poll() is None


def test_requests_live_on_where_the_groups_of_functions_run_apart(devhost: Start, mortal: tuple[Azurite, Azurite]) -> None:
    azurite, again = mortal
    with queue_of(azurite) as queue:
        process = devhost(
            *BARE, AzureWebJobsStorage=azurite.connection_string, SAMPLE_QUEUE=queue.queue_name, DEVHOST_REFUSED=SHORT, SPLIT="1"
        )
        url = process.ready()
        queue.send_message(encode("before"))
        wait_until(lambda: process.notes("work"), "the message in work")
        worker, pid = process.notes("work")[0]["pid"], answers(url)
        azurite.stop()
        ended: list[str | None] = []

        def twice() -> bool:
            ended.append(answers(url))
            return process.text.count(f"{ENDS} (function:work)") >= 2

        wait_until(twice, "two ends of the group that listens")
        assert set(ended) == {pid}
        assert f"{ENDS} (http)" not in process.text
        wait_until(lambda: not alive(worker), "the end of its worker process")
        again.start()
        queue.send_message(encode("after"))
        wait_until(lambda: "after" in [note["body"] for note in process.notes("work")], "a message of the time afterwards")
        assert process.notes("work")[-1]["pid"] != worker


def test_the_account_with_the_lease_of_the_timers_ends_the_host_and_the_next_has_no_timers_until_it_is_back(
    devhost: Start, azurite: Azurite
) -> None:
    [port] = free_ports("127.0.0.1", 1)
    blobs = f"BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1"
    with queue_of(azurite) as queue, ExitStack() as account:
        account.enter_context(socket.create_server(("127.0.0.1", port), backlog=1000))
        process = devhost(*BARE, AzureWebJobsStorage=without_blobs(azurite) + blobs, SAMPLE_QUEUE=queue.queue_name, DEVHOST_REFUSED=SHORT)
        url = process.ready()
        wait_until(lambda: len(process.notes("tick")) > 1, "two ticks")
        account.close()
        wait_until(lambda: f"{ENDS} (http): the lease of the timers" in process.text, "the end of the host")
        wait_until(lambda: "started anew" in process.text, "the next host")
        pid = int(wait_until(lambda: answers(url), "its answer"))
        queue.send_message(encode("meanwhile"))
        wait_until(lambda: process.notes("work"), "a message without timers")
        assert pid not in [note["pid"] for note in process.notes("tick")]
        with socket.create_server(("127.0.0.1", port), backlog=1000):
            wait_until(lambda: pid in [note["pid"] for note in process.notes("tick")], "a tick in the same process")
            assert int(answers(url) or 0) == pid


@asynccontextmanager
async def account(status: int) -> AsyncIterator[tuple[str, list[str]]]:
    """An account that answers each request with a status: its connection string, and the paths of its requests."""
    seen: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request.path)
        return web.Response(status=status)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;QueueEndpoint=http://127.0.0.1:{port}/a;", seen
    finally:
        await runner.cleanup()


class Idle:
    """Runs nothing."""

    async def invoke(self, *_: object) -> InvocationResult:
        raise AssertionError("there is no message")


async def ends_of(connection: str, monkeypatch: pytest.MonkeyPatch, enough: Callable[[list[str]], bool]) -> list[str]:
    """The reasons for which a host ends that polls a queue of an account."""
    ends: list[str] = []
    monkeypatch.setenv("TestStorage", connection)
    trigger = {"type": "queueTrigger", "name": "msg", "queueName": "q", "connection": "TestStorage"}
    refused = Refused(0.5, ends.append)
    functions = QueueFunctions(cast(Invoker, Idle()), [FunctionInfo("f", (trigger,))], QUICK, refused=refused)
    functions.start()
    try:
        await eventually(lambda: enough(ends), "enough polls")
    finally:
        await functions.cut()
    return ends


@pytest.mark.parametrize("status", [500, 503, 404, 403])
async def test_an_account_that_answers_ends_no_host_whatever_it_says(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    async with account(status) as (connection, seen):
        started = time.monotonic()
        assert await ends_of(connection, monkeypatch, lambda _: len(seen) > 8 and time.monotonic() - started > 1.0) == []


async def test_refused_connections_end_the_host_with_the_name_of_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    async with account(503) as (connection, _):
        pass
    [first, *_] = await ends_of(connection, monkeypatch, bool)
    assert first.startswith("queue q: ")


@contextmanager
def flex(devhost: Start, azurite: Azurite, rules: str, **environment: str) -> Iterator[tuple[Process, str, QueueClient]]:
    """A devhost whose groups go to zero, its URL, and the queue of its function."""
    with queue_of(azurite) as queue:
        process = devhost(
            *BARE,
            AzureWebJobsStorage=azurite.connection_string,
            SAMPLE_QUEUE=queue.queue_name,
            DEVHOST_FLEX=rules,
            DEVHOST_MASTER_KEY="the-key",
            **environment,
        )
        yield process, process.ready(), queue


def bodies(process: Process) -> list[str]:
    return [note["body"] for note in process.notes("work")]


def test_groups_begin_with_no_process_start_for_work_and_go_back_to_none(devhost: Start, azurite: Azurite) -> None:
    with flex(devhost, azurite, "idle=2,poll=0.3,cold=0.2,ticks=never") as (process, url, queue):
        first = answers(url)
        wait_until(lambda: workers_of(process.popen.pid) == [], "no process")
        queue.send_message(encode("one"))
        wait_until(lambda: bodies(process) == ["one"], "the message in work")
        wait_until(lambda: queue.get_queue_properties().approximate_message_count == 0, "its deletion")
        wait_until(lambda: workers_of(process.popen.pid) == [], "no process again")
        # The request waits for its process.
        second = answers(url)
        assert second is not None and second != first
        queue.send_message(encode("two"))
        wait_until(lambda: bodies(process) == ["one", "two"], "the second message in work")
        assert len({note["pid"] for note in process.notes("work")}) == 2
        assert process.notes("tick") == [], "no controller starts the group of the timer"


class Pool:
    """Stands for the worker processes; records which ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def ready(self, process: str) -> None:
        """Start nothing."""

    def end(self, process: str) -> list[str]:
        self.ended.append(process)
        return []


async def nothing() -> None:
    pass


async def test_an_instance_that_goes_away_ends_its_own_process_and_not_that_of_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool()
    parts = HostParts(cast(WorkerPool, pool), QUICK, None, FlexRules(idle=0.2), None)
    group = HostGroup("g", [], parts, nothing, nothing)
    await group.start()
    group.scale(1)
    [first] = await eventually(lambda: group.hosts, "an instance")
    finished = asyncio.Event()
    monkeypatch.setattr(first, "drain", finished.wait)
    await eventually(lambda: not group.hosts, "the instance to go away")
    group.scale(1)
    [second] = await eventually(lambda: group.hosts, "its successor")
    assert second.name != first.name and pool.ended == []
    finished.set()
    await eventually(lambda: first.name in pool.ended, "the end of its process")
    await group.close()


def test_an_instance_that_works_does_not_go_away_and_the_whole_length_wants_more_of_them(devhost: Start, azurite: Azurite) -> None:
    # One instance of the sample takes twelve messages.
    with flex(devhost, azurite, "idle=1,poll=0.3,most=2,ticks=never") as (process, _, queue):
        for _ in range(40):
            queue.send_message(encode("wait"))
        wait_until(lambda: len({note["pid"] for note in process.notes("work")}) == 2, "work in two processes")
        pids = {note["pid"] for note in process.notes("work")}
        (process.meeting / "release").touch()
        wait_until(lambda: len(bodies(process)) == 40, "all messages in work")
        wait_until(lambda: queue.get_queue_properties().approximate_message_count == 0, "their deletion")
        assert {note["count"] for note in process.notes("work")} == {1} and {note["pid"] for note in process.notes("work")} == pids
        wait_until(lambda: not any(alive(pid) for pid in pids), "the end of both")


def test_messages_of_a_killed_host_stay_hidden_and_wake_no_group(devhost: Start, azurite: Azurite) -> None:
    with flex(devhost, azurite, "idle=30,poll=0.3,ticks=never") as (process, url, queue):
        queue.send_message(encode("wait"))
        wait_until(lambda: bodies(process) == ["wait"], "the message in work")
        killed = process.notes("work")[0]["pid"]
        assert httpx.post(f"{url}/admin/host/kill/function:work", headers=KEY, timeout=180).status_code == 202
        assert httpx.post(f"{url}/admin/host/kill/none", headers=KEY, timeout=180).status_code == 404
        wait_until(lambda: not alive(killed), "the end of its process")
        assert queue.get_queue_properties().approximate_message_count == 1 and queue.peek_messages() == []
        queue.send_message(encode("next"))
        wait_until(lambda: bodies(process) == ["wait", "next"], "the next message, in another process")
        assert process.notes("work")[1]["pid"] != killed


def test_messages_that_a_killed_host_had_taken_come_back_when_they_are_no_longer_hidden(devhost: Start, azurite: Azurite) -> None:
    with flex(devhost, azurite, "idle=30,poll=0.3,hidden=2,ticks=never") as (process, url, queue):
        queue.send_message(encode("wait"))
        wait_until(lambda: bodies(process) == ["wait"], "the message in work")
        httpx.post(f"{url}/admin/host/kill/function:work", headers=KEY, timeout=180)
        (process.meeting / "release").touch()
        wait_until(lambda: [note["count"] for note in process.notes("work")] == [1, 2], "the message again")


def test_a_monitored_timer_whose_group_starts_after_the_tick_is_past_due(devhost: Start, azurite: Azurite) -> None:
    with flex(devhost, azurite, "idle=1,ticks=0.5", SAMPLE_SCHEDULE="*/6 * * * * *") as (process, _, _queue):

        def firsts() -> list[Any]:
            """The first tick of each process."""
            return list({each["pid"]: each for each in reversed(process.notes("tick"))}.values())

        wait_until(lambda: len(firsts()) >= 2, "ticks of two processes")
        assert all(each["past_due"] for each in firsts())


def test_a_disabled_function_is_not_there(devhost: Start, azurite: Azurite, mortal: tuple[Azurite, Azurite]) -> None:
    dead, _ = mortal
    with queue_of(dead) as queue:
        disabled = {f"AzureWebJobs.{name}.Disabled": "true" for name in ("work", "work_poison", "noop")}
        process = devhost(
            *BARE,
            AzureWebJobsStorage=without_blobs(dead),
            SAMPLE_QUEUE=queue.queue_name,
            DEVHOST_REFUSED=SHORT,
            **disabled,
        )
        url = process.ready()
        pid = answers(url)
        assert httpx.get(f"{url}/api/noop", timeout=180).status_code == 404
        dead.stop()
        ticks = len(process.notes("tick"))
        # More time than after which a host with listeners would have ended.
        wait_until(lambda: len(process.notes("tick")) >= ticks + 4, "four ticks of a second")
        assert answers(url) == pid and ENDS not in process.text
