"""The alarms of maintenance: one table with the sentence, the urgency and the line in the overview of each.

To change the text of an alarm, edit `ALARMS`. `rules` decides when one is raised: for an event, or for the fleet itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...leases.fleet_alarms import AlarmDefinition, Reason

ALARMS: Final[Mapping[str, AlarmDefinition]] = {
    "disagreement": AlarmDefinition(
        sentence="agents report different details of it",
        reason=Reason("soon", "event on which agents disagree", "events on which agents disagree"),
    ),
    "silent": AlarmDefinition(
        sentence="agents of nodes that it names do not report",
        reason=Reason("urgent", "event with silent agents", "events with silent agents"),
    ),
    "prolonged": AlarmDefinition(
        sentence="it started more than half an hour ago and is still open",
        reason=Reason("soon", "prolonged event", "prolonged events"),
    ),
    "prepare-failed": AlarmDefinition(
        sentence="a node could not be prepared",
        reason=Reason("urgent", "event with a failed preparation", "events with a failed preparation"),
    ),
    "restore-failed": AlarmDefinition(
        sentence="a node could not be restored",
        reason=Reason("urgent", "event with a failed restore", "events with a failed restore"),
    ),
    "approval-failed": AlarmDefinition(
        sentence="Azure refused its approval, or has not taken it for half a minute",
        reason=Reason("soon", "event with a failed approval", "events with a failed approval"),
    ),
    "forced": AlarmDefinition(
        sentence="a node prepares without the domain guard's permission, because it could not wait any longer",
        reason=Reason("soon", "event prepared without permission", "events prepared without permission"),
    ),
    "too-wide": AlarmDefinition(
        sentence="it takes more fault domains down at once than the quorum allows",
        reason=Reason("soon", "event across too many fault domains", "events across too many fault domains"),
    ),
    "callers-affected": AlarmDefinition(
        sentence="a bound of the fleet's caller probe is passed",
        reason=Reason("soon", "event that affects callers", "events that affect callers"),
    ),
    # Of the fleet itself.
    "single-monitor": AlarmDefinition(
        sentence="only one node can act as monitor for the fleet",
        reason=Reason("later", "only one possible monitor"),
    ),
    "monitors-together": AlarmDefinition(
        sentence="both monitors are in one fault domain",
        reason=Reason("later", "both monitors in one fault domain"),
    ),
    "domains-down": AlarmDefinition(
        sentence="more fault domains are down at once than the quorum allows",
        reason=Reason("urgent", "too many fault domains down"),
    ),
}
"""By kind. In an alarm, a place may follow the kind after a space, such as that of `domains-down`."""


def kind_of(alarm: str) -> str:
    """Return the kind of an alarm."""
    return alarm.partition(" ")[0]
