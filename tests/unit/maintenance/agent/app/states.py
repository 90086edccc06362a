"""States of an agent with one event, and answers of the app, for the tests of its reports."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from shared.core.http_exchange import HttpReply
from shared.maintenance.agent.imds.client import Machine
from shared.maintenance.agent.model import EventPhase, EventRecord, NodeState, ScheduledEvent

MACHINE = Machine("vm_1", "westeurope", "set-1", "2", "/subscriptions/s/vm_1")
NOT_BEFORE = 1_800_000_000_000


def event(number: int = 1, **more: Any) -> ScheduledEvent:
    name = f"e{number}"
    return replace(ScheduledEvent(name, name, "Freeze", "Scheduled", NOT_BEFORE, duration=9, resources=("vm_1",)), **more)


def state(phase: EventPhase = EventPhase.WAITING, *, number: int = 1, **more: Any) -> NodeState:
    record = EventRecord(event(number), phase, 1)
    return NodeState("boot-1", incarnation=4, events={f"e{number}": replace(record, **more)})


def answer(**more: Any) -> HttpReply:
    usual = {"next_report_ms": 5000, "approvals": [], "hold": [], "commands": [], "rehearsals": [], "monitors": None}
    return HttpReply(200, json.dumps(usual | more).encode())
