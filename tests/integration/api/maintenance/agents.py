"""A node's agent that speaks HTTP. It reports the state that the test sets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.leases.rows import fleet_key
from shared.maintenance.model import AgentReportIn
from shared.maintenance.service.reports import ReceivedReport, ReportRounds, _node
from shared.storage.names import MAINTENANCE
from shared.web.local_client import LocalReply
from tests.unit.scheduler.harness import Client, World

DB = "/api/v1/fleets/db"
KEY = fleet_key("demo", "db")
EVENT = "602d9444-d2cd-49c7-8624-8643e7171297"
OTHER = "c7061bac-afdc-4513-b24b-aa5f13a16123"
MINUTE = 60_000
MAKE: dict[str, Any] = {"partitions": 1, "maintenance": {"catch_up": "PT1M"}}
"""The definition of the fleet at `DB`."""


class Agent:
    """One node's agent. `entries`: its report of each event, by id."""

    def __init__(
        self, client: Client, node: str, domain: str = "0", *, scope: str = "set", location: str = "westeurope", fleet: str = DB
    ) -> None:
        self.fleet = fleet
        self.client, self.node, self.domain, self.scope, self.location = client, node, domain, scope, location
        self.seq, self.disabled, self.entries, self.fields = 0, False, {}, {}  # type: ignore[var-annotated]

    def sees(
        self, phase: str = "WAITING", event_id: str = EVENT, *, on: tuple[str, ...] = (), notice: int = 15 * MINUTE, **more: Any
    ) -> Agent:
        """List an event on the nodes `on` (default: its own). NotBefore is `notice` milliseconds after the first listing."""
        before = self.entries.get(event_id, {})
        started = more.get("status") == "Started"
        first = before.get("not_before") or to_text(self.client.world.now + notice)
        self.entries[event_id] = {
            "event_id": event_id,
            "type": "Freeze",
            "status": "Scheduled",
            "not_before": None if started else first,
            "source": "Platform",
            "duration_s": 9,
            "resources": [f"vm_{node}" for node in on or (self.node,)],
            **{key: value for key, value in before.items() if key in ("type", "source", "duration_s", "resources") and not on},
            "phase": phase,
            **more,
        }
        return self

    def sees_no_more(self, event_id: str = EVENT, **more: Any) -> Agent:
        """End an event: one of this node is reported as DONE, one of another node no longer."""
        if self.entries[event_id]["phase"] == "FOREIGN":
            del self.entries[event_id]
        else:
            self.entries[event_id] |= {"phase": "DONE", **more}
        return self

    def body(self, **fields: Any) -> dict[str, Any]:
        return {
            "node": self.node,
            "seq": self.seq,
            "vm": f"vm_{self.node}",
            "scope": self.scope,
            "location": self.location,
            "fault_domain": self.domain,
            "boot_id": "boot-1",
            "incarnation": 3,
            "disabled": self.disabled,
            "events": list(self.entries.values()),
            **self.fields,
            **fields,
        }

    async def report(self, **fields: Any) -> LocalReply:
        self.seq += 1
        return await self.client.post(f"{self.fleet}/maintenance/reports", self.body(**fields))

    async def reports(self, **fields: Any) -> dict[str, Any]:
        """Send a report that must be accepted. Return the answer."""
        answer = await self.report(**fields)
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    async def holds(self) -> dict[str, str]:
        """Send a report. Return the held events with their reasons."""
        return {each["event_id"]: each["reason"] for each in (await self.reports())["hold"]}

    async def result(self, approval: str, outcome: str = "posted") -> LocalReply:
        return await self.client.post(f"{self.fleet}/maintenance/approvals/{approval}/result", {"node": self.node, "outcome": outcome})


def agents(world: World, *names: str) -> list[Agent]:
    """Return an agent of each name, each in a fault domain of its own."""
    return [Agent(world.demo, name, domain=str(number)) for number, name in enumerate(names)]


async def event(client: Client, event_id: str = EVENT) -> dict[str, Any]:
    answer = await client.get(f"{DB}/maintenance/events/{event_id}")
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


async def decide(client: Client, verb: str, event_id: str = EVENT, reason: str = "because") -> LocalReply:
    return await client.post(f"{DB}/maintenance/events/{event_id}/{verb}", {"reason": reason})


async def tick(world: World, timer: str = "lease_scan") -> dict[str, dict[str, int]]:
    """The timer's tick."""
    return await world.do(world.app.timers.run_once(timer))


async def all_report(*agents: Agent) -> None:
    for agent in agents:
        await agent.reports()


def delivery(status: Any, event_id: str = EVENT, **more: Any) -> dict[str, Any]:
    """Return Event Grid's delivery for an event of the VM `vm_a`. more: properties that are other than usual."""
    properties = {
        "Description": "Virtual machine is being paused because of a memory-preserving Live Migration operation.",
        "DurationInSeconds": 5,
        "EventId": event_id,
        "EventSource": "Platform",
        "EventStatus": status,
        "EventType": "Freeze",
        "NotBefore": "Mon, 19 Sep 2033 18:29:47 GMT",
        "Resources": ["vm_a"],
        "ResourceType": "VirtualMachine",
    } | more
    info = {"id": "/subscriptions/s", "type": "microsoft.maintenance/scheduledEvents", "properties": properties}
    kind = "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted"
    return {"id": "1", "eventType": kind, "subject": "s", "data": {"resourceInfo": info}, "dataVersion": "3.0"}


def together(world: World, monkeypatch: pytest.MonkeyPatch, writers: int = 2) -> None:
    """The next reports all read before the first of them writes, as those that different instances of the app take."""

    async def alone(self: ReportRounds, tenant: str, fleet: str, body: AgentReportIn) -> dict[str, Any]:
        (answer,) = (await self._serve(fleet_key(tenant, fleet), [ReceivedReport(tenant, body, _node(body), None)])).answers
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ReportRounds, "report", alone)
    plain, waiting, all_here = world.tables.write, list[str](), asyncio.Event()

    async def write(table: str, pk: str, ops: Any) -> Any:
        if table == MAINTENANCE and pk == "demo:db" and not all_here.is_set():
            waiting.append(pk)
            if len(waiting) == writers:
                all_here.set()
            await all_here.wait()
        return await plain(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", write)
