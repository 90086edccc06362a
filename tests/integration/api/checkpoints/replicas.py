"""A replica that speaks HTTP, for the tests of turns."""

from __future__ import annotations

from typing import Any

from shared.leases.rows import fleet_key
from shared.web.local_client import LocalReply
from tests.unit.scheduler.harness import Client, World

DB = "/api/v1/fleets/db"
KEY = fleet_key("demo", "db")
MINUTE = 60.0
MAKE = {"partitions": 1, "checkpoints": {"timeout": {"initial": "PT10M", "min": "PT1M", "max": "PT1H"}}}
"""The definition of the fleet at `DB`."""


class Replica:
    """One process of a replica. Its clock runs `rate` times as fast as the world's, and stood at `born` when it began."""

    def __init__(self, client: Client, node: str, role: str = "secondary", *, born: int = 1000, rate: float = 1.0, **fields: Any) -> None:
        self.client, self.node, self.role, self.term = client, node, role, 7
        self.seq, self.taking, self.last, self.fields = 0, 0, 0, fields
        self._born, self._rate, self._since = born, rate, client.world.clock.monotonic()

    def body(self, **fields: Any) -> dict[str, Any]:
        mono = self._born + round((self.client.world.clock.monotonic() - self._since) * 1000 * self._rate)
        return {
            "seq": self.seq,
            "role": self.role,
            "term": self.term,
            "applied": 81231,
            "last_checkpoint": self.last,
            "taking": {"epoch": self.taking} if self.taking else None,
            "mono_ms": mono,
            **self.fields,
            **fields,
        }

    async def report(self, **fields: Any) -> LocalReply:
        self.seq += 1
        return await self.client.post(f"{DB}/replicas/{self.node}/report", self.body(**fields))

    async def reports(self, **fields: Any) -> dict[str, Any]:
        """A report that is taken: its answer."""
        answer = await self.report(**fields)
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    async def takes(self, **fields: Any) -> int:
        """Get a turn, and say so: its epoch."""
        answer = await self.reports(**fields)
        assert answer["turn"] is not None, answer
        self.taking = answer["turn"]["epoch"]
        await self.reports()
        return self.taking

    async def publish(self, epoch: int, sequence: int, **fields: Any) -> LocalReply:
        body = {"node": self.node, "sequence": sequence, "location": f"https://backups.example/{sequence}", "bytes": 1024} | fields
        return await self.client.post(f"{DB}/turns/{epoch}/publish", body)

    async def done(self, epoch: int, sequence: int) -> bool:
        """Publish, and end: whether it is the latest."""
        answer = await self.publish(epoch, sequence)
        assert answer.status == 200, answer
        self.taking, self.last = 0, sequence
        found: bool = answer.json()["latest"]
        return found


async def turns(client: Client) -> list[dict[str, Any]]:
    """All turns, newest first."""
    return await client.all(f"{DB}/turns")


async def scan(world: World) -> None:
    """The timer's tick."""
    await world.do(world.app.checkpoints.run_once(world.now))
