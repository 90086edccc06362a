"""A server that speaks HTTP, as the tests of fleets play it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from shared.leases.rows import fleet_key
from shared.web.local_client import LocalReply
from tests.unit.scheduler.harness import Client, World

WEB = "/api/v1/fleets/web"
KEY = fleet_key("demo", "web")
V = 15.0
T = 18.0
GRACE = 5.0


def uuid(number: int) -> str:
    return str(UUID(int=number))


class Node:
    """A server that speaks HTTP."""

    def __init__(self, client: Client, name: str, incarnation: int = 1) -> None:
        self.client, self.name, self.incarnation, self.seq = client, name, uuid(incarnation), 0

    async def beat(self, seq: int | None = None, **fields: Any) -> LocalReply:
        self.seq = self.seq + 1 if seq is None else seq
        return await self.client.post(f"{WEB}/nodes/{self.name}/beat", {"incarnation": self.incarnation, "seq": self.seq, **fields})

    async def beats(self, **fields: Any) -> dict[str, Any]:
        answer = await self.beat(**fields)
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    async def claim(self, *partitions: int) -> LocalReply:
        body = {"node": self.name, "incarnation": self.incarnation, "partitions": list(partitions)}
        return await self.client.post(f"{WEB}/leases/claim", body)

    async def claims(self, *partitions: int) -> tuple[dict[int, int], dict[int, str]]:
        answer = await self.claim(*partitions)
        assert answer.status == 200, answer
        found = answer.json()
        claimed = {each["partition"]: each["epoch"] for each in found["claimed"]}
        return claimed, {each["partition"]: each["reason"] for each in found["refused"]}

    async def release(self, partition: int, epoch: int) -> LocalReply:
        body = {"node": self.name, "incarnation": self.incarnation, "epoch": epoch}
        return await self.client.post(f"{WEB}/leases/{partition}/release", body)


async def quiet(world: World) -> None:
    """Looks that beats asked for are over."""
    await world.app.watch.takeover.quiet()
