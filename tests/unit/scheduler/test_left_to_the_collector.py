"""Large objects are freed without the garbage collector, which runs rarely: refused requests, and the events of finished shards.

The collector cannot look into errors of pydantic, so it would never free a request to which one of them refers.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pytest

from shared.core.errors import Unavailable
from shared.scheduler.protocol.owning import OwnerSession
from shared.storage.names import EVENTS
from shared.storage.ports import Op
from shared.web.serve import ApiRequest

from .harness import World

LATER = {"delay": "PT1H", "payload": "x"}
NOWHERE = {**LATER, "channel": "nowhere"}
SIZE = 100_000
CALLS = 5
LARGE: dict[str, Any] = {"delay": "PT1H", "payload": "x" * SIZE}


class Left:
    """The objects that a test has made and that are not freed."""

    def __init__(self) -> None:
        # Kept, so that no new object gets the id of an old one.
        self._before = gc.get_objects()
        self._known = set(map(id, self._before))

    def of[T](self, kind: type[T]) -> list[T]:
        return [each for each in gc.get_objects() if type(each) is kind and id(each) not in self._known]


@pytest.fixture
def left() -> Iterator[Left]:
    gc.collect()
    gc.disable()
    yield Left()
    gc.enable()


@pytest.fixture
def traced(left: Left) -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/v1/events", {**LATER, "id": "taken", "payload": "another"}, 409),
        ("/api/v1/events", NOWHERE, 422),
        ("/api/v1/events", {"payload": "x"}, 422),
        ("/api/v1/events", {"payload": "x", "delay": "soon"}, 422),
        ("/api/v1/events", {**LATER, "labels": 1}, 422),
        ("/api/v1/events/batch", [LATER, {"payload": "x"}, {"payload": "x", "delay": "soon"}], 200),
        ("/api/v1/schedules/preview", {"cron": "none", "interval": "soon"}, 422),
        ("/api/v1/events/batch", [], 422),
        ("/api/v1/events/batch", [LATER, NOWHERE], 200),
        ("/api/v1/schedules/none/trigger", None, 404),
    ],
)
async def test_a_refused_call_is_freed_at_once(left: Left, path: str, body: Any, status: int) -> None:
    world = await World().open()
    await world.demo.create(**LATER, id="taken")
    assert (await world.demo.post(path, body)).status == status
    assert not left.of(ApiRequest)
    await world.close()


async def test_the_events_of_a_finished_shard_are_freed_at_once(left: Left) -> None:
    world = await World().open()
    for _ in range(3):
        await world.demo.create(delay="PT10S")
    await world.run(60.0)
    assert len(world.receiver.received) == 3
    assert not any(session.rows for session in left.of(OwnerSession))
    await world.close()


async def _kept(world: World, path: str, body: bytes, status: int) -> int:
    """Return the bytes of memory that `CALLS` calls with this body leave behind."""
    before = 0
    for number in range(CALLS + 1):
        assert (await world.demo.call("POST", path, body)).status == status
        if number == 0:
            # The first call loads modules and fills caches, which stay.
            before = tracemalloc.get_traced_memory()[0]
    return tracemalloc.get_traced_memory()[0] - before


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (orjson.dumps(LARGE)[:-1], 422),
        (orjson.dumps(LARGE | {"delay": "soon"}), 422),
        (orjson.dumps(LARGE | {"channel": "none"}), 422),
        (orjson.dumps(LARGE | {"content_type": "image/png", "payload": "!" * SIZE}), 422),
    ],
    ids=["not JSON", "not valid", "no channel", "no base64"],
)
async def test_body_of_a_refused_event_is_freed(body: bytes, status: int) -> None:
    world = await World().open()
    assert await _kept(world, "/api/v1/events", body, status) < SIZE
    await world.close()


@pytest.mark.usefixtures("traced")
async def test_body_of_an_event_over_the_rate_limit_is_freed() -> None:
    world = await World().open()
    assert (await world.admin.put("/api/v1/tenants/demo", {"limits": {"events_per_second": 0.001}})).status == 200
    await world.demo.create()
    assert await _kept(world, "/api/v1/events", orjson.dumps(LARGE), 429) < SIZE
    assert await _kept(world, "/api/v1/events/batch", orjson.dumps([LARGE] * 3), 429) < SIZE
    await world.close()


@pytest.mark.usefixtures("traced")
async def test_body_of_refused_lines_of_a_batch_is_freed() -> None:
    world = await World().open()
    lines = [LARGE | {"channel": "none"}, LARGE | {"delay": "soon"}, LARGE | {"on_conflict": "redrive", "id": "a"}]
    assert await _kept(world, "/api/v1/events/batch", orjson.dumps(lines), 200) < SIZE
    await world.close()


@pytest.mark.usefixtures("traced")
async def test_body_of_an_event_that_storage_does_not_accept_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await World().open()
    write = world.tables.write

    async def away(table: str, pk: str, ops: Sequence[Op]) -> Any:
        if table == EVENTS:
            raise Unavailable("throttled")
        return await write(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", away)
    assert await _kept(world, "/api/v1/events", orjson.dumps(LARGE), 503) < SIZE
    assert await _kept(world, "/api/v1/events/batch", orjson.dumps([LARGE] * 3), 200) < SIZE
    await world.close()
