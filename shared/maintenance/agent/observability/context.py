"""The fields that all log lines of one agent carry: node, fleet, and the event that is under way there."""

from __future__ import annotations

from ..decisions.hook_runs import last_done
from ..model import EventPhase, NodeState


class LogContext:
    """Knows which events are under way on a node. The loop calls `follow`; any thread may call `about`."""

    def __init__(self, node: str = "", fleet: str = "") -> None:
        self._who = {name: value for name, value in (("node", node), ("fleet", fleet)) if value}
        self._events: tuple[str, ...] = ()

    def follow(self, state: NodeState) -> None:
        """Take over the events of a new state."""
        self._events = under_way(state)

    def events(self, event_id: str = "") -> tuple[str, ...]:
        """Return the ids of the events that a line is about."""
        return (event_id,) if event_id else self._events

    def about(self, event_id: str = "") -> dict[str, str]:
        """Return the fields of a line. A line about no event of its own belongs to the events that are under way, the soonest first."""
        events = self.events(event_id)
        found = {"event_id": events[0], **self._who} if events else dict(self._who)
        return found | ({"event_ids": " ".join(events)} if len(events) > 1 else {})


def under_way(state: NodeState) -> tuple[str, ...]:
    """Return the ids of the events on this node that are not over, the soonest first.

    While only the hook `caught_up` runs, that is the last event that is over: the node catches up with what it missed then.
    """
    mine = [record for record in state.events.values() if record.phase not in (EventPhase.FOREIGN, EventPhase.DONE)]
    if not mine and state.run is not None and state.run.kind == "caught_up" and (last := last_done(state)) is not None:
        mine = [last]
    return tuple(record.event.event_id for record in sorted(mine, key=lambda each: each.event.not_before or 0))
