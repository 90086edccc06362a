"""The story of one event: the steps of its nodes and the app's decisions, stored in rows beside those of `rows`.

    story:{event_id}!         the app's steps about the event as a whole
    story:{event_id}!{node}   the steps of one node: those that its agent reports, and those of the app about it

One row for each node, because its reports are written one after the other: no two nodes write the same row. A row keeps the first and
the last steps. Rows are in the fleet's partition, are written in one transaction with the rows that they are about, and are removed with
the event's own.

Pure: `decisions_about` and the functions after it compare rows before and after a write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from ..core.clock import Millis, to_text
from ..engine.json_codec import JsonCodec
from ..storage.ports import Props
from .rows import EventRow, FleetEvents, GuardRow, MaintenanceRow, NodeEntry, NodeRow

MAX_REPORTED_STEPS: Final = 100
"""Steps in one report."""
MAX_TEXT: Final = 200
"""Characters of a step's text."""
FIRST_STEPS: Final = 20
LAST_STEPS: Final = 40
"""A row keeps the first and the last steps. What is between, of a restore that fails for days, is counted and left out."""
MAX_SKEW: Final[Millis] = 5_000
"""A node's clock that differs by more from the app's is corrected. Less cannot be told from the time that a report takes."""
_RETURNED: Final[Millis] = 3_600_000
"""Time after the end of an event for which the return of leases to its nodes belongs to it."""

type Teller = Literal["agent", "app"]


@dataclass(frozen=True, slots=True)
class StoryStep:
    """One step. at: in the app's time, as far as it is known. number: distinguishes the steps of one row, and grows. skew: milliseconds
    that were added to the node's own time, because its clock is wrong; 0 for none."""

    at: Millis
    number: int
    action: str
    text: str
    by: Teller = "agent"
    warning: bool = False
    skew: Millis = 0


@dataclass(frozen=True, slots=True)
class StoryRow:
    """The steps of one node about one event; of the app, if `node` is empty. left_out: number of steps between that are not kept."""

    event_id: str
    node: str = ""
    steps: tuple[StoryStep, ...] = ()
    left_out: int = 0


_CODEC: Final = JsonCodec(StoryRow)


def story_key(event_id: str, node: str = "") -> str:
    """Row key of a story. No id and no node's name contains the mark between them."""
    return f"story:{event_id.lower()}!{node}"


def story_range(event_id: str) -> tuple[str, str]:
    """First key of an event's rows, and the first key after them."""
    return story_key(event_id), f'story:{event_id.lower()}"'


def encode_story(row: StoryRow) -> Props:
    """Return the row's properties."""
    return _CODEC.encode(row)


def parse_story(props: Props) -> StoryRow:
    """Return the story in a row's properties. Raises KeyError, TypeError, ValueError for a row that cannot be read."""
    return _CODEC.decode(props)


class ReportedStep(NamedTuple):
    """A step as an agent reports it. at: by the node's clock."""

    number: int
    at: Millis
    event_id: str
    action: str
    text: str
    warning: bool


type Told = dict[tuple[str, str], list[StoryStep]]
"""New steps by event and node; the node is '' for those about the event as a whole."""


def with_steps(row: StoryRow, steps: Iterable[StoryStep]) -> StoryRow:
    """Return the row with further steps. A step that it has already, because its report is repeated, is not added again.

    Steps of the app get the next number: they come from one decision, which is stored once.
    """
    known = {(step.by, step.number) for step in row.steps}
    kept, left_out = list(row.steps), row.left_out
    last = max((step.number for step in kept if step.by == "app"), default=0)
    for step in steps:
        if step.by == "app":
            last += 1
            step = replace(step, number=last)
        elif (step.by, step.number) in known:
            continue
        kept.append(replace(step, text=step.text[:MAX_TEXT]))
    excess = len(kept) - FIRST_STEPS - LAST_STEPS
    if excess > 0:
        del kept[FIRST_STEPS : FIRST_STEPS + excess]
        left_out += excess
    return replace(row, steps=tuple(kept), left_out=left_out)


# -- what a write decides


def told_by(view: FleetEvents, kept: Mapping[str, MaintenanceRow | None], now: Millis) -> Told:
    """Return the app's steps: how the rows of a write differ from those that were read."""
    told: Told = {}

    def add(event_id: str, node: str, found: Iterable[tuple[str, str, bool]]) -> None:
        for action, text, warning in found:
            told.setdefault((event_id, node), []).append(StoryStep(now, 0, action, text, "app", warning))

    for row in kept.values():
        match row:
            case EventRow():
                add(row.event_id, "", decisions_about(view.events.get(row.event_id), row))
            case GuardRow():
                for event_id in sorted(row.reserved.keys() - view.guard.reserved.keys()):
                    add(event_id, "", [("maintenance_reserved", "its nodes may prepare: the event has a reservation of the guard", False)])
            case NodeRow():
                before = view.nodes.get(row.node)
                if row.leaving != (before is not None and before.leaving):
                    text = f"leases {'leave' if row.leaving else 'may return to'} {row.node}"
                    for event_id in events_around(row, view, kept, now):
                        add(event_id, row.node, [("maintenance_leases", text, False)])
    return told


def events_around(
    node: NodeRow, view: FleetEvents, kept: Mapping[str, MaintenanceRow | None] | None = None, now: Millis = 0
) -> tuple[str, ...]:
    """Return the events on a node that are open, or were until an hour before `now`. kept: rows that are newer than those of the view."""
    events = dict(view.events) | {row.event_id: row for row in (kept or {}).values() if isinstance(row, EventRow)}
    mine = [entry.event_id for entry in node.entries if entry.phase != "FOREIGN"]
    known = [events[event_id] for event_id in mine if event_id in events]
    return tuple(event.event_id for event in known if event.open or now - event.ended < _RETURNED)


def decisions_about(before: EventRow | None, after: EventRow) -> Iterator[tuple[str, str, bool]]:
    """Yield action, text and warning of what a write changes about an event."""
    if before is not None and after.returns > before.returns:
        yield "maintenance_changed", f"listed again after its end, NotBefore {_time(after.not_before)}", True
    elif before is not None and (after.type, after.not_before) != (before.type, before.not_before) and after.open:
        yield "maintenance_changed", f"now {after.type}, NotBefore {_time(after.not_before)}", False
    if before is None:
        before = EventRow(after.event_id, after.scope, after.type, "scheduled", after.seen)
    if after.status != before.status:
        yield "maintenance_status", f"the event is {after.status}", False
    if after.azure != before.azure and after.azure:
        yield "maintenance_status", f"Event Grid reports the event as {after.azure}", False
    if after.cleared and not before.cleared:
        yield "maintenance_approval", "its agent may approve it", False
    yield from _holds(before, after)
    yield from _approvals(before, after)
    for alarm in sorted(set(after.alarms) - set(before.alarms)):
        yield "maintenance_alarm", f"alarm: {alarm}", True
    for alarm in sorted(set(before.alarms) - set(after.alarms)):
        yield "maintenance_alarm_cleared", f"alarm cleared: {alarm}", False


def _holds(before: EventRow, after: EventRow) -> Iterator[tuple[str, str, bool]]:
    if after.hold is not None and after.hold != before.hold:
        yield "maintenance_decided", f"held by {after.hold.by}{_because(after.hold.reason)}", False
    elif before.hold is not None and after.hold is None:
        yield "maintenance_decided", "no longer held", False


def _approvals(before: EventRow, after: EventRow) -> Iterator[tuple[str, str, bool]]:
    was, now = before.grant, after.grant
    if now is None:
        return
    if was is None or was.id != now.id or was.by != now.by:
        yield "maintenance_decided", f"approved by {now.by}{_because(now.reason)}", False
    if now.epoch != (was.epoch if was is not None and was.id == now.id else 0) and now.node:
        yield "maintenance_approval", f"{now.node} is to send the approval to Azure", False
    if was is not None and was.id == now.id and now.tries > was.tries:
        yield "maintenance_approval", f"Azure refused the approval with status {now.http_status}", True
    if now.state != (was.state if was is not None and was.id == now.id else "granted"):
        text = {"posted": "Azure has the approval", "closed": "nothing is left to approve", "expired": "the approval was not sent in time"}
        yield "maintenance_approval", text.get(now.state, now.state), now.state == "expired"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _time(at: Millis | None) -> str:
    return to_text(at) if at is not None else "unknown"


# -- what an agent reports


def told_by_agent(
    before: NodeRow | None, node: NodeRow, view: FleetEvents, steps: Iterable[ReportedStep] | None, sent: Millis | None, now: Millis
) -> Told:
    """Return the steps of a report, by event. node: the row after it.

    steps: as reported; None from an agent of a former release, whose phases are the steps. sent: time of the report by the node's clock.
    Steps of events that the report does not list on the node, or that the app does not know, are left out.
    """
    told: Told = {}
    mine = {entry.event_id: entry for entry in node.entries if entry.phase != "FOREIGN" and entry.event_id in view.events}
    if steps is None:
        for event_id, entry in mine.items():
            known = before.entry(event_id) if before is not None else None
            if known is None or (known.phase, known.reason) != (entry.phase, entry.reason):
                told[event_id, node.node] = [StoryStep(now, 0, "maintenance_phase", _phase(entry), "app", entry.phase.endswith("FAILED"))]
        return told
    skew = 0 if sent is None or abs(now - sent) <= MAX_SKEW else now - sent
    for step in steps:
        if step.event_id in mine:
            # A node cannot know today what happens tomorrow.
            at = min(step.at + skew, now)
            made = StoryStep(at, step.number, step.action, step.text, "agent", step.warning, skew)
            told.setdefault((step.event_id, node.node), []).append(made)
    return told


def _phase(entry: NodeEntry) -> str:
    return f"the node is {entry.phase}{_because(entry.reason)}"


# -- the list


class ToldStep(NamedTuple):
    """A step of the list. at: its place in the order of time."""

    at: Millis
    node: str
    rank: int
    number: int
    step: StoryStep

    @property
    def place(self) -> str:
        """The position in the list, for a cursor. It begins with the time."""
        return f"{self.at}|{self.node}|{self.rank}|{self.number}"


def start_after(told: Sequence[ToldStep], place: str) -> int:
    """Return the index after a position; of the first step at its time or later, if it is not in the list any more."""
    for index, each in enumerate(told):
        if each.place == place:
            return index + 1
    at = place.partition("|")[0]
    since = int(at) if at.isascii() and at.isdigit() and len(at) < 16 else 0
    return next((index for index, each in enumerate(told) if each.at >= since), len(told))


def in_order(event: EventRow, rows: Iterable[StoryRow]) -> list[ToldStep]:
    """Return the steps of all rows in one list, in order of time, after the first report of the event.

    Steps of one node stay in their own order, whatever its clock did meanwhile.
    """
    machines = f"{len(event.resources)} machine{'s' if len(event.resources) != 1 else ''}"
    text = f"first reported: {'a rehearsal of ' if event.rehearsal else ''}{event.type} of {machines}"
    # Of an event's own row. Most events that a fleet knows concern machines of others, and have no story.
    found = [ToldStep(event.seen, "", 1, 0, StoryStep(event.seen, 0, "maintenance_seen", text, "app"))]
    for row in rows:
        latest = 0
        for at, step in enumerate(row.steps):
            # Only the steps of the agent come from one clock.
            latest = max(latest, step.at) if step.by == "agent" else latest
            place = latest if step.by == "agent" else step.at
            found.append(ToldStep(place, row.node, int(step.by == "app"), step.number, step))
            if row.left_out and at == FIRST_STEPS - 1:
                gap = StoryStep(place, step.number, "left_out", f"{row.left_out} further steps are not kept", "app", True)
                found.append(ToldStep(place, row.node, 2, step.number, gap))
    return sorted(found, key=lambda each: (each.at, each.node == "", each.node, each.rank, each.number))
