"""What is to be done about an event: of the file's rules and of the fleet's the first that fits counts, and of those two the stricter;
where neither has one, the rules of the house decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ..config.settings import AgentSettings
from ..model import EVENT_TYPES, Action, ScheduledEvent
from ..policy import ActionRule

if TYPE_CHECKING:
    from ....core.clock import Millis

_LASTING: Final = ("Preempt", "Terminate")
"""They end the machine, whatever duration they name."""
_STRICTEST: Final[Mapping[tuple[bool, bool], Action]] = {
    (False, True): "approve",
    (True, True): "prepare",
    (True, False): "hold",
    (False, False): "ignore",
}
"""By whether it is prepared for, and whether the node approves it."""


def choose(event: ScheduledEvent, settings: AgentSettings) -> Action:
    """approve: at once, unprepared. prepare: before it, then approve. hold: prepare, and leave approving to the fleet or to NotBefore.
    ignore: neither. A rehearsal is always prepared for."""
    if event.rehearsal:
        return "prepare"
    said = [_first(rules, event) for rules in (settings.rules, settings.policy.rules)]
    if asked := [action for action in said if action is not None]:
        return strictest(asked)
    return "approve" if event.source == "User" or harmless(event, settings) else "prepare"


def strictest(actions: Iterable[Action]) -> Action:
    """What is right by all of them: prepared for where one asks for it, approved only where each does."""
    asked = set(actions)
    return _STRICTEST[bool(asked & {"prepare", "hold"}), not asked & {"hold", "ignore"}]


def _first(rules: Iterable[ActionRule], event: ScheduledEvent) -> Action | None:
    return next((rule.action for rule in rules if fits(rule, event)), None)


def fits(rule: ActionRule, event: ScheduledEvent) -> bool:
    """Whether all that the rule names is so. A type is compared without regard to case; an unknown duration fits no bound."""
    return (
        (rule.type is None or rule.type.lower() == event.type.lower())
        and (rule.source is None or rule.source == event.source)
        and (rule.max_seconds is None or 0 <= event.duration <= rule.max_seconds)
        and (rule.resources is None or not rule.resources.isdisjoint(event.resources))
    )


def harmless(event: ScheduledEvent, settings: AgentSettings) -> bool:
    """Whether it is known to be no impact: of a known type that leaves the machine alive, and of duration 0 or a short enough Freeze."""
    if event.type not in EVENT_TYPES or event.type in _LASTING:
        return False
    return event.duration == 0 or (event.type == "Freeze" and 0 <= event.duration < settings.freeze_limit)


def prepare_at(event: ScheduledEvent, settings: AgentSettings) -> Millis:
    """When (wall) preparing is due; 0: at once. A Preempt gives too little notice to wait for anything."""
    if event.not_before is None or event.type == "Preempt":
        return 0
    return event.not_before - round(1000 * settings.lead_of(event.type))


def names(event: ScheduledEvent, vm: str) -> bool:
    """Whether the event is on this machine: its name to the letter, for a host name or a part of a name may be another's."""
    return event.rehearsal or vm in event.resources
