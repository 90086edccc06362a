"""Queue triggers against a real Azurite: what happens to a message when its function succeeds, fails or is held up."""

import asyncio
import base64
import json
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import pytest
from azure.storage.queue.aio import QueueClient, QueueServiceClient

from devhost.azurite import Azurite, development_connection, free_ports
from devhost.host.queues import QueueFunctions
from devhost.host.settings import QueueOptions
from devhost.worker.model import FunctionInfo, InvocationResult, Invoker, TypedValue
from tests.waiting import eventually, wait_until

from .conftest import Process

QUICK = QueueOptions(batch_size=4, new_batch_threshold=2, max_polling_interval=0.2, max_dequeue_count=3)
Handler = Callable[[Any, dict[str, TypedValue]], Awaitable[InvocationResult]]


class StubWorker:
    """Runs a handler in place of a function, and counts."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.calls: list[tuple[str | bytes, int]] = []
        self.running = self.most = 0

    async def invoke(self, function: FunctionInfo, data: TypedValue, metadata: dict[str, TypedValue]) -> InvocationResult:
        self.calls.append((data[1], int(metadata["DequeueCount"][1])))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self.handler(data[1], metadata)
        finally:
            self.running -= 1


async def succeed(body: str, metadata: dict[str, TypedValue]) -> InvocationResult:
    return InvocationResult(None, None)


async def fail(body: str, metadata: dict[str, TypedValue]) -> InvocationResult:
    return InvocationResult(None, "no")


@pytest.fixture
def name() -> str:
    return f"q-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def service(azurite: Azurite) -> AsyncIterator[QueueServiceClient]:
    async with QueueServiceClient.from_connection_string(azurite.connection_string) as made:
        yield made


@pytest.fixture
async def queue(service: QueueServiceClient, name: str) -> QueueClient:
    return await service.create_queue(name)


@asynccontextmanager
async def polling(
    monkeypatch: pytest.MonkeyPatch,
    connection: str,
    name: str,
    worker: StubWorker,
    options: QueueOptions = QUICK,
    lease: float = 600.0,
    binding: dict[str, Any] | None = None,
) -> AsyncIterator[QueueFunctions]:
    monkeypatch.setenv("TestStorage", connection)
    trigger = {"type": "queueTrigger", "name": "msg", "queueName": name, "connection": "TestStorage", **(binding or {})}
    functions = QueueFunctions(cast(Invoker, worker), [FunctionInfo("f", (trigger,))], options, lease=lease)
    functions.start()
    try:
        yield functions
    finally:
        await functions.close()


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def count(queue: QueueClient) -> int:
    """Messages in the queue, hidden ones too."""
    return (await queue.get_queue_properties()).approximate_message_count or 0


async def until_count(queue: QueueClient, wanted: int) -> None:
    async def counted() -> bool:
        return await count(queue) == wanted

    await eventually(counted, f"{wanted} messages", pause=0.02)


async def test_successful_message_is_deleted(monkeypatch: Any, azurite: Azurite, queue: QueueClient, name: str) -> None:
    seen: list[dict[str, TypedValue]] = []

    async def handler(body: str, metadata: dict[str, TypedValue]) -> InvocationResult:
        seen.append(metadata)
        return InvocationResult(None, None)

    worker = StubWorker(handler)
    await queue.send_message(encode("grüße"))
    async with polling(monkeypatch, azurite.connection_string, name, worker):
        await until_count(queue, 0)
    assert worker.calls == [("grüße", 1)]
    assert set(seen[0]) == {"QueueTrigger", "Id", "DequeueCount", "InsertionTime", "ExpirationTime", "NextVisibleTime", "PopReceipt"}


async def test_failing_message_comes_back_until_it_moves_to_the_poison_queue_unchanged(
    monkeypatch: Any, azurite: Azurite, service: QueueServiceClient, queue: QueueClient, name: str
) -> None:
    worker = StubWorker(fail)
    await queue.send_message(encode("bad"))
    async with polling(monkeypatch, azurite.connection_string, name, worker):
        await until_count(queue, 0)
    assert worker.calls == [("bad", 1), ("bad", 2), ("bad", 3)]
    (message,) = [message async for message in service.get_queue_client(f"{name}-poison").receive_messages()]
    assert message.content == encode("bad")
    assert message.inserted_on is not None and message.expires_on is not None
    assert message.expires_on - message.inserted_on == timedelta(days=7)


async def test_message_that_is_not_utf8_fails_as_text_and_arrives_as_bytes(
    monkeypatch: Any, azurite: Azurite, service: QueueServiceClient, queue: QueueClient, name: str
) -> None:
    garbage = base64.b64encode(b"\xff\xfe").decode()
    worker = StubWorker(succeed)
    await queue.send_message(garbage)
    async with polling(monkeypatch, azurite.connection_string, name, worker):
        await until_count(queue, 0)
    assert worker.calls == []
    assert await count(service.get_queue_client(f"{name}-poison")) == 1
    await queue.send_message(garbage)
    async with polling(monkeypatch, azurite.connection_string, name, worker, binding={"dataType": "BINARY"}):
        await until_count(queue, 0)
    assert worker.calls == [(b"\xff\xfe", 1)]


async def test_failed_message_waits_for_the_visibility_timeout(monkeypatch: Any, azurite: Azurite, queue: QueueClient, name: str) -> None:
    worker = StubWorker(fail)
    await queue.send_message(encode("bad"))
    options = QueueOptions(max_polling_interval=0.1, visibility_timeout=3600)
    async with polling(monkeypatch, azurite.connection_string, name, worker, options):
        await eventually(lambda: worker.calls, "the call")
    assert await count(queue) == 1 and await queue.peek_messages() == []
    assert len(worker.calls) == 1


async def test_message_that_is_not_base64_goes_to_poison_without_a_call(
    monkeypatch: Any, azurite: Azurite, service: QueueServiceClient, queue: QueueClient, name: str
) -> None:
    worker = StubWorker(succeed)
    await queue.send_message("{not base64}")
    async with polling(monkeypatch, azurite.connection_string, name, worker):
        await until_count(queue, 0)
    assert worker.calls == []
    assert await count(service.get_queue_client(f"{name}-poison")) == 1


async def test_message_taken_too_often_goes_to_poison_without_a_call(
    monkeypatch: Any, azurite: Azurite, service: QueueServiceClient, queue: QueueClient, name: str
) -> None:
    await queue.send_message(encode("crashes the process"))
    for _ in range(3):
        async for message in queue.receive_messages(max_messages=1):
            await queue.update_message(message, visibility_timeout=0)
    worker = StubWorker(succeed)
    async with polling(monkeypatch, azurite.connection_string, name, worker):
        await until_count(queue, 0)
    assert worker.calls == []
    assert await count(service.get_queue_client(f"{name}-poison")) == 1


async def test_failure_in_a_poison_queue_leaves_the_message_hidden(
    monkeypatch: Any, azurite: Azurite, service: QueueServiceClient, name: str
) -> None:
    poison = await service.create_queue(f"{name}-poison")
    await poison.send_message(encode("bad"))
    worker = StubWorker(fail)
    async with polling(monkeypatch, azurite.connection_string, f"{name}-poison", worker):
        await eventually(lambda: worker.calls, "the call")
    assert await count(poison) == 1 and await poison.peek_messages() == []


async def test_missing_queue_is_polled_until_it_exists_with_a_warning_each_time(
    monkeypatch: Any, azurite: Azurite, service: QueueServiceClient, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker = StubWorker(succeed)
    async with polling(monkeypatch, azurite.connection_string, name, worker):
        await eventually(lambda: caplog.text.count("does not exist") >= 3, "three warnings")
        queue = await service.create_queue(name)
        await queue.send_message(encode("late"))
        await eventually(lambda: worker.calls, "the call")
        await until_count(queue, 0)
    assert {record.name for record in caplog.records if record.levelno >= logging.WARNING} == {"Azure.Core"}


async def test_lease_is_renewed_while_the_function_runs(monkeypatch: Any, azurite: Azurite, queue: QueueClient, name: str) -> None:
    release = asyncio.Event()

    async def handler(body: str, metadata: dict[str, TypedValue]) -> InvocationResult:
        await release.wait()
        return InvocationResult(None, None)

    worker = StubWorker(handler)
    await queue.send_message(encode("long"))
    async with polling(monkeypatch, azurite.connection_string, name, worker, lease=4.0) as functions:
        renewals = 0
        renew = functions.listeners[0]._renew

        async def counted(held: Any) -> None:
            nonlocal renewals
            await renew(held)
            renewals += 1

        monkeypatch.setattr(functions.listeners[0], "_renew", counted)
        await eventually(lambda: renewals >= 3, "renewals for longer than the lease")
        release.set()
        await until_count(queue, 0)
    assert worker.calls == [("long", 1)]


async def test_lost_lease_is_only_logged(
    monkeypatch: Any, azurite: Azurite, queue: QueueClient, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(body: str, metadata: dict[str, TypedValue]) -> InvocationResult:
        message = metadata["Id"][1]
        await queue.update_message(message, metadata["PopReceipt"][1], visibility_timeout=600)
        return InvocationResult(None, None)

    caplog.set_level(logging.DEBUG, "devhost.queues")
    await queue.send_message(encode("stolen"))
    async with polling(monkeypatch, azurite.connection_string, name, StubWorker(handler)):
        await eventually(lambda: "was not deleted" in caplog.text, "the log line")
    assert await count(queue) == 1
    assert not [record for record in caplog.records if record.name == "devhost.queues" and record.levelno >= logging.WARNING]


async def test_no_more_than_a_batch_and_the_threshold_run_at_once(
    monkeypatch: Any, azurite: Azurite, queue: QueueClient, name: str
) -> None:
    release = asyncio.Event()

    async def handler(body: str, metadata: dict[str, TypedValue]) -> InvocationResult:
        await release.wait()
        return InvocationResult(None, None)

    worker = StubWorker(handler)
    await asyncio.gather(*(queue.send_message(encode(str(n))) for n in range(20)))
    async with polling(monkeypatch, azurite.connection_string, name, worker):
        await eventually(lambda: worker.running >= QUICK.batch_size, "the first batch")
        release.set()
        await until_count(queue, 0)
    assert sorted(int(body) for body, _ in worker.calls) == list(range(20))
    assert worker.most <= QUICK.batch_size + QUICK.new_batch_threshold


async def test_stopping_lets_the_message_in_work_finish(monkeypatch: Any, azurite: Azurite, queue: QueueClient, name: str) -> None:
    release = asyncio.Event()

    async def handler(body: str, metadata: dict[str, TypedValue]) -> InvocationResult:
        await release.wait()
        return InvocationResult(None, None)

    worker = StubWorker(handler)
    await queue.send_message(encode("slow"))
    async with polling(monkeypatch, azurite.connection_string, name, worker) as functions:
        await eventually(lambda: worker.running, "the call")
        await functions.stop_polling()
        await queue.send_message(encode("later"))
        release.set()
        await until_count(queue, 1)
    assert worker.calls == [("slow", 1)]


async def test_outage_of_storage_is_logged_once_and_survived(monkeypatch: Any, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "devhost")
    blob, port, table = free_ports("127.0.0.1", 3)
    worker = StubWorker(succeed)
    async with polling(monkeypatch, development_connection(blob, port, table), name, worker) as functions:
        receive, polls = functions.listeners[0]._receive, 0

        async def counted() -> Any:
            nonlocal polls
            polls += 1
            return await receive()

        monkeypatch.setattr(functions.listeners[0], "_receive", counted)
        await eventually(lambda: polls >= 2, "a second poll")
        async with Azurite(blob=blob, queue=port, table=table, memory=True) as back:
            async with QueueClient.from_connection_string(back.connection_string, name) as queue:
                await queue.create_queue()
                await queue.send_message(encode("after the outage"))
                await eventually(lambda: worker.calls, "the call")
                await until_count(queue, 0)
            await functions.stop_polling()
    assert caplog.text.count("storage does not answer") == 1
    assert caplog.text.count("storage answers again") == 1


def test_queue_function_of_an_app_gets_the_message_with_its_fields(sample: Process, sample_url: str) -> None:
    async def send() -> None:
        import httpx

        async with httpx.AsyncClient(timeout=180) as client:
            connection = (await client.get(f"{sample_url}/api/environment/AzureWebJobsStorage")).text
        async with QueueClient.from_connection_string(connection, "sample-work") as queue:
            await queue.create_queue()
            await queue.send_message(encode(json.dumps({"n": 1})))
            await queue.send_message(encode("fail"))

    asyncio.run(send())
    wait_until(lambda: sample.notes("poison"), "the poison message")
    notes = sample.notes("work")
    (good,) = [note for note in notes if note["body"] != "fail"]
    assert json.loads(good["body"]) == {"n": 1}
    assert good["count"] == 1 and good["id"] and good["receipt"]
    assert good["inserted"] < good["visible"] < good["expires"]
    assert [note["count"] for note in notes if note["body"] == "fail"] == [1, 2]
    assert sample.notes("poison") == [{"body": "fail"}]
