"""The judgement of a run: observations -> one line for each check. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...core.readable import count_of, readable_duration
from ..findings import Line, Result
from .plan import Plan
from .seen import Look, Probe, Seen

SILENT: Final = 90.0
"""Seconds from which a tick of the timer is old. It ticks each minute."""
LOOK_SILENT: Final = 150.0
"""The same of a look at coming events: the sweep looks each minute, and without it a wake."""
WRONG_CLOCK: Final = 1_000.0
"""Smallest proven difference between two clocks that is a fault, in milliseconds."""
CHANNEL: Final = "check"
"""Name of the channel of a run."""
_OPERATIONS: Final = "docs/how-to/operations.md"
_DISABLED: Final = "AzureWebJobs.{}.Disabled"


class Bounds(NamedTuple):
    """Lateness in milliseconds up to which a check is ok, and up to which it is a thing to know. Beyond that it is a fault."""

    ok: int
    look: int


NOW: Final = Bounds(1_000, 5_000)
AFTER_ANSWER: Final = Bounds(1_000, 3_000)
SOON: Final = Bounds(1_000, 20_000)
"""Stored too late for a planned wake: where no instance lives, the event waits for the platform to start one."""
MIDDLE: Final = Bounds(1_000, 15_000)
FAR: Final = Bounds(250, 2_000)
"""Stored early enough for planned wakes."""
FROM_IDLE: Final = Bounds(1_000, 10_000)
SLOW_ANSWER: Final = 15_000
"""Milliseconds from which the first answer after a silence is a fault."""


_SLOW_HOST: Final = 4
"""Factor on the bounds where the waits are shortened: the host is a developer's machine."""


def judge(seen: Seen, plan: Plan) -> list[Line]:
    """Return the lines, in the order in which a reader looks for a cause."""
    lines = [*_service(seen), _versions(seen), _clock(seen), _timer(seen), _wakes(seen), _queue(seen)]
    if not seen.queue_error or seen.probes:
        bounds = {each: Bounds(each.ok * _SLOW_HOST, each.look * _SLOW_HOST) if plan.shortened else each for each in (NOW, AFTER_ANSWER)}
        far = SOON if plan.shortened else FAR
        lines += [
            _events("due now", seen.of("now"), bounds[NOW], seen),
            _events("after the answer", seen.of("background"), bounds[AFTER_ANSWER], seen),
            _events(f"due in {_length(plan.soon)}", seen.of("soon"), SOON, seen),
            _events(f"due in {_length(plan.middle)}", seen.of("middle"), MIDDLE, seen),
            _events(f"due in {_length(plan.far)}", seen.of("far"), far, seen),
            _events(f"batch of {plan.batch}", seen.of("batch"), SOON, seen),
            _cancel(seen.of("cancel")),
            _idle(seen.of("idle"), seen, plan),
            _once(seen),
        ]
    return [*lines, *(_left(each) for each in seen.left)]


def _length(seconds: float) -> str:
    return readable_duration(seconds * 1000).replace(".0 s", " s")


def _document(look: Look) -> dict[str, Any]:
    return dict(look.document)


def _service(seen: Seen) -> Iterator[Line]:
    silent = [look for look in seen.looks if not look.status]
    wrong = [look for look in seen.looks if look.status and look.status != 200]
    if silent:
        found = f"no answer to {len(silent)} of {count_of(len(seen.looks), 'request')}"
        means = "The service could not be reached for a while during this run."
        yield Line("readyz", "bad", found, means, f"Look at the app's log and restarts of that time; see {_OPERATIONS}.")
        return
    if wrong:
        look = wrong[-1]
        found = f"{look.status}: {look.document.get('detail') or 'no reason given'}"
        again = seen.looks[-1].status == 200
        means = "The service was not ready, and became ready during this run." if again else "The service says that it cannot do its work."
        do = f"Do what the reason says. {_OPERATIONS} explains each; a new role takes up to ten minutes."
        yield Line("readyz", "look" if again else "bad", found, means, do)
        return
    yield Line("readyz", "ok", "ready")


def _same_version(first: str, second: str) -> bool:
    """Return True if two versions name the same commit, or are equal. The count of commits may be missing in a shallow clone."""
    commits = first.partition("+g")[2][:8], second.partition("+g")[2][:8]
    return first == second or (bool(commits[0]) and commits[0] == commits[1])


def _versions(seen: Seen) -> Line:
    service = {str(look.document["version"]) for look in seen.looks if look.document.get("version")}
    senders = {each.version for probe in seen.probes for each in probe.deliveries if each.version}
    figures = {"client": seen.client_version, "service": sorted(service), "senders": sorted(senders), "expected": seen.expected_version}
    found = f"service {', '.join(sorted(service)) or 'unknown'}; this command {seen.client_version}"
    if not service:
        means = "The service does not say which version it has."
        return Line("versions", "look", found, means, "Upgrade the service, or check that --url is its address.", figures)
    if strange := sorted(each for each in service | senders if not _same_version(each, seen.expected_version)):
        groups = sorted(senders - service)
        found = f"{', '.join(strange)}, expected {seen.expected_version}" + (
            f"; deliveries come from {', '.join(groups)}" if groups else ""
        )
        means = (
            "The package of that version runs, not the one that this command belongs to: a deployment did not arrive, or is not complete."
        )
        do = "Deploy again (azd deploy) and look at the deployment's log. If the service is right, give --expect with its version."
        return Line("versions", "bad", found, means, do, figures)
    return Line("versions", "ok", found, figures=figures)


def _clock(seen: Seen) -> Line:
    documents = [_document(look) for look in seen.looks]
    skews = [float(each["clock_skew_ms"]) for each in documents if each.get("clock_skew_ms") is not None]
    front = seen.service_offset.ahead_of(seen.storage_offset) * 1000
    fast = [float(each.fired - each.inserted - 1000) for probe in seen.probes for each in probe.deliveries]
    skew = max([*skews, front, *(each for each in fast if each > 0)], key=abs, default=0.0)
    own = -seen.storage_offset.low if seen.storage_offset.low > 0 else -min(0.0, seen.storage_offset.high)
    figures = {"skew_ms": round(skew), "state": next((each["clock"]["state"] for each in reversed(documents) if each.get("clock")), None)}
    if abs(skew) >= WRONG_CLOCK:
        found = f"the app's clock is {readable_duration(round(abs(skew)))} {'ahead of' if skew > 0 else 'behind'} storage's"
        means = "Due times are corrected by storage's time, up to 10 s. Times in logs, and the expiry of keys and tokens, are wrong."
        return Line(
            "clock", "bad", found, means, "Restart the app, so that it gets other machines. Report it to the platform's support.", figures
        )
    if abs(own) * 1000 >= WRONG_CLOCK:
        found = f"this machine's clock is {readable_duration(round(abs(own) * 1000))} {'ahead of' if own > 0 else 'behind'} storage's"
        means = "The service's clock is right. No result depends on this machine's."
        return Line("clock", "look", found, means, "Switch on time synchronization on this machine.", figures)
    if not skews:
        means = "The process that answered had not written to storage yet, so its clock was not compared."
        return Line("clock", "look", "the service does not say", means, "Run the command again.", figures)
    return Line("clock", "ok", f"proven difference from storage's: {readable_duration(round(abs(skew)))}", figures=figures)


def _field(look: Look, name: str, *fields: str) -> Any:
    """Return a member of a part of readyz; None if the part or the member is missing."""
    found: Any = look.document.get(name)
    for each in fields:
        found = found.get(each) if isinstance(found, Mapping) else None
    return found


def _age(look: Look, name: str, *fields: str) -> float | None:
    value = _field(look, name, *fields)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def timer_age(look: Look) -> float | None:
    """Return the seconds since the timer began a sweep; None if it never did. Older versions name the end of a job instead."""
    told = isinstance(look.document.get("clocks"), Mapping)
    return _age(look, "clocks", "timer_age_s") if told else _age(look, "timers", "scheduler_scan", "age_s")


def _timer(seen: Seen) -> Line:
    looks = [look for look in seen.looks if look.status]
    ages = [age for look in looks if (age := timer_age(look)) is not None]
    running = _field(looks[-1], "clocks", "running") if looks else None
    figures = {"age_s": ages[-1] if ages else None, "running": running}
    others = " Messages make the sweeps meanwhile, so events are delivered." if running == "message" else ""
    means = f"The platform does not run the timer function sweep: leases, schedules and retention depend on it.{others}"
    do = f"Look at the setting {_DISABLED.format('sweep')}, then restart the app. If it lasts, see {_OPERATIONS}."
    if not ages:
        span = looks[-1].at - looks[0].at if looks else 0.0
        if span >= SILENT:
            return Line("timer", "bad", f"no tick in {_length(span)}", means, do, figures)
        fresh = "The app has just started, or its timer does not run."
        return Line("timer", "look", "no tick is stored yet", fresh, "Run the command again.", figures)
    if max(ages) > SILENT:
        now = "" if ages[-1] > SILENT else ", and now runs again"
        return Line("timer", "bad", f"silent for {_length(max(ages))}{now}", means, do, figures)
    return Line("timer", "ok", f"last tick {_length(ages[-1])} ago", figures=figures)


def _wakes(seen: Seen) -> Line:
    looks = [look for look in seen.looks if look.status == 200] or seen.looks
    if not any("wakes" in look.document for look in looks):
        means = "The service is of an older version, which does not say when it last looked for coming events."
        return Line("planned wakes", "look", "the service does not say", means, "Upgrade the service.")
    ages = [age for look in looks if (age := _age(look, "wakes", "look_age_s")) is not None]
    figures = {"look_age_s": ages[-1] if ages else None}
    if all(look.document.get("wakes") is None for look in looks):
        means = "Everything depends on the timer, and events may come late where no instance lives."
        return Line("planned wakes", "look", "they are off", means, "Set TOCSIN_WAKES to auto, unless this is on purpose.", figures)
    if not ages:
        means = "The app has just started, or nothing looks for coming events."
        return Line("planned wakes", "look", "no look is stored yet", means, "Run the command again.", figures)
    if ages[-1] > LOOK_SILENT:
        means = "Neither the timer nor a wake has looked for coming events. Events that are due later may not be delivered in time."
        do = f"Look at the setting {_DISABLED.format('fire_shard')}, then restart the app. If it lasts, see {_OPERATIONS}."
        return Line("planned wakes", "bad", f"last look {_length(ages[-1])} ago", means, do, figures)
    return Line("planned wakes", "ok", f"last look {_length(ages[-1])} ago", figures=figures)


def _queue(seen: Seen) -> Line:
    if not seen.queue_error:
        return Line("queue", "ok", "created and read" if seen.probes else "can be read")
    how = "az login" if seen.by_login else "the signature of --queue-url"
    if seen.queue_status in (401, 403):
        if "NetworkRuleSet" in seen.queue_error or "AuthorizationFailure" in seen.queue_error:
            means = "The storage account does not let this machine in (network rules), or the signature does not allow this."
            do = "Run the command from a network that may reach the account."
        else:
            means = f"The rights of {how} do not suffice to create and read a queue in the home account. Nothing else was checked."
            do = (
                "Assign the role to yourself: az role assignment create --role 'Storage Queue Data Contributor' --assignee USER "
                "--scope ACCOUNT_ID. It takes up to ten minutes. Or give --queue-url with a shared access signature."
                if seen.by_login
                else "Make a signature that may create, read, process and delete, or name an existing queue in the address."
            )
        return Line("queue", "bad", seen.queue_error, means, do, {"status": seen.queue_status})
    means = "Deliveries cannot be seen without the queue."
    return Line("queue", "bad", seen.queue_error, means, "Check the address of --queue-url, and that this machine reaches it.")


def _spread(late: Sequence[int]) -> str:
    ordered = sorted(late)
    middle, last = ordered[len(ordered) // 2], ordered[-1]
    return (
        f"late {readable_duration(last)}" if len(ordered) == 1 else f"late p50 {readable_duration(middle)}, max {readable_duration(last)}"
    )


def _events(check: str, probes: Sequence[Probe], bounds: Bounds, seen: Seen) -> Line:
    """Return the line of events that must arrive."""
    if not probes:
        return Line(check, "look", "not checked", "The run ended before it.", "Run the command again.")
    came = [probe for probe in probes if probe.deliveries]
    late = [probe.late_ms for probe in came]
    figures = {"events": len(probes), "arrived": len(came), "late_ms": sorted(late)}
    if early := [probe.early_ms for probe in came if probe.early_ms]:
        found = f"{count_of(len(early), 'event')} up to {readable_duration(max(early))} early by storage's clock"
        means = "An event was delivered before it was due: the app's clock is ahead."
        return Line(check, "bad", found, means, "See the line about the clock. Restart the app.", figures)
    if refused := [probe for probe in probes if not probe.id]:
        found = f"{len(refused)} of {len(probes)} not accepted: {refused[0].error}"
        return Line(check, "bad", found, "The service does not store events.", "Do what the reason says; look at the app's log.", figures)
    if missing := [probe for probe in probes if not probe.deliveries]:
        return _missing(check, probes, missing, seen, figures)
    return _lateness(check, late, bounds, seen, figures)


def _missing(check: str, probes: Sequence[Probe], missing: Sequence[Probe], seen: Seen, figures: Mapping[str, Any]) -> Line:
    state = next((probe.state for probe in missing if probe.state), "")
    error = next((probe.error for probe in missing if probe.error), "")
    unread = next((probe.unread for probe in missing if probe.unread), "")
    told = ", ".join(filter(None, (state, error))) or unread
    found = f"{len(missing)} of {len(probes)} did not arrive" + (f" ({told})" if told else "")
    if seen.queue_error:
        return Line(
            check, "look", found, "The queue could not be read, so the event may have arrived.", "See the line about the queue.", figures
        )
    means, do = _reason(error, unread, seen)
    return Line(check, "bad", found, means, do, figures)


def _reason(error: str, unread: str, seen: Seen) -> tuple[str, str]:
    """Return the meaning of events that did not arrive, and the advice. error: of their delivery. unread: why they could not be read."""
    arrived = {probe.kind for probe in seen.probes if probe.deliveries}
    answers = not unread and not (seen.looks and not seen.looks[-1].status)
    if " refuses " in error:
        means = "The app tried to deliver, and the queue refused the message."
        return means, "The app's own identity needs Storage Queue Data Contributor on the home account: azd provision assigns it."
    if error:
        means = "The app tried to deliver, and did not reach the queue."
        return means, "Look at the storage account: its network rules, its metrics, and the app's log."
    at_once = {"now", "background", "idle"}
    if arrived & at_once and not arrived - at_once and answers:
        means = "Events that are due now arrive, and none that was stored ahead: the function fire_shard does not run."
        do = f"Look at the setting {_DISABLED.format('fire_shard')}, at the queue tocsin-shards, and at the app's log. Restart the app."
        return means, do
    if not answers or (seen.looks and seen.looks[-1].status != 200):
        means = "The service did not answer, or was not ready, at the end of this run."
        return means, "See the line about readyz. Run the command again once the service is ready."
    if arrived:
        means = "Other events arrive. A message or a process was lost, and the service has not repaired that within this run."
        return means, f"Look at the app's log of that time, and run the command again; see {_OPERATIONS}."
    do = f"Look at tocsin status, at the app's log, and at settings such as {_DISABLED.format('fire_shard')}."
    return "No delivery at all has reached the queue.", do


_LATE_DO: Final = {
    "due now": "Look at the app's log and at the storage account's metrics, then run the command again.",
    "after the answer": "Report it. Until then store events ahead, or set TOCSIN_EXPRESS_EVENTS to 0, so that the queue delivers them.",
}


def _lateness(check: str, late: Sequence[int], bounds: Bounds, seen: Seen, figures: Mapping[str, Any]) -> Line:
    worst = max(late)
    found = _spread(late)
    if worst <= bounds.ok:
        return Line(check, "ok", found, figures=figures)
    result: Result = "look" if worst <= bounds.look else "bad"
    do = _LATE_DO.get(check, "If it matters, set alwaysReady to 1 for fire_shard (docs/reference/deployment.md).")
    if check == "after the answer":
        means = "Work after an HTTP answer waits or does not run: the platform may suspend an instance that has answered."
    elif bounds is SOON or bounds is MIDDLE:
        means = "No instance was there for the event, and it was stored too late for a planned wake." if result == "look" else ""
    elif bounds is FAR:
        means = "The event was stored early enough for planned wakes, and still no instance was there in time."
    else:
        means = "The service delivers later than it should."
    if not means:
        means = "The event came later than the platform's start of an instance explains: a message was lost, or no instance was started."
        do = f"Look at the lines about the timer and the planned wakes, and at the app's log; see {_OPERATIONS}."
    return Line(check, result, found, means, do, figures)


def _cancel(probes: Sequence[Probe]) -> Line:
    if not probes:
        return Line("cancel", "look", "not checked", "The run ended before it.", "Run the command again.")
    probe = probes[0]
    if probe.error:
        return Line("cancel", "bad", probe.error, "The service did not store or cancel an event.", "Do what the reason says.")
    if probe.deliveries:
        means = "An event was delivered although the service had acknowledged its cancellation. This must never happen."
        return Line("cancel", "bad", "the cancelled event arrived", means, "Report it with the app's log of that minute.")
    return Line("cancel", "ok", "the cancelled event did not arrive")


def _idle(probes: Sequence[Probe], seen: Seen, plan: Plan) -> Line:
    name = f"first after {_length(plan.idle)} idle"
    line = _events(name, probes, FROM_IDLE, seen)
    if line.result == "bad" or not probes or probes[0].first is None:
        return line
    probe, first = probes[0], probes[0].first
    figures = {**line.figures, "answer_ms": probe.answer_ms, "uptime_ms": first.uptime_ms}
    age = "" if first.uptime_ms is None else f", process {readable_duration(round(first.uptime_ms, -2))} old"
    found = f"answered in {readable_duration(probe.answer_ms)}, {line.found}{age}"
    if probe.answer_ms > SLOW_ANSWER:
        means = "A caller waited that long for a new instance. Clients with shorter time-outs fail."
        return Line(
            name, "bad", found, means, "Set alwaysReady to 1 for http, or choose a larger instance (docs/reference/deployment.md).", figures
        )
    if line.result == "ok" and plan.shortened:
        return Line(name, "ok", f"{found}; shortened: says nothing about idle instances", figures=figures)
    return Line(name, line.result, found, line.means, line.do, figures)


def _once(seen: Seen) -> Line:
    came = [probe for probe in seen.probes if probe.deliveries]
    doubled = [probe for probe in came if len(probe.deliveries) > 1]
    figures = {"arrived": len(came), "more_than_once": len(doubled)}
    if not came:
        return Line("once each", "look", "nothing arrived", "There is nothing to count.", "See the lines above.", figures)
    if doubled:
        found = f"{count_of(len(doubled), 'event')} of {len(came)} came more than once"
        means = "Delivery is at least once, so this is allowed. Without a restart or a lost answer it should be rare."
        return Line("once each", "look", found, means, "If it repeats, look at the app's log for processes that ended.", figures)
    return Line("once each", "ok", f"{count_of(len(came), 'event')} came once each", figures=figures)


def _left(text: str) -> Line:
    return Line(
        "removal", "bad", text, "This run could not remove what it had created.", "Remove it by hand, or run the command again later."
    )
