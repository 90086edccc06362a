"""Records what this version stores in the middle of its work: `python -m tests.integration.stored.record`.

It writes `tests/data/stored.json`: every table and queue of an application that works on storage in memory, and the answers that it gives
at that instant. Tests let the present version serve it. Once a version is deployed, its recording stays beside later ones.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, cast

from shared.core.clock import to_millis
from shared.delivery.channels.ports import Verdict
from shared.engine.stored_forms import STORED_FORMS
from shared.leases.protocol import membership, takeover
from shared.leases.protocol.membership import ServerReport
from shared.leases.rows import fleet_key
from shared.leases.rules import ServerSession
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.names import ALL_QUEUES, ALL_TABLES, QUEUE_INGEST, QUEUE_SWEEPS
from shared.testing import Tocsin
from shared.testing.kit import START
from tests.paths import ROOT

FILE: Final = ROOT / "tests" / "data" / "stored.json"
ROUNDS, STEP = 69, 5.0
"""Heartbeats of each server, and the seconds between them."""
INCARNATIONS = {node: f"00000000-0000-0000-0000-00000000000{number}" for number, node in enumerate("abrq", 1)}
BUSY, DOWN, WRONG, NO = (
    Verdict("retry", 503, "busy"),
    Verdict("retry", 500, "down"),
    Verdict("final", 400, "wrong"),
    Verdict("retry", 500, "no"),
)
FREEZE, REBOOT = "602d9444-d2cd-49c7-8624-8643e7171297", "c7061bac-afdc-4513-b24b-aa5f13a16123"
ANSWERS = (
    *("events?limit=1000", "events?state=dead", "events?state=retrying", "events?label=shop%3D17", "dead-letters", "stats", "rejects"),
    *("schedules", "calendars", "jobs", "fleets", "fleets/web", "fleets/web/nodes", "fleets/web/leases", "fleets/web/leases/intents"),
    *("fleets/lib/leases", "fleets/lib/nodes", "fleets/resized", "fleets/resized/leases", "fleets/db", "fleets/db/turns"),
    *("fleets/db/checkpoints/latest", "fleets/db/maintenance/events", "locks", "tenants/acme", "tenants/demo", "tenants/demo/channels"),
    *("tenants/demo/keys", "history", "load"),
)


class Recording:
    """The application while its storage is filled, and what clients know at the end."""

    def __init__(self, kit: Tocsin) -> None:
        self.kit = kit
        self.known: dict[str, Any] = {}
        self._seq = dict.fromkeys(INCARNATIONS, 0)
        self._reports = {node: 0 for node in "acd"}

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        administrative = path.startswith(("tenants", "audit"))
        return await (self.kit.admin if administrative else self.kit.client).call(method, path, body)

    async def event(self, name: str, *script: Verdict, **fields: Any) -> None:
        if script:
            self.kit.receiver.script(name, *script)
        await self.call("POST", "events", {"id": name, "channel": "hooks", "payload": {"n": name}, **fields})

    async def settings(self) -> None:
        """Tenants, keys and channels."""
        limits = {"events_per_second": 50, "open_events": 500, "locks": 20}
        await self.call("PUT", "tenants/acme", {"limits": limits, "retry": {"schedule": ["PT1M", "PT1H"]}, "searchable": ["order"]})
        await self.call("PUT", "tenants/leaving", {})
        hooks = {"type": "http", "url": "http://receiver.test/hooks", "headers": {"x-shop": "secret"}, "timeout": "PT5S", "answers": "all"}
        limits = {"deliveries_per_second": 100, "concurrency": 8}
        channels = {
            "hooks": {**hooks, "limits": limits, "per_key": {"ordered": True}},
            "stopped": {"type": "http", "url": "http://receiver.test/stopped"},
            "broken": {"type": "http", "url": "http://receiver.test/broken"},
            "orders": {"type": "queue", "queue": "orders"},
            "grid": {"type": "eventgrid", "endpoint": "https://topic.westeurope-1.eventgrid.azure.net/api/events"},
            "stream": {"type": "kafka", "servers": "shop.servicebus.windows.net:9093", "topic": "orders"},
        }
        for name, spec in channels.items():
            await self.call("PUT", f"tenants/demo/channels/{name}", spec)
        notices = {"channel": "hooks", "kinds": ["event.dead", "breaker.opened"]}
        await self.call("PUT", "tenants/demo", {"searchable": ["shop"], "notices": notices, "retry": {"attempts": 6}})
        await self.call("PUT", "tenants/acme/channels/default", {"type": "http", "url": "http://receiver.test/acme"})
        await self.call("POST", "tenants/demo/channels/hooks/secret/rotate")
        await self.call("POST", "tenants/demo/channels/stopped/pause", {"reason": "recorded while paused"})
        await self.call("POST", "tenants/demo/keys", {"scopes": ["fleets", "events"]})
        await self.call("POST", "tenants/demo/keys", {"scopes": ["agent"], "fleet": "db", "node": "a"})
        await self.call("DELETE", "tenants/leaving")

    async def events(self) -> None:
        """Events that end in each state, wait for something, or are due later."""
        await self.event("e-delivered", delay="PT1S", labels={"shop": "17"})
        await self.event("e-retrying", BUSY, delay="PT1S", retry={"attempts": 8, "first": "PT1H", "max": "PT1H", "within": "P1D"})
        await self.event("e-dead", WRONG, delay="PT1S", labels={"shop": "17"}, on_dead="default")
        await self.event("e-redriven", WRONG, WRONG, delay="PT1S")
        await self.event("e-dead-2", NO, NO, delay="PT1S", retry={"attempts": 2, "first": "PT1S"})
        for number in range(12):
            await self.event(f"b-{number}", *[DOWN] * 5, delay="PT1S", channel="broken", retry={"schedule": ["PT1H"] * 5})
        await self.event("e-cancelled", delay="PT1H")
        await self.event("e-moved", delay="PT1H")
        await self.event("e-edited", delay="PT1H")
        await self.event("e-lapsed", delay="PT1S", channel="stopped", expires="PT1S")
        await self.event("e-held", delay="PT1S", channel="stopped")
        await self.event("e-window", delay="PT30M", flex="PT10M", expires="P1D")
        await self.event("e-later", delay="P3D")
        for channel in ("orders", "grid", "stream"):
            await self.event({"orders": "e-queue"}.get(channel, f"e-{channel}"), delay="PT20M", channel=channel)
        for number in range(3):
            await self.event(f"k-{number}", delay=f"PT{25 + number}M", ordering_key="line")
        await self.call("DELETE", "events/e-cancelled")
        await self.call("PATCH", "events/e-moved", {"delay": "PT50M"})
        await self.call("PATCH", "events/e-edited", {"payload": {"edited": True}, "channel": "orders"})
        acme = {"id": "acme-1", "delay": "PT20M", "payload": 1, "labels": {"order": "1"}}
        await self.kit.admin.call("POST", "events?tenant=acme", acme)
        lines = [{"delay": "PT40M", "channel": "hooks", "payload": number} for number in range(30)]
        made = await self.call("POST", "events/batch", lines)
        self.known["batch"] = [each["id"] for each in made["results"]]
        await self.call("POST", "events", {"id": "fan", "delay": "PT45M", "channels": ["hooks", "orders"], "payload": 1})

    async def recurring(self) -> None:
        await self.call("PUT", "calendars/holidays", {"dates": ["2027-12-25"]})
        daily = {"cron": "0 9 * * *", "timezone": "Europe/Berlin", "exclude": {"calendars": ["holidays"]}}
        await self.call("PUT", "schedules/daily", {**daily, "channel": "hooks", "payload": {"report": 1}})
        await self.call("PUT", "schedules/often", {"every": "PT1M", "jitter": "PT5S", "payload": "tick"})
        paused = {"every": "PT10M", "catch_up": {"policy": "all", "within": "PT1H"}, "payload": None}
        await self.call("PUT", "schedules/paused", paused)
        await self.call("POST", "schedules/paused/pause")
        await self.call("POST", "schedules/daily/trigger")

    async def fleets(self) -> None:
        """Fleets whose servers heartbeat over HTTP or by the library, with manual controls; one with replicas and agents."""
        web = {"partitions": 6, "limits": {"max_per_server": 6, "moves_per_minute": 4}, "servers": {"minimum": 2, "spare": 1}}
        await self.call("PUT", "fleets/web", {**web, "notify": {"channel": "hooks", "kinds": ["stale", "dead"]}})
        await self.call("PUT", "fleets/lib", {"partitions": 5, "profile": "fast"})
        await self.call("PUT", "fleets/resized", {"partitions": 4})
        rules = [{"type": "Freeze", "max_seconds": 10, "action": "approve"}]
        await self.call(
            "PUT",
            "fleets/db",
            {"partitions": 1, "checkpoints": {"interval": "PT5M"}, "maintenance": {"catch_up": "PT1M", "rules": rules, "silence": "PT2M"}},
        )
        self._library = [ServerSession(fleet_key("demo", "lib"), node, f"{node}1") for node in ("m", "n")]
        for session, numbers in zip(self._library, ((0, 1, 2), (3, 4)), strict=True):
            await self._run(membership.register(session, ServerReport(), None, (), 18.0))
            claims = await self._run(takeover.scout(session, numbers))
            await self._run(membership.beat(session, ServerReport(), "live", claims))
        for _ in range(3):
            await self.heartbeats()
        for path, body in (
            ("1/prohibit", {"server": "b", "note": "recorded"}),
            ("2/pin", {"server": "a", "note": "recorded"}),
            ("5/offline", {"note": "recorded"}),
        ):
            await self.call("POST", f"fleets/web/leases/{path}", body)
        await self.call("POST", "fleets/web/nodes/q/drain", {"exit": True, "note": "recorded"})
        await self.call("PUT", "locks/nightly", {"holder": "job", "nonce": "n1", "ttl": "PT1H"})

    async def _run(self, steps: Any) -> Any:
        return await self.kit._host.drive(self.kit.app.runner.run(steps))

    async def heartbeats(self) -> None:
        """One beat of each server; servers claim what they are assigned and release what they are asked for."""
        for node, incarnation in INCARNATIONS.items():
            fleet = "resized" if node == "r" else "web"
            self._seq[node] += 1
            body = {"incarnation": incarnation, "seq": self._seq[node], "load": 0.5}
            answer = await self.call("POST", f"fleets/{fleet}/nodes/{node}/beat", body)
            for number in answer["release"]:
                if epoch := answer["held"].get(str(number)):
                    given = {"node": node, "incarnation": incarnation, "epoch": epoch}
                    await self.call("POST", f"fleets/{fleet}/leases/{number}/release", given)
            if answer["assign"]:
                claim = {"node": node, "incarnation": incarnation, "partitions": answer["assign"], "generation": answer["generation"]}
                await self.call("POST", f"fleets/{fleet}/leases/claim", claim)
        for session in self._library:
            await self._run(membership.beat(session, ServerReport(), "live", ()))

    async def replica(self, node: str, taking: int = 0, last: int = 0) -> int:
        """Report as a replica; return the epoch of its turn."""
        self._reports[node] += 1
        role = "primary" if node == "a" else "secondary"
        mono = round((self.kit.clock.monotonic() - self._began) * 1000)
        body = {"seq": self._reports[node], "role": role, "term": 7, "applied": 81_231, "last_checkpoint": last, "mono_ms": mono}
        answer = await self.call("POST", f"fleets/db/replicas/{node}/report", body | {"taking": {"epoch": taking} if taking else None})
        self.known["replicas"][node] = {"role": role, "seq": self._reports[node], "taking": taking, "last": last, "mono": mono}
        return int(answer["turn"]["epoch"]) if answer["turn"] else 0

    async def turn(self, among: str, last: dict[str, int]) -> tuple[str, int]:
        """Report until one of the replicas gets a turn; return it and its epoch."""
        for _ in range(100):
            for node in among:
                if epoch := await self.replica(node, last=last.get(node, 0)):
                    await self.replica(node, epoch, last.get(node, 0))
                    return node, epoch
            await self.kit.advance(seconds=STEP)
        raise AssertionError("no turn was granted")

    async def agents(self, seq: int) -> None:
        freeze = {"event_id": FREEZE, "type": "Freeze", "resources": ["vm_a"]}
        reboot = {"event_id": REBOOT, "type": "Reboot", "resources": ["vm_b"]}
        seen = {"status": "Scheduled", "not_before": "2027-01-15T08:25:00.000Z", "source": "Platform", "duration_s": 9}
        entries = {
            "a": {FREEZE: {**freeze, **seen, "phase": "PREPARED"}},
            "b": {FREEZE: {**freeze, **seen, "phase": "FOREIGN"}, REBOOT: {**reboot, **seen, "phase": "WAITING"}},
        }
        for number, node in enumerate("ab"):
            body = {"node": node, "seq": seq, "vm": f"vm_{node}", "scope": "set", "location": "westeurope", "boot_id": "boot-1"}
            body |= {"fault_domain": str(number), "incarnation": 3, "disabled": node == "a", "events": [*entries[node].values()]}
            await self.call("POST", "fleets/db/maintenance/reports", body)
            self.known["agents"][node] = {"seq": seq, "domain": str(number), "disabled": node == "a", "entries": entries[node]}

    async def work(self) -> None:
        """Fill the storage."""
        self.known |= {"replicas": {}, "agents": {}}
        self._began = self.kit.clock.monotonic()
        await self.settings()
        await self.kit.advance(minutes=6)
        await self.recurring()
        await self.fleets()
        first, epoch = await self.turn("acd", {})
        done = {"node": first, "sequence": 81_231, "location": "https://backups.example/81231", "bytes": 1024}
        await self.call("POST", f"fleets/db/turns/{epoch}/publish", done)
        await self.agents(1)
        await self.call("POST", f"fleets/db/maintenance/events/{REBOOT}/hold", {"reason": "recorded"})
        await self.events()
        await self.kit._storage.queues.send(QUEUE_INGEST, '{"key":"local-demo-key","event":{}}')
        await self.call("POST", "jobs", {"action": "cancel", "filter": {"channel": "grid"}})
        for number in range(ROUNDS):
            await self.heartbeats()
            await self.kit.advance(seconds=STEP)
            if number == 20:
                await self.call("POST", "events/e-redriven/redrive")
        holder, epoch = await self.turn("cd".replace(first, ""), {first: 81_231})
        for node in "acd":
            await self.replica(node, epoch if node == holder else 0, 81_231 if node == first else 0)
        await self.call("POST", "fleets/resized/leases/resize", {"partitions": 8})
        await self.heartbeats()
        await self.agents(2)
        await self.event("e-soon", delay="PT8S")
        fast = {"durability": "fast", "delay": "PT2M", "channel": "hooks"}
        self.known["fast"] = [(await self.call("POST", "events", {**fast, "payload": number}))["id"] for number in range(2)]
        self.known["nodes"] = {node: [INCARNATIONS[node], self._seq[node]] for node in "abr"}

    async def record(self) -> dict[str, Any]:
        """Return the recording."""
        tables, queues = cast(MemoryTables, self.kit._storage.tables), cast(MemoryQueues, self.kit._storage.queues)
        answers = [{"path": path, "body": await self.call("GET", path)} for path in ANSWERS]
        return {
            "stored_forms": STORED_FORMS,
            "now": self.kit.clock.now(),
            **self.known,
            "answers": answers,
            "tables": {
                table: [
                    [pk, row.rk, row.timestamp, row.props]
                    for pk, partition in sorted(tables._tables[table].items())
                    for row in sorted(partition.rows.values(), key=lambda row: row.rk)
                ]
                for table in ALL_TABLES
            },
            "queues": {
                queue: sorted([each.text, each.visible] for each in queues._queues[queue].messages.values())
                for queue in ALL_QUEUES
                if queue != QUEUE_SWEEPS
            },
        }


async def main() -> None:
    async with Tocsin(start=START) as kit:
        recording = Recording(kit)
        await recording.work()
        found = await recording.record()
    FILE.write_text(json.dumps(found, indent=None, separators=(",", ":")) + "\n")
    print(f"{FILE.relative_to(ROOT)}: {sum(map(len, found['tables'].values()))} rows at {to_millis(kit.now)}")


if __name__ == "__main__":
    asyncio.run(main())
