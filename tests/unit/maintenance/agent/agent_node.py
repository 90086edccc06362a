"""A node's agent in a test: the rules, two clocks, and a journal in memory; the test says what is observed and reads what would be done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from email.utils import formatdate
from typing import Any

from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.decisions import step
from shared.maintenance.agent.effects import AgentEffect, Approve, RunHook, StopHook, WriteLog
from shared.maintenance.agent.imds.document import read
from shared.maintenance.agent.journal import decode, encode
from shared.maintenance.agent.model import EventPhase, EventRecord, EventsDocument, NodeState, Now
from shared.maintenance.agent.observations import (
    AppAnswer,
    ApprovalPosted,
    AppUnreachable,
    DocumentRead,
    HookEnded,
    Observation,
    PollFailed,
    StartUp,
    StopRequested,
    Tick,
)

VM = "vm-1"
START = 1_800_000_000_000
HOOKS: Mapping[Any, float] = {"prepare": 60.0, "emergency": 20.0, "restore": 60.0, "verify": 30.0}
SETTINGS = AgentSettings(vm=VM, hooks=HOOKS, near=900.0)


def rfc_1123(wall: int) -> str:
    """Return a time in the format of the metadata service."""
    return formatdate(wall / 1000, usegmt=True)


type Raw = dict[str, Any]


def event(id: str = "E1", *, in_s: float | None = 900, status: str = "Scheduled", names: tuple[str, ...] = (VM,), **more: Any) -> Raw:
    """One event as a document lists it; NotBefore `in_s` seconds after the test's start."""
    raw = {
        "EventId": id,
        "EventType": "Freeze",
        "ResourceType": "VirtualMachine",
        "Resources": list(names),
        "EventStatus": status,
        "NotBefore": "" if in_s is None or status == "Started" else rfc_1123(START + round(1000 * in_s)),
        "Description": "Host server is undergoing maintenance.",
        "EventSource": "Platform",
        "DurationInSeconds": 9,
    }
    return raw | more


class Node:
    """The agent of vm-1. `did` holds the effects since the last `clear()`."""

    def __init__(self, settings: AgentSettings = SETTINGS, *, boot: str = "boot-1", started: bool = True) -> None:
        self.settings, self.boot = settings, boot
        self.state, self.wall, self.steady = NodeState(), START, 100.0
        self.did: list[AgentEffect] = []
        self.incarnation = 0
        if started:
            self.observe(StartUp(boot, "none"))
            self.see()
            self.clear()

    # -- observations

    def observe(self, observation: Observation) -> tuple[AgentEffect, ...]:
        self.state, effects = step.step(self.state, observation, Now(self.wall, self.steady), self.settings)
        self.did += effects
        return effects

    def see(self, *events: dict[str, Any], same: bool = False) -> tuple[AgentEffect, ...]:
        """A new document with these events."""
        self.incarnation += not same
        found = read(json.dumps({"DocumentIncarnation": self.incarnation, "Events": events}).encode())
        assert isinstance(found, EventsDocument)
        return self.observe(DocumentRead(found))

    def blind(self, reason: str = "no answer") -> tuple[AgentEffect, ...]:
        return self.observe(PollFailed(reason))

    def wait(self, seconds: float) -> tuple[AgentEffect, ...]:
        """Time passes, in ticks of at most a second; a look that finds nothing new comes with each."""
        done: tuple[AgentEffect, ...] = ()
        while seconds > 0:
            part = min(1.0, seconds)
            seconds -= part
            self.pass_by(part)
            done += self.observe(Tick())
        return done

    def pass_by(self, seconds: float) -> None:
        """Time passes unseen."""
        self.wall, self.steady = self.wall + round(1000 * seconds), self.steady + seconds

    def hook(self, ok: bool = True, detail: str = "") -> tuple[AgentEffect, ...]:
        """The hook that runs ends."""
        assert self.state.run is not None, "no hook runs"
        return self.observe(HookEnded(self.state.run.number, ok, detail))

    def post(self, outcome: Any = "accepted", status: int = 200, id: str = "e1") -> tuple[AgentEffect, ...]:
        """The last POST is answered."""
        posts = [effect for effect in self.did if isinstance(effect, Approve) and effect.event_id == id]
        assert posts, "nothing was POSTed"
        return self.observe(ApprovalPosted(id, outcome, status, posts[-1].grant))

    def answer(self, **more: Any) -> tuple[AgentEffect, ...]:
        """The app answers a report of this moment."""
        return self.observe(AppAnswer(**({"told": step.asked_events(self.state)} | more)))

    def app_away(self) -> tuple[AgentEffect, ...]:
        return self.observe(AppUnreachable("no connection"))

    def app_refuses(self) -> tuple[AgentEffect, ...]:
        return self.observe(AppUnreachable("status 401: unknown key", refused=True))

    def stop(self) -> tuple[AgentEffect, ...]:
        return self.observe(StopRequested())

    def restart(self, *, boot: str | None = None, away: float = 1.0, settings: AgentSettings | None = None) -> tuple[AgentEffect, ...]:
        """End the process, and start another one from the saved state."""
        self.pass_by(away)
        if boot is not None:
            self.boot, self.steady = boot, 5.0
        if settings is not None:
            self.settings = settings
        self.state = decode(encode(self.state))
        return self.observe(StartUp(self.boot, "kept", self.state.disabled))

    # -- what is

    def record(self, id: str = "e1") -> EventRecord:
        return self.state.events[id]

    def phase(self, id: str = "e1") -> EventPhase | None:
        record = self.state.events.get(id)
        return None if record is None else record.phase

    # -- what was done

    def clear(self) -> None:
        self.did = []

    def runs(self) -> list[str]:
        """The hooks begun, in order."""
        return [effect.kind for effect in self.did if isinstance(effect, RunHook)]

    def posts(self) -> list[str]:
        """The approvals sent, in order."""
        return [effect.event_id for effect in self.did if isinstance(effect, Approve)]

    def stops(self) -> int:
        return sum(isinstance(effect, StopHook) for effect in self.did)

    def logged(self) -> list[str]:
        return [effect.action for effect in self.did if isinstance(effect, WriteLog)]

    def warned(self) -> list[str]:
        return [effect.action for effect in self.did if isinstance(effect, WriteLog) and effect.level == "warning"]

    def has(self, kind: type[AgentEffect]) -> bool:
        return any(isinstance(effect, kind) for effect in self.did)

    # -- ways to a phase

    def to_prepared(self, **more: Any) -> Node:
        """One impactful event seen, its time come, prepare done; nothing POSTed unless it may be."""
        self.see(event(**more))
        self.wait(871)
        assert self.phase() is EventPhase.PREPARING
        self.hook()
        return self

    def with_settings(self, **changes: Any) -> Node:
        self.settings = replace(self.settings, **changes)
        return self
