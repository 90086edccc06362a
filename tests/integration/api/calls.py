"""Calls and states that tests of events, and of the ingest queue, share."""

from __future__ import annotations

import json
from typing import Any

from shared.delivery.channels.ports import Verdict
from shared.storage.names import QUEUE_INGEST
from tests.unit.scheduler.harness import DEMO, Client, World

EVENTS = "/api/v1/events"
DEAD = "/api/v1/dead-letters"
REJECTS = "/api/v1/rejects"
GOOD: dict[str, Any] = {"delay": "PT1M", "payload": {"n": 1}}
AGAIN = Verdict("retry", 503, "answered 503")
NEVER = Verdict("final", 400, "answered 400")


async def changes_nothing(client: Client, method: str, url: str, body: Any = None, **headers: str) -> Any:
    """The answer to a call that must leave everything stored as it is."""
    before = client.world.dump()
    answer = await client.call(method, url, body, {name.replace("_", "-"): value for name, value in headers.items()})
    assert client.world.dump() == before
    return answer


def changes_of(url: str) -> list[tuple[str, str, Any]]:
    """Every way to change the event at `url`."""
    return [("DELETE", url, None), ("PATCH", url, {"payload": 2}), ("PATCH", url, {"delay": "PT1S"}), ("POST", f"{url}/fire", None)]


async def dead(world: World, **event: Any) -> dict[str, Any]:
    """An event that could not be delivered."""
    world.receiver.otherwise = NEVER
    made = await world.demo.create(**({"delay": "PT0S"} | event))
    await world.run(3)
    world.receiver.otherwise = Verdict("delivered", 200)
    assert (await world.demo.event(made["id"]))["state"] == "dead"
    return made


async def send(world: World, body: Any) -> None:
    """Return the message that a producer puts into the queue."""
    await world.queues.send(QUEUE_INGEST, body if isinstance(body, str) else json.dumps(body))


def letter(*events: Any, tenant: str = "demo", key: str = DEMO) -> dict[str, Any]:
    return {"tenant": tenant, "key": key, "events": list(events)}


async def rejects(client: Client, query: str = "") -> list[dict[str, Any]]:
    return await client.all(REJECTS + query)


def code(reject: dict[str, Any]) -> str:
    return str(reject["problem"]["type"].rpartition("/")[2])


def waiting(world: World) -> int:
    return len(world.queues._queues[QUEUE_INGEST].messages)
