"""What is wrong with a fleet and what to do about it: a pure function of what the app shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from .output import several, span

type How = Literal["bad", "look"]
_SHOWN: Final = 10
"""Names told of many."""


class Finding(NamedTuple):
    """how: `bad` for what keeps the fleet from its work, `look` for what a person should know. what: a sentence. do: the next step."""

    how: How
    what: str
    do: str


@dataclass(frozen=True, slots=True)
class Look:
    """A fleet as the API shows it: itself, `leases/stale`, its nodes, `leases/intents`, and a dry run of `leases/plan`."""

    fleet: Mapping[str, Any]
    stale: Mapping[str, Any]
    nodes: Sequence[Mapping[str, Any]]
    intents: Sequence[Mapping[str, Any]]
    plan: Mapping[str, Any]


def examine(look: Look) -> list[Finding]:
    """What was found, bad things first."""
    found = [*_partitions(look), *_servers(look), *_intents(look), *_beats(look), *_others(look)]
    return sorted(found, key=lambda finding: finding.how != "bad")


def _named(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _partitions(look: Look) -> Iterator[Finding]:
    name = look.fleet["name"]
    advice = {
        "owner silent": "Its server is fenced and others take over by themselves; if this lasts, look whether lease_scan ticks (readyz).",
        "owner gone": "Others claim it by themselves; if this lasts, start more servers, or look at their logs.",
        "unowned": f"tocsin leases plan {name} --dry-run tells why no server has it.",
        "missing": "Its row is lost: PUT the fleet again (tocsin leases create with the same settings), which makes it anew.",
    }
    reasons: dict[str, list[int]] = {}
    for each in look.stale["items"]:
        reasons.setdefault(each["reason"], []).append(each["partition"])
    for reason, partitions in sorted(reasons.items()):
        yield Finding("bad", f"partitions {several(partitions)}: {reason}", advice.get(reason, "Look at it with tocsin leases show."))
    unplaced: dict[str, list[int]] = {}
    for each in look.plan["unplaced"]:
        unplaced.setdefault(each["reason"], []).append(each["partition"])
    cures = {
        "no server": "Start servers.",
        "no capacity": "Start more servers, or raise limits.max_per_server.",
        "prohibited": f"tocsin leases intents {name} shows what forbids it; tocsin leases permit takes it back.",
    }
    for reason, partitions in sorted(unplaced.items()):
        yield Finding("bad", f"partitions {several(partitions)} can be placed nowhere: {reason}", cures.get(reason, "Look at the intents."))


def _servers(look: Look) -> Iterator[Finding]:
    servers, minimum = look.stale["servers"], look.fleet["servers"]["minimum"]
    if servers["live"] < minimum:
        yield Finding("bad", f"{servers['live']} servers live, the fleet cannot do without {minimum}", "Start servers, or undrain some.")
    elif servers["live"] < servers["needed"]:
        yield Finding("look", f"{servers['live']} servers live, {servers['needed']} wanted with the spare ones", "Start servers.")
    if servers["silent"]:
        yield Finding("bad", f"silent and not fenced: {_named(servers['silent'])}", "lease_scan should have fenced them: look at readyz.")
    if servers["late"]:
        yield Finding("bad", f"half of all beats are late: {_named(servers['late'])}", "Storage may be throttled: look at its metrics.")


def _intents(look: Look) -> Iterator[Finding]:
    for each in look.stale["forgotten"]:
        what = f"{each['verb']} {each['target']} stands since {each['created']} and never expires: {each['note']}"
        yield Finding("look", what, "Take it back, or say it again with --expires.")
    offline = [each["target"] for each in look.intents if each["verb"] == "offline"]
    if offline:
        yield Finding("look", f"offline by operators: {several(offline)}", "tocsin leases online brings them back.")
    draining = [str(each["target"]) for each in look.intents if each["verb"] == "drain"]
    if draining:
        yield Finding("look", f"drained by operators: {_named(draining)}", "tocsin leases undrain lets them have partitions again.")


def _beats(look: Look) -> Iterator[Finding]:
    domains: dict[str, int] = {}
    for each in look.nodes:
        if each["beat"] and each["beat"]["state"] == "live":
            domain = each["beat"]["fault_domain"]
            domains[domain] = domains.get(domain, 0) + len(each["partitions"])
    named = {domain: held for domain, held in domains.items() if domain}
    held = sum(domains.values())
    if len(named) > 1 and held > 20 and (worst := max(named, key=named.__getitem__)) and named[worst] > held * 0.6:
        what = f"fault domain {worst} has {named[worst]} of {held} partitions"
        yield Finding("look", what, "Start servers in the other domains, or let the plan balance.")


def _others(look: Look) -> Iterator[Finding]:
    for alarm in look.stale["alarms"]:
        age = f"{alarm['alarm']} since {alarm['since']}: {_named([str(each) for each in alarm['subjects']])}"
        yield Finding("look", f"alarm {age}", "docs/operations.md tells what each alarm means.")
    if look.fleet.get("resizing"):
        yield Finding("look", "a resize is under way", "It ends by itself once the servers have handed over.")
    for node in look.nodes:
        turn = node["turn"]
        if turn and turn["down"] == "clock":
            what = f"replica {node['node']}: its clock does not run as clocks do; last report {span(turn['report_age_ms'])} ago"
            yield Finding("look", what, "Look at the machine's time service.")
