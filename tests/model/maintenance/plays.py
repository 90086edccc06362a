"""The plays of the agent: two events and the faults. The larger plays of `make model` allow more at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from shared.maintenance.agent.model import ScheduledEvent
from shared.maintenance.agent.policy import ActionRule

from .world import SETTINGS, SOON, VM, Faults, Play


def event(id: str, **more: object) -> ScheduledEvent:
    return replace(ScheduledEvent(id, id, "Freeze", "Scheduled", SOON, duration=9, resources=(VM,)), **more)  # type: ignore[arg-type]


IMPACT, REBOOT = event("a"), event("b", type="Reboot", duration=-1)
USERS = event("b", type="Reboot", source="User")
UNDATED = event("b", not_before=None)
SHARED = event("b", resources=(VM, "vm-2"))


def crashes(level: int) -> Play:
    """Impacts, and crashes anywhere: two of them in one event, or one in two."""
    return Play("crashes", (IMPACT, REBOOT)[: 1 + level], Faults(crashes=2 - level, hooks=1))


def garbage(level: int) -> Play:
    """Two impacts; looks that bring nothing or a part, and hooks that fail."""
    return Play("garbage", (IMPACT, REBOOT), Faults(looks=1, hooks=level), due=level == 0)


def answers(level: int) -> Play:
    """An impact and a user's event; POSTs that are not answered, or refused, and a crash."""
    return Play("answers", (IMPACT, USERS), Faults(posts=1 + level, crashes=level), due=level == 0)


def fleet(level: int) -> Play:
    """An impact, and one that names another machine too; the fleet leases approvals, and a look may fail."""
    return Play("fleet", (IMPACT, SHARED), Faults(grants=1, looks=level, hooks=level), due=level == 0)


def drained(level: int) -> Play:
    """An operator has drained the node; the state is lost, or the process ended."""
    return Play("drained", (IMPACT,), Faults(losses=1, stops=1, crashes=level, hooks=1), drained=True)


def begun(level: int) -> Play:
    """Events may be first seen Started; after a boot services are taken down again."""
    settings = replace(SETTINGS, after_reboot="prepare", idempotent=False)
    return Play("begun", (IMPACT, REBOOT)[: 1 + level], Faults(crashes=1, stops=1), settings, direct=True)


def asked(level: int) -> Play:
    """A user's event, and a POST that fails or, with more time, an impact; the fleet asks for more than the file does; a crash."""
    settings = replace(SETTINGS, rules=(ActionRule("approve", source="User"),))
    return Play("asked", (USERS, IMPACT)[: 1 + level], Faults(policies=1, crashes=1, posts=1 - level), settings)


def together(level: int) -> Play:
    """An impact that names another machine too; the app agrees, holds, or is away, also to a report that is outdated; a crash."""
    settings = replace(SETTINGS, central=True, patience=0.0)
    return Play("together", (SHARED, IMPACT)[: 1 + level], Faults(answers=2, crashes=1, looks=level), settings, due=level == 0)


def numbered(level: int) -> Play:
    """The service repeats one incarnation for all its documents; with more time looks that bring nothing, and a crash."""
    return Play("numbered", (IMPACT, REBOOT), Faults(looks=level, crashes=level), due=level == 0, numbered=True)


def undated(level: int) -> Play:
    """NotBefore of an impact cannot be read: it is approved by a lease of the fleet alone, which comes with more time."""
    return Play("undated", (UNDATED, IMPACT), Faults(grants=level, looks=level), due=level == 0)


PLAYS: Mapping[str, Callable[[int], Play]] = {
    play.__name__: play for play in (crashes, garbage, answers, fleet, drained, begun, asked, together, numbered, undated)
}
