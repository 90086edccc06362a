"""Findings about a tenant: faults of its events, channels, keys and limits, their meaning and the next steps.

A pure function of the app's answers. `RULES` lists the rules; each examines one part of the report. Every command of a finding runs as it
is printed.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from ...core.readable import count_of, readable_duration
from ..findings import Finding, bad_first

LATE_FROM: Final = 1_000
"""Milliseconds of lateness from which a delivered event is a finding."""
SOON: Final = timedelta(days=7)
"""Time before its expiry from which a key is a finding."""
FULL: Final = 0.9
"""Used share of a limit from which the limit is a finding."""
MOST_CAUSES: Final = 10
"""Most causes of dead events that are listed, and most of retried ones; those with the most events come first."""
_MOVED: Final = "; if it has moved, put its new URL in place of the one below"
_CUT: Final = 100
"""Characters of an error by which its events are filtered."""

LATE: Final[Mapping[str, tuple[str, str]]] = {
    "accepted-late": ("They were sent after their due times.", "Find the program that sends them late or has a wrong clock."),
    "paused": ("Their channel was paused.", "Nothing, if the pause was meant."),
    "breaker": ("Their receiver failed, and the circuit breaker held them.", "Mend the receiver."),
    "owner-lost": ("A process of the app ended while it had them.", "If it lasts, find out why the app's instances end."),
    "rate": ("The deliveries per second of the channel or the tenant are limited.", "Raise the limit, if the receiver can take more."),
    "concurrency": (
        "The channel or the tenant already had as many deliveries in flight as its limit allows.",
        "Raise the limit, or make the receiver faster.",
    ),
    "storage": ("Storage was slow or refused requests.", "See the storage account's metrics: transactions by response type."),
    "ordering-key": ("Earlier events of their ordering key or schedule had to end first.", "Make the receiver faster, or use more keys."),
    "partition-owner": ("No server owned the partition of their ordering key.", "Examine the fleet of the channel."),
    "not-taken": ("No process took them up in time.", "If it lasts, the app has too few instances, or its sweep does not run."),
    "retry": ("Earlier attempts failed.", "Find out why the receiver fails."),
}
"""Meaning and next step by the reason why an event was late."""


@dataclass(frozen=True, slots=True)
class TenantReport:
    """A tenant as the API shows it. A part that the key may not see is None, and `denied` has the app's reason.

    dead: dead events of the last day. retrying: events that wait for a retry. delivered: delivered events of the last hour, or some of
    them. tenant, channels, keys: need an admin key. option: the words that name the tenant in commands, if commands need them.
    """

    name: str
    option: tuple[str, ...]
    now: datetime
    health: Mapping[str, Any]
    denied: Mapping[str, str]
    stats: Mapping[str, Any] | None
    dead: Sequence[Mapping[str, Any]]
    retrying: Sequence[Mapping[str, Any]]
    delivered: Sequence[Mapping[str, Any]]
    schedules: Sequence[Mapping[str, Any]]
    fleets: Sequence[Mapping[str, Any]]
    tenant: Mapping[str, Any] | None
    channels: Sequence[Mapping[str, Any]] | None
    keys: Sequence[Mapping[str, Any]] | None

    def tocsin(self, *words: str) -> str:
        """Return a command that acts for the tenant, quoted for a shell."""
        return command(*words, *self.option)

    def get(self, event: Mapping[str, Any]) -> str:
        """Return the command that shows an event."""
        event_id = str(event["id"])
        return command("events", "get", *self.option, *(("--",) if event_id.startswith("-") else ()), event_id)

    def set_url(self, channel: str) -> tuple[str, ...]:
        """Return the command that changes the URL of a channel, with the present one; nothing for a channel without a known URL."""
        urls = [str(each["url"]) for each in self.channels or () if each["name"] == channel and each.get("url")]
        return tuple(command("tenants", "channels", "set", self.name, channel, "--to", url) for url in urls)


def command(*words: str) -> str:
    """Return a command, quoted for a shell."""
    return shlex.join(("tocsin", *words))


def examine_tenant(report: TenantReport) -> list[Finding]:
    """Return the findings, bad ones first."""
    return bad_first([finding for rule in RULES for finding in rule(report)])


def examine_all(tenants: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Return a finding for each tenant of the overview that needs a person, the worst first."""
    found = []
    for each in tenants:
        if each["urgency"] == "none":
            continue
        figures = (
            (each["stuck"], "stuck event"),
            (each["overdue"], "overdue event"),
            (each["dead"], "dead event"),
            (each["blocked_channels"], "blocked channel"),
            (each["fleets"], "fleet that needs a person"),
        )
        texts = [
            count_of(number, what, "fleets that need a person" if what.startswith("fleet") else None) for number, what in figures if number
        ]
        run = command("doctor", "--tenant", each["tenant"])
        urgent = each["urgency"] == "urgent"
        means = "No process serves some of its events, or a fleet is in trouble." if urgent else "The team that uses it should know."
        how: Any = "look" if each["urgency"] == "later" else "bad"
        found.append(Finding(how, f"tenant {each['tenant']}: {', '.join(texts)}", means, "Examine the tenant.", (run,)))
    return bad_first(found)


def _app(report: TenantReport) -> Iterator[Finding]:
    health = report.health
    if health["status"] != "ready":
        means = "This affects the whole service, not only this tenant."
        yield Finding(
            "bad", f"the app is not ready: {health.get('detail', 'no reason given')}", means, "Examine the app.", (command("status"),)
        )


def _unseen(report: TenantReport) -> Iterator[Finding]:
    parts: dict[str, list[str]] = defaultdict(list)
    for part, why in report.denied.items():
        parts[why].append(part)
    for why, names in parts.items():
        means = f"The app refused it: {why}"
        yield Finding("look", f"not examined: {', '.join(names)}", means, "Ask somebody with an admin key to run this command.")


def _overdue(report: TenantReport) -> Iterator[Finding]:
    stats = report.stats or {}
    if stats.get("overdue"):
        stuck = f", {stats['stuck']:,} of them stuck" if stats.get("stuck") else ""
        means = "They are more than 45 s past their due time, and no process serves them."
        do = "Check that the app's sweep runs and that storage answers."
        yield Finding("bad", f"{count_of(stats['overdue'], 'overdue event')}{stuck}", means, do, (command("status"),))
    if stats.get("incomplete"):
        what = "not all events were counted in time"
        yield Finding("look", what, "The tenant has very many open events, or storage is slow.", "Repeat the command later.")


def _blocked(report: TenantReport) -> Iterator[Finding]:
    figures = (report.stats or {}).get("channels", {})
    if report.channels is None:
        for name, found in sorted(figures.items()):
            if found["state"] not in ("ok", "removed"):
                yield _blocked_channel(report, name, found["state"].replace("-", " "), found["held"])
        return
    for channel in report.channels:
        name, flow = channel["name"], channel["flow"]
        held = figures.get(name, {}).get("held", 0)
        if channel["paused"]:
            since = f" since {channel['paused_at']}" if channel.get("paused_at") else ""
            yield _blocked_channel(report, name, f"paused{since}{_because(channel.get('reason'))}", held)
        elif flow["breaker"] != "closed":
            since = f" since {flow['since']}" if flow.get("since") else ""
            failures = f", {count_of(flow['failures'], 'failure')}" if flow.get("failures") else ""
            yield _blocked_channel(report, name, f"circuit breaker {flow['breaker']}{since}{failures}{_because(flow.get('error'))}", held)


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def _blocked_channel(report: TenantReport, name: str, state: str, held: int) -> Finding:
    run = [report.tocsin("events", "list", "--held", "--channel", name)] if held else []
    paused = state.startswith("paused")
    moved = () if paused else report.set_url(name)
    run += [*moved, command("tenants", "channels", "resume", report.name, name)]
    means = (
        "Nothing is delivered to it until a person resumes it." if paused else "Its receiver fails; one delivery at a time tries it again."
    )
    do = (
        "Resume the channel once its receiver may have the events."
        if paused
        else f"Mend the receiver{_MOVED if moved else ''}. To deliver at once, close the circuit breaker."
    )
    waiting = f" {count_of(held, 'event')} wait{'s' if held == 1 else ''}." if held else ""
    return Finding(
        "bad" if held or not paused else "look",
        f"channel {name} is {state}" if paused else f"channel {name}: {state}",
        means + waiting,
        do,
        tuple(run),
    )


type _Cause = tuple[str, str]
"""A channel and an error."""


def _by_cause(events: Iterable[Mapping[str, Any]]) -> list[tuple[_Cause, list[Mapping[str, Any]]]]:
    """Return the events by cause, those of the most frequent cause first."""
    causes: dict[_Cause, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        causes[event.get("channel") or "", _error(event)].append(event)
    return sorted(causes.items(), key=lambda each: (-len(each[1]), each[0]))


def _error(event: Mapping[str, Any]) -> str:
    attempts = event.get("attempts") or [{}]
    return str(event.get("error") or attempts[-1].get("error") or "")


def _dead(report: TenantReport) -> Iterator[Finding]:
    stats = report.stats or {}
    causes = _by_cause(report.dead)
    for (channel, error), events in causes[:MOST_CAUSES]:
        what = f"{count_of(len(events), 'dead event')} of channel {channel}{_because(error)}"
        known = _causes_of_death(report, channel, error)
        get = report.get(events[0])
        since = min(str(event["due"]) for event in events)
        again = report.tocsin(
            "events",
            "redrive",
            "--channel",
            channel,
            *(("--error", part) if (part := _printable_part(error)) else ()),
            "--from",
            since,
        )
        yield Finding("bad", what, known[0], known[1], (get, *known[2], again))
    rest = sum(len(events) for _, events in causes[MOST_CAUSES:]) + max(0, stats.get("dead", 0) - len(report.dead))
    if rest:
        run = report.tocsin("events", "list", "--state", "dead")
        yield Finding("bad", f"{count_of(rest, 'more dead event')}", "They have other causes, or were not read.", "List them.", (run,))


def _printable_part(error: str) -> str:
    """Return the longest part of an error that a terminal shows as it is: the events are found by it, and it can be pasted."""
    parts = "".join(each if each.isprintable() else "\n" for each in error).split("\n")
    return max(parts, key=len)[:_CUT].strip()


def _causes_of_death(report: TenantReport, channel: str, error: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the meaning of an error of dead events, the next step, and further commands."""
    if error == "the channel no longer exists" or (
        report.channels is not None and channel not in {each["name"] for each in report.channels}
    ):
        run = (command("tenants", "channels", "list", report.name),)
        return "The channel does not exist.", "Create the channel again, and deliver the events again.", run
    if "answered 4" in error:
        return (
            "The receiver refused them, so they were not tried again.",
            "Find out why the receiver refuses them. Then deliver them again.",
            (),
        )
    moved = report.set_url(channel)
    return "No attempt succeeded in time.", f"Mend the receiver{_MOVED if moved else ''}. Then deliver them again.", moved


def _retried(report: TenantReport) -> Iterator[Finding]:
    for (channel, error), events in _by_cause(report.retrying)[:MOST_CAUSES]:
        what = (
            f"{count_of(len(events), 'event')} of channel {channel} {'waits' if len(events) == 1 else 'wait'} for a retry{_because(error)}"
        )
        moved = report.set_url(channel)
        do = f"Mend the receiver{_MOVED if moved else ''}. The service tries again; to try now, fire them."
        run = (
            *moved,
            report.tocsin("events", "list", "--state", "retrying", "--channel", channel),
            report.tocsin("events", "fire", "--state", "retrying", "--channel", channel),
        )
        yield Finding("look", what, "Their last attempt failed.", do, run)


def _late(report: TenantReport) -> Iterator[Finding]:
    reasons: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for event in report.delivered:
        if (event.get("late_ms") or 0) >= LATE_FROM:
            because = event.get("late_because") or [{"reason": "other"}]
            reasons[str(max(because, key=lambda each: each.get("ms", 0))["reason"])].append(event)
    for reason, events in sorted(reasons.items(), key=lambda each: -len(each[1])):
        means, do = LATE.get(reason, ("No reason was recorded.", "Examine one of them."))
        worst = max(events, key=lambda each: each["late_ms"])
        what = f"{count_of(len(events), 'event')} of the last hour came late, at most by {readable_duration(worst['late_ms'])}: {reason}"
        run = [report.get(worst)]
        if reason in ("owner-lost", "storage", "not-taken"):
            run.append(command("status"))
        elif reason in ("rate", "concurrency") and worst.get("channel"):
            run.append(command("tenants", "channels", "get", report.name, str(worst["channel"])))
        yield Finding("look", what, means, do, tuple(run))


def _limits(report: TenantReport) -> Iterator[Finding]:
    limits = (report.tenant or {}).get("limits") or {}
    used = {"open_events": (report.stats or {}).get("open"), "schedules": len(report.schedules) if report.schedules else None}
    for name, count in used.items():
        limit = limits.get(name)
        if limit is None or count is None or count < FULL * limit or not count:
            continue
        full = count >= limit
        what = f"limit {name} is {'reached' if full else 'nearly reached'}: {count:,} of {limit:,}"
        means = "The app refuses further ones with 429." if full else "The app soon refuses further ones with 429."
        settings = json.dumps({"limits": {name: 2 * limit}})
        do = "Find out why there are so many. To allow twice as many, raise the limit."
        yield Finding("bad" if full else "look", what, means, do, (command("tenants", "set", report.name, "--settings", settings),))


def _notices(report: TenantReport) -> Iterator[Finding]:
    if report.tenant is None or report.channels is None:
        return
    failing = {each.get("channel") for each in (*report.dead, *report.retrying)}
    best_first = sorted(report.channels, key=lambda each: (each["paused"] or each["flow"]["breaker"] != "closed", each["name"] in failing))
    names = [each["name"] for each in best_first]
    notices = report.tenant.get("notices")
    if notices and notices["channel"] not in names:
        wanted: Any = {"notices": {"channel": names[0]}} if names else {"notices": None}
        do = f"Name a channel that exists, such as {names[0]}." if names else "Switch the notices off, or create the channel."
        run = (command("tenants", "set", report.name, "--settings", json.dumps(wanted)),)
        yield Finding("bad", f"the channel of the notices does not exist: {notices['channel']}", "Notices become dead events.", do, run)
    elif not notices and names:
        means = "Nobody gets a notice when an event dies, a circuit breaker opens, a limit is reached or a key expires."
        do = "Name a channel that a person reads, such as the one below."
        run = (
            command("tenants", "set", report.name, "--settings", json.dumps({"notices": {"channel": names[0], "kinds": _NOTICE_KINDS}})),
        )
        yield Finding("look", "the tenant has no notices", means, do, run)


_NOTICE_KINDS: Final = ["event.dead", "breaker.opened", "limit.reached", "key.expired"]


def _keys(report: TenantReport) -> Iterator[Finding]:
    for key in report.keys or ():
        if not key.get("expires"):
            continue
        ends = datetime.fromisoformat(key["expires"])
        note = f" ({key['note']})" if key.get("note") else ""
        options = [word for scope in key["scopes"] for word in ("--scope", scope)]
        options += [word for name in ("fleet", "node", "note") if key.get(name) for word in (f"--{name}", str(key[name]))]
        create = command("tenants", "keys", "create", report.name, *options)
        revoke = command("tenants", "keys", "revoke", report.name, key["prefix"])
        if ends <= report.now:
            used = f"It was last used on {key['last_used']}." if key.get("last_used") else "No use of it is recorded."
            means = f"Calls with it are refused with 401. {used}"
            do = "If a program still uses it, create another key. Then revoke this one."
            yield Finding("look", f"key {key['prefix']}{note} expired at {key['expires']}", means, do, (create, revoke))
        elif ends - report.now <= SOON:
            means = "From then on, calls with it are refused with 401."
            yield Finding(
                "look",
                f"key {key['prefix']}{note} expires at {key['expires']}",
                means,
                "Create another key, and use it instead.",
                (create,),
            )


def _schedules(report: TenantReport) -> Iterator[Finding]:
    missed = [each for each in report.schedules if each.get("missed")]
    if missed:
        first = min(missed, key=lambda each: each["missed"])
        what = f"{count_of(len(missed), 'schedule')} missed an occurrence, {first['id']} first, since {first['missed']}"
        means = "No sweep has created their events: the app's timer does not run, or storage does not answer."
        yield Finding("bad", what, means, "Check that the app's sweep runs.", (command("status"),))
    if report.channels is None:
        return
    names = {each["name"] for each in report.channels}
    for each in report.schedules:
        gone = (
            sorted({each["channel"], *each.get("channels", ())} - names)
            if each.get("channel")
            else sorted(set(each.get("channels", ())) - names)
        )
        if gone and not each["paused"] and each.get("next"):
            run = (command("tenants", "channels", "list", report.name), report.tocsin("schedules", "pause", each["id"]))
            means = f"Its next event, due {each['next']}, will be dead."
            yield Finding(
                "bad",
                f"schedule {each['id']} delivers to a channel that does not exist: {', '.join(gone)}",
                means,
                "Create the channel, or pause the schedule.",
                run,
            )


def _fleets(report: TenantReport) -> Iterator[Finding]:
    for each in report.fleets:
        sources = {need["source"] for need in each["needs"]}
        run = [report.tocsin("leases", "doctor", each["fleet"])] if "leases" in sources else []
        run += [report.tocsin("maintenance", "list", each["fleet"])] if sources - {"leases"} else []
        what = f"fleet {each['fleet']}: {', '.join(need['text'] for need in each['needs'])}"
        yield Finding("bad" if each["urgency"] == "urgent" else "look", what, "The fleet needs a person.", "Examine the fleet.", tuple(run))


type _Rule = Callable[[TenantReport], Iterator[Finding]]
RULES: Final[tuple[_Rule, ...]] = (_app, _overdue, _blocked, _dead, _retried, _late, _limits, _notices, _keys, _schedules, _fleets, _unseen)
"""The rules, in the order of their findings: causes that stop all events come first."""
