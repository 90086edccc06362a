"""The work of one step: the changing state and the collected effects. Used only within `step.step`, which stays pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from ..config.settings import AgentSettings
from ..effects import AgentEffect, SendReport, WriteLog
from ..model import EventPhase, EventRecord, NodeState, Now
from ..policy import Action, FleetPolicy
from .event_rules import choose

OVER: Final = frozenset({EventPhase.RESTORING, EventPhase.RESTORE_FAILED, EventPhase.DONE})
"""Phases of events that are no longer on this node."""
type Fields = Mapping[str, str | int]
AWAITING: Final = (EventPhase.RESTORING, EventPhase.RESTORE_FAILED)


class StepInProgress:
    """Holds the state in `node` and `events`, which `put` and `set` change."""

    def __init__(self, state: NodeState, now: Now, settings: AgentSettings) -> None:
        self.node, self.now, self.settings = state, now, settings.following(state.policy)
        self._file = settings
        self._before = state
        self._own: dict[str, EventRecord] | None = None
        self._effects: list[AgentEffect] = []

    @property
    def events(self) -> Mapping[str, EventRecord]:
        return self.node.events

    def set(self, **changes: Any) -> None:
        """Change fields of the node."""
        self.node = replace(self.node, **changes)

    def follow(self, policy: FleetPolicy | None) -> None:
        """Store the fleet's settings and use them from now on."""
        self.set(policy=policy)
        self.settings = self._file.following(policy)

    def put(self, record: EventRecord, **changes: Any) -> EventRecord:
        """Store a record with changes."""
        record = replace(record, **changes) if changes else record
        if self.events.get(record.event.event_id) != record:
            self._copy()[record.event.event_id] = record
        return record

    def drop(self, event_id: str) -> None:
        """Remove a record."""
        del self._copy()[event_id]

    def emit(self, *effects: AgentEffect) -> None:
        self._effects += effects

    def log(
        self,
        action: str,
        text: str,
        record: EventRecord | None = None,
        *,
        warn: bool = False,
        fields: Fields | None = None,
        **more: str | int,
    ) -> None:
        """Emit a log line, about an event if one is given."""
        level: Literal["info", "warning"] = "warning" if warn else "info"
        event_id, fields = "", {**(fields or {}), **more}
        if record is not None:
            event_id = record.event.event_id
            fields = {"type": record.event.type, "phase": str(record.phase), **fields}
            if record.event.rehearsal:
                fields["rehearsal"] = 1
        self.emit(WriteLog(level, action, text, event_id, fields))

    def once(self, record: EventRecord, note: str, text: str) -> EventRecord:
        """Emit a warning once per event; `note` is its action."""
        if note in record.notes:
            return record
        self.log(note, text, record, warn=True)
        return self.put(record, notes=record.notes | {note})

    def mine(self) -> Iterator[EventRecord]:
        """Iterate over the records of events that are on this node now."""
        return (record for record in list(self.events.values()) if record.phase not in OVER and record.phase is not EventPhase.FOREIGN)

    def choice(self, record: EventRecord) -> Action:
        return choose(record.event, self.settings)

    def needs(self, record: EventRecord) -> bool:
        """Return true if the event needs preparation before it is approved."""
        return self.choice(record) in ("prepare", "hold")

    def is_prepared(self, record: EventRecord) -> bool:
        """Return true if prepare succeeded since the last boot."""
        return record.prepared_boot != "" and record.prepared_boot == self.node.boot_id

    def effects(self) -> tuple[AgentEffect, ...]:
        """Return the collected effects, with a SendReport if the content of reports has changed."""
        before, node = self._before, self.node
        same = before.events is node.events and _beside(before) == _beside(node)
        if not same and _shown(before) != _shown(node):
            self._effects.append(SendReport())
        return tuple(self._effects)

    def _copy(self) -> dict[str, EventRecord]:
        if self._own is None:
            self._own = dict(self.events)
            self.node = replace(self.node, events=self._own)
        return self._own


def _shown(state: NodeState) -> object:
    return _beside(state), {
        event_id: (record.phase, record.event, record.reason, record.at_once, record.observed_ms, record.outcome)
        for event_id, record in state.events.items()
    }


def _beside(state: NodeState) -> object:
    return state.boot_id, state.disabled, state.in_step
