"""What is wrong with a fleet and what to do about it: a pure function of what the app shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from .terminal.output import count, several, span

type How = Literal["bad", "look"]
_SHOWN: Final = 10
"""Names told of many."""
_SCAN: Final = "tocsin status tells whether lease_scan, which fences the silent, is late."


class Finding(NamedTuple):
    """how: `bad` for what keeps the fleet from its work, `look` for what a person should know. what, means: a sentence each. do: the next
    step, a command wherever there is one."""

    how: How
    what: str
    means: str
    do: str


@dataclass(frozen=True, slots=True)
class Look:
    """A fleet as the API shows it: itself, `leases/stale`, its nodes, `leases/intents`, and a dry run of `leases/plan`."""

    fleet: Mapping[str, Any]
    stale: Mapping[str, Any]
    nodes: Sequence[Mapping[str, Any]]
    intents: Sequence[Mapping[str, Any]]
    plan: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The fleet's."""
        return str(self.fleet["name"])


def examine(look: Look) -> list[Finding]:
    """What was found, bad things first."""
    served = [*_partitions(look), *_servers(look)] if look.stale["servers"].get("used", True) else _unused(look)
    found = [*served, *_intents(look), *_beats(look), *_others(look)]
    return sorted(found, key=lambda finding: finding.how != "bad")


def _named(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _some(partitions: Sequence[int]) -> str:
    return f"partition{'' if len(partitions) == 1 else 's'} {several(partitions)}"


def _by_reason(found: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[int]]]:
    reasons: dict[str, list[int]] = {}
    for each in found:
        reasons.setdefault(each["reason"], []).append(each["partition"])
    return sorted(reasons.items())


def _unused(look: Look) -> Iterator[Finding]:
    """Of a fleet that never had a server."""
    means = "Nobody serves its partitions; where it is there for turns or maintenance alone, that is as it should be."
    yield Finding("look", "no server has been here yet", means, "Start servers: docs/leases.md, or docs/fleets.md for HTTP alone.")


def _partitions(look: Look) -> Iterator[Finding]:
    name = look.name
    recreate = f"tocsin leases create {name} --settings @FILE, with the settings that tocsin leases list --json shows of it."
    told = {
        "owner silent": (
            "Their server does not beat any more, and nobody serves them. It is fenced soon, and others take over by themselves.",
            _SCAN,
        ),
        "owner gone": (
            "Their server has ended or was fenced, and nobody has claimed them yet. The others do that by themselves.",
            f"tocsin leases nodes {name} --watch 2; if it lasts, start more servers, or look at the logs of those that live.",
        ),
        "unowned": ("Nobody serves them.", f"tocsin leases plan {name} tells who is to have them, or why nobody can."),
        "missing": ("Somebody deleted their rows: no server can claim them until they are put back.", recreate),
    }
    for reason, partitions in _by_reason(look.stale["items"]):
        means, do = told.get(reason, ("Nobody serves them.", f"tocsin leases show {name} {partitions[0]}"))
        yield Finding("bad", f"{_some(partitions)}: {reason}", means, do)
    unplaced = {
        "no server": ("There is no server that could have them.", f"Start servers. tocsin leases nodes {name} shows those that beat."),
        "no capacity": (
            "Every server has as many as it may.",
            f"Start more servers, or raise limits.max_per_server: tocsin leases show {name} --by-server tells who has how many.",
        ),
        "prohibited": (
            "Operators keep all servers that live from having them.",
            f"tocsin leases intents {name}; tocsin leases permit {name} --server SERVER --note WHY takes one back.",
        ),
    }
    for reason, partitions in _by_reason(look.plan["unplaced"]):
        means, do = unplaced.get(reason, ("The plan finds no server for them.", f"tocsin leases intents {name}"))
        yield Finding("bad", f"{_some(partitions)} can be placed nowhere: {reason}", means, do)


def _servers(look: Look) -> Iterator[Finding]:
    servers, minimum, name = look.stale["servers"], look.fleet["servers"]["minimum"], look.name
    live = count(servers["live"], "server")
    start = f"Start servers, or let drained ones back: tocsin leases intents {name}"
    if servers["live"] < minimum:
        means = "With fewer than that, those that are left may be overloaded." if servers["live"] else "Nobody serves it."
        yield Finding("bad", f"{live} live, the fleet cannot do without {minimum}", means, start)
    elif servers["live"] < servers["needed"]:
        means = "The fleet works; when more fail, none is to spare."
        yield Finding("look", f"{live} live, {servers['needed']} wanted with the spare ones", means, start)
    if servers["silent"]:
        means = "They do not beat, and should have been fenced: what they had is served by nobody."
        yield Finding("bad", f"silent and not fenced: {_named(servers['silent'])}", means, _SCAN)
    if servers["late"]:
        means = "Storage is slow or throttles, or the network is: servers give partitions up when their beats come through too late."
        do = f"Look at the storage account's metrics. tocsin leases nodes {name} --watch 2 shows the beats."
        yield Finding("bad", f"half of all beats are late: {_named(servers['late'])}", means, do)


_BACK: Final = {"offline": "online", "pin": "unpin", "drain": "undrain", "prohibit": "permit"}


def _back(name: str, each: Mapping[str, Any]) -> str:
    """The command that takes an operator's word back."""
    verb, target, server = each["verb"], each["target"], each.get("server")
    if verb not in _BACK:
        return f"tocsin leases intents {name}"
    where = f" {target}"
    if verb == "prohibit":
        where = f" --server {target}" if server is None else f" --server {server} --partition {target}"
    return f"tocsin leases {_BACK[verb]} {name}{where} --note WHY"


def _intents(look: Look) -> Iterator[Finding]:
    name = look.name
    for each in look.stale["forgotten"]:
        what = f"{each['verb']} {each['target']} stands since {each['created']} and never expires: {each['note']}"
        do = f"{_back(name, each)} takes it back; or say it again with --expires."
        yield Finding("look", what, "An operator said so more than a day ago, and may have forgotten it.", do)
    for verb, what, means in (
        ("offline", "offline by operators", "Nobody serves them, as somebody wants it."),
        ("drain", "drained by operators", "They get no partitions."),
    ):
        said = [each for each in look.intents if each["verb"] == verb]
        if said:
            targets = several([each["target"] for each in said]) if verb == "offline" else _named([str(each["target"]) for each in said])
            others = ", and the same for the others." if len(said) > 1 else ""
            yield Finding("look", f"{what}: {targets}", means, f"{_back(name, said[0])}{others}")


def _beats(look: Look) -> Iterator[Finding]:
    domains: dict[str, int] = {}
    for each in look.nodes:
        if each["beat"] and each["beat"]["state"] == "live":
            domain = each["beat"]["fault_domain"]
            domains[domain] = domains.get(domain, 0) + len(each["partitions"])
    named = {domain: held for domain, held in domains.items() if domain}
    held = sum(domains.values())
    if len(named) > 1 and held > 20 and (worst := max(named, key=named.__getitem__)) and named[worst] > held * 0.6:
        what, means = f"fault domain {worst} has {named[worst]} of {held} partitions", "What fails there takes most of the fleet with it."
        do = f"Start servers in the other domains. tocsin leases plan {look.name} shows what would move; with --apply it moves."
        yield Finding("look", what, means, do)


def _others(look: Look) -> Iterator[Finding]:
    name = look.name
    told = {
        "unserved": ("Partitions have been without a server for longer than a take-over needs.", f"tocsin leases plan {name}"),
        "missing": ("Rows of partitions are gone.", f"tocsin leases stale {name}"),
        "silent": ("Servers do not beat, and have not been fenced.", _SCAN),
        "late": ("The beats of half of all servers come late: storage is slow or throttles.", f"tocsin leases nodes {name} --watch 2"),
        "forgotten": ("What an operator said has stood for a day without an end.", f"tocsin leases intents {name}"),
        "servers": ("Fewer servers live than the fleet wants.", f"tocsin leases nodes {name}"),
        "unreadable": ("Rows were edited so that they cannot be read; what they are about stays as it is.", "Mend them in the table."),
        "turns": ("Checkpoint turns time out, or no replica is fit for one.", f"tocsin turns list {name}; tocsin leases nodes {name}"),
    }
    for alarm in look.stale["alarms"]:
        what = f"alarm {alarm['alarm']} since {alarm['since']}: {_named([str(each) for each in alarm['subjects']])}"
        unknown = ("The app raised it.", "docs/operations.md tells what each alarm means.")
        yield Finding("look", what, *told.get(alarm["alarm"], unknown))
    if look.fleet.get("resizing"):
        means = "Partitions move to their new numbers; it ends by itself once the servers have handed over."
        yield Finding("look", "a resize is under way", means, f"tocsin leases show {name} --watch 2")
    for node in look.nodes:
        turn = node["turn"]
        if turn and turn["down"] == "clock":
            what = f"replica {node['node']}: its clock does not run as clocks do; last report {span(turn['report_age_ms'])} ago"
            yield Finding("look", what, "It gets no checkpoint turns.", "Look at the machine's time service: chronyc tracking, on it.")
