"""Findings about a fleet: what is wrong, what that means and what to do. A pure function of the app's answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...core.readable import count_of
from ...fleets.watch.alarms import ALARMS
from ..findings import Finding, bad_first
from ..terminal.output import duration_text, ranges_text

_MAX_NAMES: Final = 10
"""Names that a finding lists; it counts the others."""
_SCAN: Final = ALARMS["silent"].remedy


@dataclass(frozen=True, slots=True)
class FleetReport:
    """A fleet as the API shows it: the fleet, `leases/stale`, its nodes, `leases/intents`, and a dry run of `leases/plan`.

    denied: the app's reason why the key may not see the plan, which then has no moves.
    """

    fleet: Mapping[str, Any]
    stale: Mapping[str, Any]
    nodes: Sequence[Mapping[str, Any]]
    intents: Sequence[Mapping[str, Any]]
    plan: Mapping[str, Any]
    denied: str = ""

    @property
    def name(self) -> str:
        """The name of the fleet."""
        return str(self.fleet["name"])


def examine_fleet(report: FleetReport) -> list[Finding]:
    """Return the findings, bad ones first."""
    served = [*_partitions(report), *_servers(report)] if report.stale["servers"].get("used", True) else _without_servers(report)
    found = [*served, *_controls(report), *_fault_domains(report), *_others(report)]
    if report.denied:
        do = "Use a key that has the scope fleets."
        found.append(Finding("look", "not examined: the plan", f"The app refused it: {report.denied}", do))
    return bad_first(found)


def _names(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _partition_list(partitions: Sequence[int]) -> str:
    return f"partition{'' if len(partitions) == 1 else 's'} {ranges_text(partitions)}"


def _by_reason(found: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[int]]]:
    reasons: dict[str, list[int]] = {}
    for each in found:
        reasons.setdefault(each["reason"], []).append(each["partition"])
    return sorted(reasons.items())


def _without_servers(report: FleetReport) -> Iterator[Finding]:
    """Yield the finding for a fleet that never had a server."""
    means = "Its partitions have no owner. A fleet that is used for turns or maintenance alone needs none."
    do = "Start servers: see docs/how-to/serve-partitions.md, or docs/reference/fleets.md for plain HTTP."
    yield Finding("look", "the fleet never had a server", means, do)


def _partitions(report: FleetReport) -> Iterator[Finding]:
    name = report.name
    recreate = f"Run tocsin leases create {name} --settings @FILE, with the settings that tocsin leases fleets --json shows."
    known = {
        "owner silent": (
            "Their server sends no heartbeats, and no server serves them. The app fences it soon; then other servers take over.",
            _SCAN,
        ),
        "owner gone": (
            "Their server has ended or was fenced, and no server has claimed them yet. The other servers claim them without help.",
            f"Run tocsin leases nodes {name} --watch 2. If it lasts, start more servers, or read the logs of the live ones.",
        ),
        "unowned": ("No server serves them.", f"Run tocsin leases plan {name}: it shows which server gets them, or why none can."),
        "missing": ("Their rows were deleted. No server can claim them until the rows are restored.", recreate),
    }
    for reason, partitions in _by_reason(report.stale["items"]):
        means, do = known.get(reason, ("No server serves them.", f"Run tocsin leases show {name} {partitions[0]}"))
        yield Finding("bad", f"{_partition_list(partitions)}: {reason}", means, do)
    unplaced = {
        "no server": ("No live server may have them.", f"Start servers. tocsin leases nodes {name} shows the live ones."),
        "no capacity": (
            "Every server has as many partitions as it may have.",
            f"Start more servers, or raise limits.max_per_server. tocsin leases show {name} --by-server counts each server's partitions.",
        ),
        "prohibited": (
            "Manual controls prohibit all live servers from having them.",
            f"Run tocsin leases intents {name}, then tocsin leases permit {name} --server SERVER --note REASON to remove one.",
        ),
    }
    for reason, partitions in _by_reason(report.plan["unplaced"]):
        means, do = unplaced.get(reason, ("The plan finds no server for them.", f"Run tocsin leases intents {name}"))
        has = "has" if len(partitions) == 1 else "have"
        yield Finding("bad", f"{_partition_list(partitions)} {has} no possible owner: {reason}", means, do)


def _servers(report: FleetReport) -> Iterator[Finding]:
    servers, minimum, name = report.stale["servers"], report.fleet["servers"]["minimum"], report.name
    live = count_of(servers["live"], "server")
    start = f"Start servers, or undrain drained ones: tocsin leases intents {name} lists them."
    if servers["live"] < minimum:
        means = "The remaining servers may be overloaded." if servers["live"] else "No server serves the fleet."
        yield Finding("bad", f"{live} live, but the fleet needs at least {minimum}", means, start)
    elif servers["live"] < servers["needed"]:
        means = "The fleet works, but no spare server is left for the next failure."
        yield Finding("look", f"{live} live, {servers['needed']} wanted including spare ones", means, start)
    if servers["silent"]:
        means = "They send no heartbeats and should have been fenced. No server serves their partitions."
        yield Finding("bad", f"silent and not fenced: {_names(servers['silent'])}", means, _SCAN)
    if servers["late"]:
        means = "Storage or the network is slow. A server gives up its partitions if its heartbeats arrive too late."
        do = f"Look at the storage account's metrics. tocsin leases nodes {name} --watch 2 shows the heartbeats."
        yield Finding("bad", f"half of all heartbeats are late: {_names(servers['late'])}", means, do)


_INVERSE: Final = {"offline": "online", "pin": "unpin", "drain": "undrain", "prohibit": "permit"}


def _inverse_command(name: str, control: Mapping[str, Any]) -> str:
    """Return the command that removes a manual control."""
    verb, target, server = control["verb"], control["target"], control.get("server")
    if verb not in _INVERSE:
        return f"tocsin leases intents {name}"
    where = f" {target}"
    if verb == "prohibit":
        where = f" --server {target}" if server is None else f" --server {server} --partition {target}"
    return f"tocsin leases {_INVERSE[verb]} {name}{where} --note REASON"


def _controls(report: FleetReport) -> Iterator[Finding]:
    name = report.name
    for each in report.stale["forgotten"]:
        what = f"{each['verb']} {each['target']} is in force since {each['created']} and has no expiry: {each['note']}"
        do = f"Remove it with {_inverse_command(name, each)}, or repeat it with --expires."
        yield Finding("look", what, "The control is older than a day. Its operator may have forgotten it.", do)
    for verb, what, means in (
        ("offline", "offline by manual control", "No server serves them, as an operator asked."),
        ("drain", "drained by manual control", "They get no partitions."),
    ):
        found = [each for each in report.intents if each["verb"] == verb]
        if found:
            numbers = verb == "offline"
            targets = ranges_text([each["target"] for each in found]) if numbers else _names([str(each["target"]) for each in found])
            others = ", and the same for the others." if len(found) > 1 else ""
            yield Finding("look", f"{what}: {targets}", means, f"To end it: {_inverse_command(name, found[0])}{others}")


def _fault_domains(report: FleetReport) -> Iterator[Finding]:
    domains: dict[str, int] = {}
    for each in report.nodes:
        if each["beat"] and each["beat"]["state"] == "live":
            domain = each["beat"]["fault_domain"]
            domains[domain] = domains.get(domain, 0) + len(each["partitions"])
    named = {domain: held for domain, held in domains.items() if domain}
    held = sum(domains.values())
    if len(named) > 1 and held > 20 and (worst := max(named, key=named.__getitem__)) and named[worst] > held * 0.6:
        what, means = f"fault domain {worst} has {named[worst]} of {held} partitions", "A failure there affects most of the fleet."
        do = f"Start servers in the other domains. tocsin leases plan {report.name} shows the moves; --apply makes them."
        yield Finding("look", what, means, do)


def _others(report: FleetReport) -> Iterator[Finding]:
    name = report.name
    for alarm in report.stale["alarms"]:
        what = f"alarm {alarm['alarm']} since {alarm['since']}: {_names([str(each) for each in alarm['subjects']])}"
        if (known := ALARMS.get(alarm["alarm"])) is not None:
            yield Finding("look", what, known.means, known.remedy.format(fleet=name))
        else:
            yield Finding("look", what, "The app raised it.", "docs/how-to/operations.md explains each alarm.")
    if report.fleet.get("resizing"):
        means = "Partitions move to their new numbers. The resize ends once all servers have handed over."
        yield Finding("look", "a resize is in progress", means, f"Run tocsin leases show {name} --watch 2")
    for node in report.nodes:
        turn = node["turn"]
        if turn and turn["down"] == "clock":
            age = duration_text(turn["report_age_ms"])
            what = f"replica {node['node']}: its clock runs too fast or too slow; last report {age} ago"
            yield Finding("look", what, "It gets no checkpoint turns.", "Check the machine's time service: run chronyc tracking on it.")
