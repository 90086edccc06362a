"""What is to be done about an event: the first rule that fits decides, and after the operator's rules come those of the house."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .model import EVENT_TYPES, Action, Event
from .settings import Rule, Settings

if TYPE_CHECKING:
    from ...clock import Millis

_LASTING: Final = ("Preempt", "Terminate")
"""They end the machine, whatever duration they name."""


def choose(event: Event, settings: Settings) -> Action:
    """approve: at once, unprepared. prepare: before it, then approve. hold: prepare, and leave approving to the fleet or to NotBefore.
    ignore: neither. A rehearsal is always prepared for."""
    if event.rehearsal:
        return "prepare"
    for rule in settings.rules:
        if fits(rule, event):
            return rule.action
    return "approve" if event.source == "User" or harmless(event, settings) else "prepare"


def fits(rule: Rule, event: Event) -> bool:
    """Whether all that the rule names is so. A type is compared without regard to case; an unknown duration fits no bound."""
    return (
        (rule.type is None or rule.type.lower() == event.type.lower())
        and (rule.source is None or rule.source == event.source)
        and (rule.max_seconds is None or 0 <= event.duration <= rule.max_seconds)
        and (rule.resources is None or not rule.resources.isdisjoint(event.resources))
    )


def harmless(event: Event, settings: Settings) -> bool:
    """Whether it is known to be no impact: of a known type that leaves the machine alive, and of duration 0 or a short enough Freeze."""
    if event.type not in EVENT_TYPES or event.type in _LASTING:
        return False
    return event.duration == 0 or (event.type == "Freeze" and 0 <= event.duration < settings.freeze_limit)


def prepare_at(event: Event, settings: Settings) -> Millis:
    """When (wall) preparing is due; 0: at once. A Preempt gives too little notice to wait for anything."""
    if event.not_before is None or event.type == "Preempt":
        return 0
    return event.not_before - round(1000 * settings.leads.get(event.type, settings.lead))


def names(event: Event, vm: str) -> bool:
    """Whether the event is on this machine: its name to the letter, for a host name or a part of a name may be another's."""
    return event.rehearsal or vm in event.resources
