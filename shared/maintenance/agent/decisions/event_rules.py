"""Chooses the action for an event. The first matching rule of the file and that of the fleet count, and of the two the stricter.

If neither has a matching rule, the default rules decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ...azure_names import folded
from ..config.settings import AgentSettings
from ..model import EVENT_TYPES, ScheduledEvent
from ..policy import Action, ActionRule

if TYPE_CHECKING:
    from ....core.clock import Millis

LASTING: Final = ("Preempt", "Terminate")
"""Types that end the machine, for any duration that they name. Waiting does not delay them, and leaves less time to prepare."""
_STRICTEST: Final[Mapping[tuple[bool, bool], Action]] = {
    (False, True): "approve",
    (True, True): "prepare",
    (True, False): "hold",
    (False, False): "ignore",
}
"""The action by two properties: the node prepares for the event, and the node approves it."""


def choose(event: ScheduledEvent, settings: AgentSettings) -> Action:
    """Return the action for an event.

    approve: approve at once, without preparation. prepare: prepare, then approve. hold: prepare, and leave the approval to the fleet or to
    NotBefore. ignore: do neither. A rehearsal is always prepared for.
    """
    if event.rehearsal:
        return "prepare"
    said = [_first(rules, event) for rules in (settings.rules, settings.policy.rules)]
    if asked := [rule.action for rule in said if rule is not None]:
        return strictest(asked)
    # A user's restart ends a hang, and is approved at once. What removes the machine is announced so that it can be drained.
    user = event.source == "User" and event.type not in LASTING
    return "approve" if user or harmless(event, settings) else "prepare"


def strictest(actions: Iterable[Action]) -> Action:
    """Return the strictest combination: prepare if one action does, approve only if all do."""
    asked = set(actions)
    return _STRICTEST[bool(asked & {"prepare", "hold"}), not asked & {"hold", "ignore"}]


def _first(rules: Iterable[ActionRule], event: ScheduledEvent) -> ActionRule | None:
    return next((rule for rule in rules if fits(rule, event)), None)


def fits(rule: ActionRule, event: ScheduledEvent) -> bool:
    """Return true if the rule matches. Types are compared case-insensitively. An unknown duration matches no bound."""
    return (
        (rule.type is None or rule.type.lower() == event.type.lower())
        and (rule.source is None or rule.source == event.source)
        and (rule.max_seconds is None or 0 <= event.duration <= rule.max_seconds)
        and (rule.resources is None or not folded(rule.resources).isdisjoint(folded(event.resources)))
    )


def harmless(event: ScheduledEvent, settings: AgentSettings) -> bool:
    """Return true if the event is known to have no impact: a known type that keeps the machine, with duration 0 or a short Freeze."""
    if event.type not in EVENT_TYPES or event.type in LASTING:
        return False
    return event.duration == 0 or (event.type == "Freeze" and 0 <= event.duration < settings.freeze_limit)


def prepare_at(event: ScheduledEvent, settings: AgentSettings) -> Millis:
    """Return the wall time at which preparing is due; 0 for at once. A Preempt gives too little notice to wait."""
    if event.not_before is None or event.type == "Preempt":
        return 0
    if not event.rehearsal and (rule := _first(settings.rules, event)) is not None and rule.early:
        return 0
    return event.not_before - round(1000 * settings.lead_of(event.type))


def names(event: ScheduledEvent, vm: str) -> bool:
    """Return true if the event names this machine, in any case. A host name or a part of a name may belong to another machine."""
    return event.rehearsal or vm.casefold() in folded(event.resources)


def names_only(event: ScheduledEvent, vm: str) -> bool:
    """Return true if the event names this machine and no other."""
    return folded(event.resources) == {vm.casefold()}
