"""Calls and states that tests of events share."""

from __future__ import annotations

from typing import Any

from shared.channels.ports import Verdict
from tests.unit.scheduler.harness import Client, World

EVENTS = "/api/v1/events"
DEAD = "/api/v1/dead-letters"
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
