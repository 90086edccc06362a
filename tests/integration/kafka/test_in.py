"""Events in: from a broker, through the whole application."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest

from shared.core.errors import Unavailable
from shared.extras.kafka_source.ingest import KafkaIngest, consumer_opener
from shared.extras.kafka_source.sources import read_sources
from shared.scheduler.ingest.queue_consumer import IntakeResult, Item
from shared.storage.memory import MemoryTables

from .cluster import Cluster
from .conftest import App, eventually, source

type Apps = Callable[..., Any]


def event(n: int, key: bytes | None = None, **more: Any) -> tuple[bytes, bytes]:
    return key or b"k%d" % (n % 5), orjson.dumps({"delay": "PT1H", "payload": {"n": n}} | more)


async def test_valid_events_are_stored_and_invalid_ones_are_kept_as_rejects(broker: Cluster, apps: Apps) -> None:
    topic = broker.topic("in-mixed")
    app: App = await apps(kafka_sources=source(broker, topic, group="mixed"))
    bad: list[tuple[bytes | None, bytes | None]] = [
        (b"k", b"{not json"),
        (b"k", b'{"delay": "PT1H", "payload": 1, "surprise": 2}'),
        (b"k", b'{"payload": 1}'),
        (b"k", b""),
        (b"k", None),
    ]
    broker.put(topic, [event(0), *bad[:2], event(1, b"k", id="mine"), *bad[2:], event(2), event(3, b"k", id="mine")])
    counts = await app.tick(broker.done(topic, "mixed", 9))
    # Another body under an id that is taken is refused, here as over HTTP.
    assert counts == {"taken": 3, "rejected": 6}
    assert (await app.call("GET", "events/mine")).json()["payload"] == {"n": 1}
    assert sorted(found["payload"]["n"] for found in (await app.call("GET", "events")).json()["items"]) == [0, 1, 2]
    rejects = (await app.call("GET", "rejects")).json()["items"]
    assert len(rejects) == 6 and {found["origin"] for found in rejects} == {"kafka"}
    assert all(f"/{topic}/" in found["source"] for found in rejects)


async def test_events_come_in_and_are_delivered(broker: Cluster, apps: Apps) -> None:
    there, back = broker.topic("in-there"), broker.topic("in-back")
    app: App = await apps(kafka_sources=source(broker, there, group="through"))
    await app.channel(broker, topic=back)
    broker.put(there, [event(n, delay="PT0S", id=f"through-{n}") for n in range(50)])
    assert await app.tick(broker.done(there, "through", 50)) == {"taken": 50}
    messages = await asyncio.to_thread(broker.messages, back, 50)
    assert {dict(message.headers())["ce_id"].decode() for message in messages} == {f"through-{n}" for n in range(50)}


async def test_crash_before_the_commit_makes_no_event_twice(broker: Cluster, apps: Apps, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = broker.topic("in-crash")
    app: App = await apps()
    [found] = read_sources(source(broker, topic, group="crash"), emulated=True)
    broker.put(topic, [event(n) for n in range(5000)])

    def ingest() -> KafkaIngest:
        return KafkaIngest([found], app.app.scheduler.intake, app.clock, 600.0, consumer_opener(None))

    class Crash(Exception):
        pass

    dying = ingest()
    stored = 0

    class Dies:
        async def take(self, tenant: str, items: Sequence[Item], *, origin: str, uid: str) -> Sequence[IntakeResult]:
            nonlocal stored
            results = await app.app.scheduler.intake.take(tenant, items, origin=origin, uid=uid)
            stored += len(results)
            if stored >= 1200:
                raise Crash  # all is stored, nothing of it committed
            return results

    monkeypatch.setattr(dying._taps[0], "_intake", Dies())
    with pytest.raises(Exception, match="Crash"):
        await dying.run_once(app.clock.now())
    done = broker.committed(topic, "crash")
    assert done < stored < 5000
    successor = ingest()
    running = asyncio.create_task(successor.run_once(app.clock.now()))
    await eventually(broker.done(topic, "crash", 5000), "all offsets")
    successor.leave()
    assert (await running)["taken"] == 5000 - done
    await successor.close()
    assert (await app.stats())["open"] == 5000


async def test_storage_that_is_away_loses_nothing(broker: Cluster, apps: Apps, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = broker.topic("in-away")
    app: App = await apps(kafka_sources=source(broker, topic, group="away"), kafka_poll_seconds=1.0)
    broker.put(topic, [event(n) for n in range(200)])
    tables = app.storage.tables
    assert isinstance(tables, MemoryTables)
    honest = tables.write

    async def away(table: str, pk: str, *rest: Any, **more: Any) -> Any:
        if table != "TocsinSweeps":
            raise Unavailable("storage is away")
        return await honest(table, pk, *rest, **more)

    monkeypatch.setattr(tables, "write", away)
    counts: Counter[str] = Counter()

    async def waits() -> int:
        # A group can take longer to join than one tick.
        counts.update(await app.tick())
        return counts["waiting"]

    await eventually(waits, "a tick that waits for storage")
    assert "taken" not in counts
    assert broker.committed(topic, "away") == 0
    monkeypatch.setattr(tables, "write", honest)
    assert await app.tick(broker.done(topic, "away", 200)) == {"taken": 200}
    assert (await app.stats())["open"] == 200


async def test_tenant_over_its_rate_is_waited_for(broker: Cluster, apps: Apps) -> None:
    topic = broker.topic("in-rate")
    app: App = await apps(kafka_sources=source(broker, topic, group="rate"))
    settings = {"limits": {"events_per_second": 100}}
    assert (await app.call("PUT", "tenants/demo", settings, key="local-admin-key")).status == 200
    broker.put(topic, [event(n) for n in range(180)])
    counts = await app.tick(broker.done(topic, "rate", 180))
    assert counts == {"taken": 180}


async def test_partitions_that_move_between_two_living_members_lose_and_double_nothing(broker: Cluster, apps: Apps) -> None:
    topic = broker.topic("in-move")
    app: App = await apps()
    [found] = read_sources(source(broker, topic, group="move"), emulated=True)
    members = [KafkaIngest([found], app.app.scheduler.intake, app.clock, 600.0, consumer_opener(None)) for _ in range(2)]
    broker.put(topic, [event(n) for n in range(1500)])
    running = [asyncio.create_task(members[0].run_once(app.clock.now()))]
    await eventually(lambda: asyncio.to_thread(lambda: broker.committed(topic, "move") > 0), "a first commit")
    running.append(asyncio.create_task(members[1].run_once(app.clock.now())))
    broker.put(topic, [event(n) for n in range(1500, 3000)])
    await eventually(broker.done(topic, "move", 3000), "all offsets, with two members")
    # The first one leaves: what comes now can only be the second one's, on all partitions.
    members[0].leave()
    first = await running[0]
    await members[0].close()
    broker.put(topic, [event(n) for n in range(3000, 3300)])
    await eventually(broker.done(topic, "move", 3300), "all offsets, with one member left")
    members[1].leave()
    second = await running[1]
    await members[1].close()
    assert second["taken"] >= 300 and first["taken"] + second["taken"] >= 3300
    assert (await app.stats())["open"] == 3300
