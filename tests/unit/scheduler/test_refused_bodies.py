"""The body of a refused call is freed when the call is answered, without the garbage collector."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pytest

from shared.core.errors import Unavailable
from shared.storage.names import EVENTS
from shared.storage.ports import Op

from .harness import World

SIZE = 100_000
CALLS = 5
EVENT: dict[str, Any] = {"delay": "PT1H", "payload": "x" * SIZE}


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


async def _kept(world: World, path: str, body: bytes, status: int) -> int:
    """Return the bytes of memory that `CALLS` calls with this body leave behind."""
    before = 0
    for number in range(CALLS + 1):
        assert (await world.demo.call("POST", path, body)).status == status
        if number == 0:
            # The first call loads modules and fills caches, which stay.
            before = tracemalloc.get_traced_memory()[0]
    return tracemalloc.get_traced_memory()[0] - before


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (orjson.dumps(EVENT)[:-1], 422),
        (orjson.dumps(EVENT | {"delay": "soon"}), 422),
        (orjson.dumps(EVENT | {"channel": "none"}), 422),
        (orjson.dumps(EVENT | {"content_type": "image/png", "payload": "!" * SIZE}), 422),
    ],
    ids=["not JSON", "not valid", "no channel", "no base64"],
)
async def test_body_of_a_refused_event_is_freed(body: bytes, status: int) -> None:
    world = await World().open()
    assert await _kept(world, "/api/v1/events", body, status) < SIZE
    await world.close()


@pytest.mark.usefixtures("without_collector")
async def test_body_of_an_event_over_the_rate_limit_is_freed() -> None:
    world = await World().open()
    assert (await world.admin.put("/api/v1/tenants/demo", {"limits": {"events_per_second": 0.001}})).status == 200
    await world.demo.create()
    assert await _kept(world, "/api/v1/events", orjson.dumps(EVENT), 429) < SIZE
    assert await _kept(world, "/api/v1/events/batch", orjson.dumps([EVENT] * 3), 429) < SIZE
    await world.close()


@pytest.mark.usefixtures("without_collector")
async def test_body_of_refused_lines_of_a_batch_is_freed() -> None:
    world = await World().open()
    lines = [EVENT | {"channel": "none"}, EVENT | {"delay": "soon"}, EVENT | {"on_conflict": "redrive", "id": "a"}]
    assert await _kept(world, "/api/v1/events/batch", orjson.dumps(lines), 200) < SIZE
    await world.close()


@pytest.mark.usefixtures("without_collector")
async def test_body_of_an_event_that_storage_does_not_accept_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await World().open()
    write = world.tables.write

    async def away(table: str, pk: str, ops: Sequence[Op]) -> Any:
        if table == EVENTS:
            raise Unavailable("throttled")
        return await write(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", away)
    assert await _kept(world, "/api/v1/events", orjson.dumps(EVENT), 503) < SIZE
    assert await _kept(world, "/api/v1/events/batch", orjson.dumps([EVENT] * 3), 200) < SIZE
    await world.close()
