"""The end of the worker process: how the host causes it, and what it changes for the host."""

import base64
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from azure.storage.queue import QueueClient

from devhost.azurite import Azurite
from tests.waiting import wait_until

from .conftest import SAMPLE, Process, workers_of
from .test_azurite import alive
from .test_process import BARE, NOWHERE, request

Start = Callable[..., Process]


@contextmanager
def gated(devhost: Start, azurite: Azurite, **environment: str) -> Iterator[tuple[Process, QueueClient]]:
    """A devhost whose queue function holds a message of the yielded queue."""
    name = f"held-{os.urandom(6).hex()}"
    with QueueClient.from_connection_string(azurite.connection_string, name) as queue:
        queue.create_queue()
        process = devhost(*BARE, AzureWebJobsStorage=azurite.connection_string, SAMPLE_QUEUE=name, **environment)
        process.ready()
        queue.send_message(base64.b64encode(b"wait").decode())
        wait_until(lambda: process.notes("work"), "the message in work")
        yield process, queue


def test_worker_that_is_killed_is_replaced_and_what_ran_in_it_fails(devhost: Start) -> None:
    process = devhost(*BARE, AzureWebJobsStorage=NOWHERE)
    url = process.ready()
    answer = request(f"{url}/api/gate")
    process.wait_for_file("started")
    [worker] = workers_of(process.popen.pid)
    os.kill(worker, signal.SIGKILL)
    failed = answer()
    assert isinstance(failed, httpx.Response) and (failed.status_code, failed.content) == (500, b"")
    # A request that comes before the next worker is there waits for it.
    assert httpx.get(f"{url}/api/noop", timeout=180).text == "ok"
    assert workers_of(process.popen.pid) != [worker]
    # A tick of the timer may run beside the request.
    assert re.search(r"\(SIGKILL\): [12] invocation", process.text)


def test_worker_is_killed_when_a_function_runs_too_long(devhost: Start, tmp_path: Path) -> None:
    app = tmp_path / "app"
    shutil.copytree(SAMPLE, app)
    host = json.loads((app / "host.json").read_text())
    (app / "host.json").write_text(json.dumps({**host, "functionTimeout": "00:00:05"}))
    process = devhost(*BARE, app=app, AzureWebJobsStorage=NOWHERE)
    url = process.ready()
    assert httpx.get(f"{url}/api/hang", timeout=180).status_code == 500
    assert re.search(r"function hang .* functionTimeout \(5 s\)", process.text)
    assert httpx.get(f"{url}/api/noop", timeout=180).text == "ok"


def test_message_in_work_when_the_host_ends_stays_hidden(devhost: Start, azurite: Azurite) -> None:
    with gated(devhost, azurite, DEVHOST_GRACE="1") as (process, queue):
        [worker] = workers_of(process.popen.pid)
        process.signal(signal.SIGTERM)
        assert process.exit_code() == 0
        assert "cut off after 1 s: work" in process.text
        wait_until(lambda: not alive(worker), "the end of the worker")
        assert queue.get_queue_properties().approximate_message_count == 1
        assert queue.peek_messages() == []


def test_drain_starts_nothing_new_and_lets_what_runs_finish(devhost: Start, azurite: Azurite) -> None:
    key = {"x-functions-key": "the-key"}
    with gated(devhost, azurite, DEVHOST_MASTER_KEY="the-key") as (process, queue):
        url = process.ready()
        drain = f"{url}/admin/host/drain"
        assert httpx.post(drain, timeout=180).status_code == 401
        assert httpx.get(f"{drain}/status", headers=key, timeout=180).json()["state"] == "Disabled"
        assert httpx.post(drain, headers=key, timeout=180).status_code == 202
        one_runs = {"state": "InProgress", "outstandingInvocations": 1, "outstandingRetries": 0}

        def status() -> dict[str, object]:
            found: dict[str, object] = httpx.get(f"{drain}/status", headers=key, timeout=180).json()
            return found

        # A tick that has begun ends first.
        wait_until(lambda: status() == one_runs, "the message as the only one in work")
        queue.send_message(base64.b64encode(b"later").decode())
        ticks = len(process.notes("tick"))
        (process.meeting / "release").touch()
        wait_until(lambda: status()["state"] == "Completed", "the end of the message in work")
        wait_until(lambda: queue.get_queue_properties().approximate_message_count == 1, "the deletion of the finished message")
        assert [note["body"] for note in process.notes("work")] == ["wait"] and len(process.notes("tick")) == ticks
        assert httpx.get(f"{url}/api/noop", timeout=180).text == "ok"
        process.signal(signal.SIGTERM)
        assert process.exit_code() == 0


def test_groups_of_functions_run_apart_and_each_invocation_is_recorded(devhost: Start, azurite: Azurite, tmp_path: Path) -> None:
    record = tmp_path / "invocations.jsonl"
    environment = {"SPLIT": "1", "DEVHOST_INVOCATIONS": str(record), "DEVHOST_MASTER_KEY": "the-key"}
    with gated(devhost, azurite, **environment) as (process, _):
        url = process.ready()
        pids = {httpx.get(f"{url}/api/process", timeout=180).json(), *(note["pid"] for note in process.notes("work"))}
        wait_until(lambda: process.notes("tick"), "a tick")
        pids.add(process.notes("tick")[0]["pid"])
        assert len(pids) == 3
        assert httpx.get(f"{url}/api/process", timeout=180).json() in pids
        ticks, key = len(process.notes("tick")), {"x-functions-key": "the-key"}
        assert httpx.post(f"{url}/admin/functions/tick", headers=key, timeout=180).status_code == 202
        assert len(process.notes("tick")) > ticks
        assert httpx.post(f"{url}/admin/functions/none", headers=key, timeout=180).status_code == 404
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        found = [each for each in lines if "end" in each]
        # The invocation for the running message has begun and not ended.
        assert {each["function"] for each in lines} - {each["function"] for each in found} == {"work"}
        assert {(each["function"], each["group"], each["ok"]) for each in found} == {
            ("process", "http", True),
            ("tick", "function:tick", True),
        }
        assert all(each["asked"] <= each["start"] <= each["end"] for each in found)
        # The first tick waited for its process.
        assert next(each["start"] - each["asked"] for each in found if each["function"] == "tick") > 0
        process.signal(signal.SIGINT)
        assert process.exit_code() == 0
        wait_until(lambda: not any(alive(pid) for pid in pids), "the end of the workers")


def test_worker_lives_on_when_its_host_is_killed(devhost: Start) -> None:
    process = devhost(*BARE, AzureWebJobsStorage=NOWHERE)
    request(f"{process.ready()}/api/gate")
    process.wait_for_file("started")
    [worker] = workers_of(process.popen.pid)
    process.popen.kill()
    process.exit_code()
    (process.meeting / "release").touch()
    process.wait_for_file("finished")
    assert alive(worker)
    os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("limit", ["many", "-1"])
def test_wrong_body_limit_is_explained(devhost: Start, limit: str) -> None:
    process = devhost(*BARE, AzureWebJobsStorage=NOWHERE, FUNCTIONS_REQUEST_BODY_SIZE_LIMIT=limit)
    assert process.exit_code() == 1
    assert re.search(f"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT must .*'{limit}'", process.text)
