"""Large objects are freed without the garbage collector, which runs rarely: refused requests, and the events of finished shards.

The collector cannot look into errors of pydantic, so it would never free a request to which one of them refers.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from shared.core.errors import Unavailable
from shared.scheduler.protocol.owning import OwnerSession
from shared.web.serve import ApiRequest

from .harness import World

LATER = {"delay": "PT1H", "payload": "x"}
NOWHERE = {**LATER, "channel": "nowhere"}


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


@pytest.mark.parametrize(("path", "body", "status"), [("/api/v1/events", LATER, 503), ("/api/v1/events/batch", [LATER, LATER], 200)])
async def test_a_call_that_storage_fails_is_freed_at_once(left: Left, path: str, body: Any, status: int) -> None:
    world = await World().open()
    assert (await world.demo.get("/api/v1/key")).status == 200

    async def away(*_: Any) -> Any:
        raise Unavailable("away")

    world.tables.write = away  # type: ignore[method-assign]
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
