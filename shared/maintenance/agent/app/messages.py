"""Builds reports to the app and parses its answers. API: POST .../maintenance/reports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from ....core.clock import Millis, to_text
from ...azure_names import same_name
from ...latency import PHASES
from ...not_before import read_time
from ...rule_settings import GuardMode
from ..caller_probe import ProbeOrder, ProbeTarget
from ..decisions.work import OVER
from ..effects import WriteLog
from ..imds.client import Machine
from ..model import ElectedMonitors, EventPhase, EventRecord, LeasedApproval, NodeState, ScheduledEvent
from ..observations import AppAnswer, AppCommand
from ..policy import ActionRule, FleetPolicy
from ..timings import LONGEST_REPORT, SHORTEST_REPORT, USUAL_REPORT

MOST: Final = 500
"""Events in a report: those on this node first, then those that are over, then those of others."""
MOST_NAMED: Final = 1000
"""Machines named by an event in a report."""
ROOM: Final = 120_000
"""Characters of a report's events as JSON in ASCII: the app keeps no more of a node than fits in a row. An event that names 1000 machines
takes up to 70,000."""
EXACT: Final = 2**53
"""Beyond it a number of JSON is not everywhere the same."""
LASTING: Final = 31_536_000
"""Longest duration that a report states, in seconds: a year."""
_ID: Final = re.compile(r"[a-z0-9](?:[a-z0-9_.:-]{0,126}[a-z0-9])?")
_NOT_TOLD: Final = ("type", "phase", "rehearsal", "grant")
"""Fields of log lines that steps leave out, because the event shows them."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class ReportReceipt:
    """A parsed answer. next: seconds until the app expects the next report. probe: what it says about the fleet's caller probe.
    steps: number of steps that it takes in a report; a former release takes none."""

    answer: AppAnswer
    next: float
    probe: ProbeOrder = field(default_factory=ProbeOrder)
    steps: int = 0


def body_of(state: NodeState, node: str, machine: Machine) -> dict[str, Any]:
    """Return a report of `state`, without its `seq`."""
    body = {
        "node": node,
        "vm": machine.vm,
        "scope": _clean(machine.scope, 300),
        "location": _clean(machine.location, 64),
        "fault_domain": _clean(machine.fault_domain, 64),
        "boot_id": state.boot_id,
        "incarnation": state.incarnation if state.incarnation is not None and abs(state.incarnation) < EXACT else None,
        "disabled": state.disabled,
        "events": _fitting(_chosen(state.events.values()), machine.vm),
    }
    body |= {"caught_up": True} if state.in_step else {}
    resource = machine.resource_id
    return body | ({"resource_id": resource} if resource and resource == _clean(resource, 300) else {})


def is_reported(event_id: str) -> bool:
    """Return true if the app takes an event's id. One that it refuses would make it refuse the whole report."""
    return _ID.fullmatch(event_id) is not None


def step_of(line: WriteLog, event_id: str, number: int, at: Millis) -> dict[str, Any]:
    """Return a log line as a step of an event's story."""
    more = ", ".join(f"{name} {value}" for name, value in line.fields.items() if name not in _NOT_TOLD and value != "")
    text = _clean(f"{line.text} ({more})" if more else line.text, 200)
    return {"number": number, "at": to_text(at), "event_id": event_id, "action": line.action[:64], "text": text, "level": line.level}


def near(state: NodeState) -> bool:
    """Return true if an event is on this node, or the node is being restored: then reports are urgent."""
    return any(record.phase not in (EventPhase.FOREIGN, EventPhase.DONE) for record in state.events.values())


def distinct_changes(states: Sequence[NodeState]) -> list[NodeState]:
    """Return the changed states that need a report each, in order.

    A report is complete. So a change of other machines' events alone is left to the next report, if that waits already: in a wave over
    many machines each second brings one.
    """
    return [state for state, later in pairwise(states) if _own(state) != _own(later)] + list(states[-1:])


def _own(state: NodeState) -> object:
    """Return what a report says of its own node."""
    mine = {event_id: record for event_id, record in state.events.items() if record.phase is not EventPhase.FOREIGN}
    return state.boot_id, state.disabled, state.in_step, [(event_of(record), record.at_once) for record in mine.values()]


def read_answer(body: bytes, sent: float, asking: frozenset[str]) -> ReportReceipt | str:
    """Parse the answer to a report sent at `sent` (steady) that asked to approve `asking`. Returns a text for an invalid answer."""
    try:
        raw = json.loads(body, parse_constant=_refuse)
        grants = tuple(_grant(each, sent) for each in _list(raw, "approvals"))
        holds = {str(each["event_id"]).casefold(): str(each["reason"]) for each in _list(raw, "hold")}
        commands = tuple(AppCommand(str(each["id"]), str(each["event_id"]).casefold(), _do(each["do"])) for each in _list(raw, "commands"))
        rehearsals = tuple(_rehearsal(each) for each in _list(raw, "rehearsals"))
        asked = {str(each["event_id"]).casefold(): each for each in _list(raw, "permissions")}
        others = {str(each["event_id"]).casefold(): (str(each["node"]), each["approved"] is True) for each in _list(raw, "others")}
        answer = AppAnswer(
            asking,
            grants,
            holds,
            commands,
            rehearsals,
            _monitors(raw.get("monitors")),
            _policy(raw.get("settings")),
            permitted=frozenset(event_id for event_id, each in asked.items() if each["state"] == "granted"),
            refused={event_id: str(each.get("reason") or "") for event_id, each in asked.items() if each["state"] != "granted"},
            # From SEND, as the lease of an approval.
            until=sent + raw["turn_ms"] / 1000 if "turn_ms" in raw else inf,
            approves={event_id: node for event_id, (node, approved) in others.items() if not approved},
            approved={event_id: node for event_id, (node, approved) in others.items() if approved},
        )
        wait = raw.get("next_report_ms", 1000 * USUAL_REPORT) / 1000
        probe = _probe_order(raw)
        steps = int(raw.get("steps") or 0)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        return f"the app's answer cannot be read ({type(error).__name__}: {error})"
    return ReportReceipt(answer, min(max(wait, SHORTEST_REPORT), LONGEST_REPORT), probe, steps)


def _chosen(records: Iterable[EventRecord]) -> list[EventRecord]:
    known = (record for record in records if _ID.fullmatch(record.event.event_id))
    return sorted(known, key=lambda record: (record.phase is EventPhase.FOREIGN, record.phase in OVER, -record.seen_at))[:MOST]


def _fitting(records: Iterable[EventRecord], vm: str) -> list[dict[str, Any]]:
    """Return the entries that fit into a report.

    An event is reported with all of its names or not at all: the app waits for reports of all named nodes before it gives an approval, and
    it cannot wait for nodes with names that it does not know.
    """
    found: list[dict[str, Any]] = []
    left = ROOM
    for record in records:
        entry = _entry(record, vm)
        size = len(json.dumps(entry))
        if size <= left:
            left -= size
            found.append(entry)
    return found


def event_of(record: EventRecord) -> dict[str, Any]:
    """Return an event as reports, hooks and health show it."""
    event = record.event
    entry: dict[str, Any] = {
        "event_id": event.event_id,
        "type": event.type,
        "status": event.status,
        "not_before": None if event.not_before is None else to_text(event.not_before),
        "source": event.source,
        "duration_s": event.duration,
        "resources": list(event.resources),
        "phase": str(record.phase),
    }
    if record.reason:
        entry["reason"] = record.reason
    if record.observed_ms:
        entry["observed_ms"] = record.observed_ms
    if record.outcome is not None and record.phase is EventPhase.DONE:
        entry["outcome"] = record.outcome
    return entry


def _entry(record: EventRecord, vm: str) -> dict[str, Any]:
    """Return an event within the app's limits. A value beyond them would make the app refuse the whole report."""
    entry = event_of(record)
    entry["type"] = _clean(entry["type"], 64)
    entry["duration_s"] = min(entry["duration_s"], LASTING)
    if "reason" in entry:
        entry["reason"] = _clean(entry["reason"], 300)
    names = [name for name in record.event.resources if name and name == _clean(name, 128)]
    if record.at_once and record.phase is EventPhase.WAITING:
        entry["at_once"] = True
    # This machine first: the list may be cut.
    entry["resources"] = sorted(names, key=lambda name: not same_name(name, vm))[:MOST_NAMED]
    return entry


def _clean(text: str, most: int) -> str:
    return _CONTROL.sub(" ", text)[:most]


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _list(raw: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found: Any = raw.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise TypeError(f"{key} is not a list")
    return found


def _grant(raw: dict[str, Any], sent: float) -> LeasedApproval:
    expires = read_time(raw["expires"])
    if expires is None:
        raise ValueError("expires is not a time")
    # From SEND: the app counts from receipt, so it never leases to another while this one still holds.
    return LeasedApproval(str(raw["id"]), str(raw["event_id"]).casefold(), sent + raw["lease_ms"] / 1000, expires)


def _do(raw: str) -> Literal["prepare", "restore"]:
    if raw not in ("prepare", "restore"):
        raise ValueError(f"no such command: {raw[:20]}")
    return cast(Literal["prepare", "restore"], raw)


def _rehearsal(raw: dict[str, Any]) -> ScheduledEvent:
    event_id = str(raw["event_id"])
    return ScheduledEvent(
        event_id.casefold(),
        event_id,
        str(raw.get("type") or "Freeze"),
        "Scheduled",
        read_time(raw.get("not_before")),
        duration=min(max(0, int(raw.get("duration_s") or 0)), LASTING),
        rehearsal=True,
    )


def _monitors(raw: Any) -> ElectedMonitors | None:
    return None if raw is None else ElectedMonitors(raw["primary"], raw["secondary"], int(raw["epoch"]))


def _policy(raw: Any) -> FleetPolicy | None:
    """Parse the fleet's settings; None if the app's release does not send them."""
    if raw is None:
        return None
    leads = {str(kind): _seconds(lead) for kind, lead in raw["leads_ms"].items()}
    rules = tuple(_rule(each) for each in _list(raw, "rules"))
    # A former release of the app sends no guard, and answers no agent that asks.
    guard: GuardMode = "prepare" if raw.get("guard") == "prepare" else "approve"
    return FleetPolicy("", _seconds(raw["lead_ms"]), leads, bool(raw["require_central"]), rules, guard, _seconds(raw.get("catch_up_ms", 0)))


def _probe_order(raw: dict[str, Any]) -> ProbeOrder:
    """Parse what the answer says about the caller probe. A phase of a later release is left out: its probes count for nothing."""
    probe = (raw.get("settings") or {}).get("probe")
    if probe is None:
        return ProbeOrder()
    url, command, slow = probe.get("url") or "", probe.get("command") or "", probe.get("slow_ms")
    if not isinstance(url, str) or not isinstance(command, str) or any(not "!" <= letter <= "~" for letter in url):
        raise ValueError("not a caller probe")
    # Raises ValueError for a port that is none.
    if url and (urlsplit(url).scheme not in ("http", "https") or urlsplit(url).port == 0):
        raise ValueError("not the address of a caller probe")
    target = ProbeTarget(url, command, _seconds(probe["every_ms"]), _seconds(probe["timeout_ms"]), None if slow is None else int(slow))
    asked = (raw.get("probe") or {}).get("events") or {}
    return ProbeOrder(target, {str(event_id): phase for event_id, phase in asked.items() if phase in PHASES})


def _rule(raw: dict[str, Any]) -> ActionRule:
    if raw["action"] not in ("approve", "prepare", "hold", "ignore"):
        raise ValueError(f"no such action: {str(raw['action'])[:20]}")
    kind, longest = raw.get("type"), raw.get("max_seconds")
    return ActionRule(raw["action"], None if kind is None else str(kind), raw.get("source"), None if longest is None else int(longest))


def _seconds(raw: Any) -> float:
    seconds = raw / 1000
    if not 0 <= seconds <= 1e9:
        raise ValueError("not a lead")
    return float(seconds)
