"""Events that are due when they are posted: from the start of the POST to the arrival at the receiver, and their storage transactions."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from shared.app.application import Application
from shared.scheduler.model import EventIn
from shared.storage.azure.queues import AzureQueues
from shared.whatif.twin.trigger import QueueTrigger, ticking

from ..report import Figure
from ..tools.receiver import Arrivals, Connection
from ..tools.stage import KEY, TENANT, Host, Run, application, devhost, emulator, payload, requests_of

ADMIN = "local-admin-key"
HEADERS = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
LONE_EVERY = 5.0
"""Seconds between two lone events."""


class NotedArrivals(Arrivals):
    """Keeps each event's id with the moment of its arrival, on the monotonic clock."""

    def by_id(self) -> dict[str, float]:
        """Return the first arrival of each event, in seconds of `time.monotonic`."""
        offset = time.time() - time.monotonic()
        found: dict[str, float] = {}
        for at, head in self.seen:
            fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
            found.setdefault(fields[b"ce-id"].decode(), at / 1e9 - offset)
        return found


@asynccontextmanager
async def _receiving() -> AsyncIterator[tuple[NotedArrivals, str]]:
    arrivals = NotedArrivals()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(arrivals), "127.0.0.1", 0, backlog=1024)
    try:
        yield arrivals, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


async def _post(host: Host, began: dict[str, float], answered: list[float]) -> None:
    start = time.monotonic()
    body = f'{{"delay": "PT0S", "payload": {payload(0)}}}'
    async with host.session.post(f"{host.url}/api/v1/events", data=body, headers=HEADERS) as answer:
        document = json.loads(await answer.read())
        assert answer.status == 201, document
    answered.append(time.monotonic() - start)
    began[document["id"]] = start


async def _paced(run: Run, name: str, count: int, pause: float, p50: float, p99: float) -> list[Figure]:
    """Post `count` events, one each `pause` seconds, whatever the answers take."""
    began: dict[str, float] = {}
    answered: list[float] = []
    with emulator() as azurite:
        async with _receiving() as (arrivals, url), devhost(azurite.connection_string, url) as host:
            # Two events that do not count: they open connections.
            for _ in range(2):
                await _post(host, {}, [])
                await asyncio.sleep(1.0)
            first = time.monotonic()
            posts = []
            for number in range(count):
                await asyncio.sleep(max(0.0, first + number * pause - time.monotonic()))
                posts.append(asyncio.create_task(_post(host, began, answered)))
                run.report_progress(name, number + 1, count)
            await asyncio.gather(*posts)
            # What has not come by then is counted as missing.
            for _ in range(600):
                if len(arrivals.seen) >= count + 2:
                    break
                await asyncio.sleep(0.05)
            came = arrivals.by_id()
    took = sorted(1000 * (came[each] - start) for each, start in began.items() if each in came)
    missing = len(began) - len(took)
    answer = 1000 * statistics.median(answered)
    note = f"{len(took)} events, {missing} did not come; max {took[-1]:.0f} ms; answered in {answer:.1f} ms (p50)"
    details = {"milliseconds": took}
    return [
        Figure(f"{name}: from POST to arrival, p50", statistics.median(took), "ms", "<=", p50, note, details),
        Figure("  p99", took[min(len(took) - 1, len(took) * 99 // 100)], "ms", "<=", p99),
    ]


async def lone(run: Run) -> list[Figure]:
    """Measure one event each 5 s, and nothing else."""
    return await _paced(run, "due now, one each 5 s", run.pick(60, 8), LONE_EVERY, 20, 80)


async def five(run: Run) -> list[Figure]:
    """Measure 5 events a second."""
    return await _paced(run, "due now, 5/s", run.pick(300, 50), 1 / 5, 15, 60)


async def fifty(run: Run) -> list[Figure]:
    """Measure 50 events a second."""
    return await _paced(run, "due now, 50/s", run.pick(2_000, 300), 1 / 50, 15, 60)


async def asked(run: Run) -> list[Figure]:
    """Measure events that a request makes due: fired events, triggered occurrences, redriven dead events, and callbacks.

    The time runs from the start of the request to the arrival; for a callback, from the event's arrival to its own.
    """
    each = run.pick(40, 8)
    found: dict[str, list[float]] = {}
    with emulator() as azurite:
        async with _receiving() as (arrivals, url), _refusing() as refused, devhost(azurite.connection_string, url) as host:
            await _lone_post(host, arrivals, {})
            for path, body in (
                (f"tenants/{TENANT}/channels/mended", {"type": "http", "url": refused}),
                ("schedules/daily", {"cron": "0 0 1 1 *", "timezone": "UTC", "payload": {}}),
            ):
                await _called(host, "PUT", path, body)
            later = [await _called(host, "POST", "events", {"delay": "P1D", "payload": {}}) for _ in range(each)]
            dead = [await _called(host, "POST", "events", {"delay": "PT0S", "channel": "mended", "payload": {}}) for _ in range(each)]
            for event in dead:
                await _dead(host, event["id"])
            await _called(host, "PUT", f"tenants/{TENANT}/channels/mended", {"type": "http", "url": url})
            # Processes use a cached channel for some seconds.
            await asyncio.sleep(10.0)
            for number in range(each):
                for kind, path in (
                    ("fire", f"events/{later[number]['id']}/fire"),
                    ("trigger", "schedules/daily/trigger"),
                    ("redrive", f"events/{dead[number]['id']}/redrive"),
                ):
                    start = time.monotonic()
                    answer = await _called(host, "POST", path)
                    found.setdefault(kind, []).append(1000 * (await _arrival(arrivals, answer["id"]) - start))
                    await asyncio.sleep(LONE_EVERY / 4)
                found.setdefault("callback", []).append(await _lone_post(host, arrivals, {"on_delivered": "default"}))
                run.report_progress("due on request", number + 1, each)
    return [
        Figure(
            f"{kind}: to arrival, p99",
            sorted(took)[min(len(took) - 1, len(took) * 99 // 100)],
            "ms",
            "<=",
            100,
            f"{len(took)}, one at a time; p50 {statistics.median(took):.0f} ms",
            {"milliseconds": sorted(took)},
        )
        for kind, took in found.items()
    ]


async def _called(host: Host, method: str, path: str, body: object = None) -> dict[str, Any]:
    headers = {**HEADERS, "authorization": f"Bearer {ADMIN if path.startswith('tenants/') else KEY}"}
    async with host.session.request(method, f"{host.url}/api/v1/{path}", data=json.dumps(body or {}), headers=headers) as answer:
        document: dict[str, Any] = json.loads(await answer.read())
        assert answer.status < 300, document
    return document


async def _dead(host: Host, event: str) -> None:
    """Wait until an event is dead."""
    for _ in range(200):
        if (await _called(host, "GET", f"events/{event}"))["state"] == "dead":
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"{event} was not dead after 20 s")


async def _arrival(arrivals: NotedArrivals, event: str) -> float:
    """Return the first arrival of an event once it has come."""
    for _ in range(20_000):
        if event in (came := arrivals.by_id()):
            return came[event]
        await asyncio.sleep(0.001)
    raise TimeoutError(f"{event} did not come within 20 s")


async def _lone_post(host: Host, arrivals: NotedArrivals, more: dict[str, str]) -> float:
    """Post an event that is due now; return the milliseconds from its arrival to that of its callback, if it has one, else 0."""
    before = len(arrivals.seen)
    document = await _called(host, "POST", "events", {"delay": "PT0S", "payload": {}, **more})
    at = await _arrival(arrivals, document["id"])
    if not more:
        return 0.0
    for _ in range(20_000):
        if len(arrivals.seen) > before + 1:
            return max(0.0, 1000 * (max(arrivals.by_id().values()) - at))
        await asyncio.sleep(0.001)
    raise TimeoutError("the callback did not come within 20 s")


@asynccontextmanager
async def _refusing() -> AsyncIterator[str]:
    """Give the URL of a receiver that refuses each delivery for good."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


async def transactions(run: Run) -> list[Figure]:
    """Count the storage transactions of a lone event that is due when it is posted, from its ingest until its shard is finished."""
    with emulator() as azurite:
        trigger = AzureQueues.from_connection_string(azurite.connection_string)
        async with application(azurite.connection_string) as (app, _), QueueTrigger(app.scheduler, trigger, app.clock) as pump:
            # The first event makes the tenant's rows of figures.
            await app.timers.sweep()
            await _finish_one(app)
            total, reads, note = await _counted(run, app, pump, run.pick(8, 2))
        await trigger.close()
    return [
        Figure("storage transactions of a lone event that is due now", total - reads, "", "<=", 6, note),
        Figure("  reads of settings, which are known for 1 to 5 s", reads, note="a look at the marks of changes; once a minute the rows"),
    ]


async def executions(run: Run) -> list[Figure]:
    """Count the messages that the safety net of express delivery sends in normal running: each is an execution of the queue trigger."""
    seconds = run.pick(60.0, 20.0)
    name = "executions by the safety net, an express event"
    with emulator() as azurite:
        trigger = AzureQueues.from_connection_string(azurite.connection_string)
        async with (
            application(azurite.connection_string) as (app, receiver),
            QueueTrigger(app.scheduler, trigger, app.clock) as pump,
            ticking(app),
        ):
            await _finish_one(app)
            sent, served, shards = _sends(app), pump.served, app.scheduler.counters["shards_express"]
            came, began = len(receiver.received), app.clock.monotonic()
            posts: list[asyncio.Task[int]] = []
            chance = random.Random(1)
            while app.clock.monotonic() - began < seconds:
                posts.append(asyncio.create_task(_post_mixed(app, len(posts), chance)))
                run.report_progress(name, app.clock.monotonic() - began, seconds)
                await asyncio.sleep(chance.expovariate(5.0))
            posted = sum(await asyncio.gather(*posts))
            # The sweep looks at shards without an owner 45 s after their time.
            for _ in range(1_800):
                if len(receiver.received) >= came + posted and not app.scheduler.express.shards and not app.scheduler.firing.serving:
                    break
                await asyncio.sleep(0.05)
            messages, executed = _sends(app) - sent, pump.served - served
            missing = came + posted - len(receiver.received)
            shards = app.scheduler.counters["shards_express"] - shards
        await trigger.close()
    note = (
        f"{posted} events that were due within 2 s, alone and by tens, one in ten posts with an id of the client, in {shards} express "
        f"shards; {messages} messages, {executed} executions; {missing} did not come"
    )
    details = {"events": posted, "messages": messages, "executions": executed}
    return [Figure(name, max(messages, executed) / posted, "", "<=", 0.01, note, details)]


async def _post_mixed(app: Application, number: int, chance: random.Random) -> int:
    """Post one event, or ten at once; return their number."""
    delay = f"PT{chance.choice((0.0, 0.0, chance.uniform(0.0, 1.5))):.3f}S"
    if number % 10 == 0:
        event = EventIn.model_validate({"delay": delay, "id": f"own-{number}", "payload": None})
    elif number % 10 == 1:
        each = f'{{"delay": "{delay}", "payload": {payload(number)}}}'.encode()
        results = await app.scheduler.ingest.each(TENANT, [each] * 10)
        return sum(getattr(result, "new", False) for result in results)
    else:
        event = EventIn.model_validate({"delay": delay, "payload": None})
    await app.scheduler.ingest.one(TENANT, event, payload(number).encode())
    return 1


def _sends(app: Application) -> int:
    """Return the messages that the app has put into queues so far."""
    return int(app.storage.queues.transactions["send"])  # type: ignore[attr-defined]


async def _counted(run: Run, app: Application, pump: QueueTrigger, count: int) -> tuple[float, float, str]:
    """Return the transactions of an event, the reads of single rows among them, and what they are."""
    adapters = (app.storage.tables, app.storage.queues)
    for adapter in adapters:
        adapter.transactions.clear()  # type: ignore[attr-defined]
    served = pump.served
    for number in range(count):
        await asyncio.sleep(LONE_EVERY + 0.1)
        await _finish_one(app)
        run.report_progress("transactions of a lone event", number + 1, count)
    tables, queues = (dict(each.transactions) for each in adapters)  # type: ignore[attr-defined]
    # A message that reaches the trigger is received and deleted.
    total = sum(requests_of(each.transactions) for each in adapters) + 2 * (pump.served - served)  # type: ignore[attr-defined]
    note = f"{count} events, 5 s apart; tables {tables.get('write', 0)} writes, {tables.get('get', 0)} gets, "
    note += f"{tables.get('query', 0)} queries; queues {queues.get('send', 0)} sends, {pump.served - served} executions"
    return total / count, tables.get("get", 0) / count, note


async def _finish_one(app: Application) -> None:
    """Post an event, and wait until its shard has left the index."""
    event = EventIn.model_validate({"delay": "PT0S", "payload": None})
    await app.scheduler.ingest.one(TENANT, event, payload(0).encode())
    for _ in range(600):
        if not app.scheduler.express.shards and not app.scheduler.firing.serving:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError("the event was not finished within 30 s")
