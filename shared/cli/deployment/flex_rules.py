"""The judgement of the long measures. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from ...core.readable import count_of, readable_duration
from ..findings import Line, Result
from .plan import CROWD, QUIET, ZERO, FlexPlan, gap_kind
from .rules import AFTER_ANSWER, FAR, timer_age
from .seen import Probe, Seen

WARM_GAP: Final = 22.0
"""Longest time in seconds between two messages of the queue that planned wakes leave before an event."""
STUCK: Final = 40_000
"""Milliseconds of lateness from which a message was held by an instance that has ended."""
TICK_LATE: Final = 10.0
"""Seconds after the full minute from which a tick of the timer is late."""
TICK_AHEAD: Final = 10
"""Seconds before a full minute in which a tick counts as early for that minute, and not as late for the one before."""
UNSURE: Final = 2.0
"""Seconds before the full minute that count as the minute: storage's time is known to a second."""
SAME_PROCESS: Final = 2_000
"""Milliseconds by which two starts of one process may differ, as its clock is read twice."""
_BILL: Final = "az monitor metrics list --resource APP_ID --metric OnDemandFunctionExecutionUnits --interval PT1M"


def judge_flex(seen: Seen, plan: FlexPlan) -> list[Line]:
    """Return a line for each measure. They describe the platform, so that few of them are faults."""
    lines = [_gap(gap, seen.of(gap_kind(gap))) for gap in plan.gaps]
    lines += [_from_zero(seen.of(ZERO)), _quiet(seen.of(QUIET)), _stuck(seen), _processes(seen.of(CROWD)), _ticks(seen)]
    means = "What the platform bills for a wake shows only there: divide by 1,024,000 for GB-s."
    return [*lines, Line("bill", "look", "not measured here", means, f"{_BILL}, over the minutes of this run.")]


def _cold(probes: Sequence[Probe], seconds: float) -> int | None:
    """Return the number of events whose process was younger than that; None if the service does not say."""
    ages = [probe.first.uptime_ms for probe in probes if probe.first is not None and probe.first.uptime_ms is not None]
    return sum(age < seconds * 1000 for age in ages) if ages else None


def _figures(probes: Sequence[Probe], seconds: float) -> dict[str, object]:
    first = [probe.first for probe in probes if probe.first is not None]
    return {
        "events": len(probes),
        "arrived": len(first),
        "late_ms": sorted(probe.late_ms for probe in probes if probe.deliveries),
        "uptime_ms": [each.uptime_ms for each in first],
        "cold": _cold(probes, seconds),
    }


def _text(probes: Sequence[Probe], seconds: float) -> str:
    late = sorted(probe.late_ms for probe in probes if probe.deliveries)
    if not late:
        return f"0 of {count_of(len(probes), 'event')} arrived"
    cold = _cold(probes, seconds)
    started = "" if cold is None else f", {cold} of {len(late)} by a new process"
    missing = "" if len(late) == len(probes) else f"{len(late)} of {len(probes)} arrived, "
    return f"{missing}late p50 {readable_duration(late[len(late) // 2])}, max {readable_duration(late[-1])}{started}"


def _missing(check: str, probes: Sequence[Probe], found: str, figures: dict[str, object]) -> Line | None:
    if probes and all(probe.deliveries for probe in probes):
        return None
    means = "An event is still missing after the patience of this run, or was not accepted."
    return Line(check, "bad", found, means, "Look at the app's log of that time, and run the command again.", figures)


def _gap(gap: float, probes: Sequence[Probe]) -> Line:
    check, found, figures = f"{gap:g} s after the last event", _text(probes, gap), _figures(probes, gap)
    if missing := _missing(check, probes, found, figures):
        return missing
    late, cold = max(probe.late_ms for probe in probes), _cold(probes, gap) or 0
    if late <= FAR.ok:
        return Line(check, "ok", found, figures=figures)
    result: Result = "look" if late <= STUCK else "bad"
    if gap <= WARM_GAP and cold:
        means = f"Instances do not live for {gap:g} s after a message: planned wakes that far apart keep none."
        return Line(check, result, found, means, "Set wakes to 12 seconds, or alwaysReady to 1 for fire_shard.", figures)
    means = "The event was stored early enough for planned wakes, and no instance was ready." if cold else "A running process was late."
    do = "Look at the line about the planned wakes. If it matters, set alwaysReady to 1 for fire_shard (docs/reference/deployment.md)."
    return Line(check, result, found, means, do, figures)


def _from_zero(probes: Sequence[Probe]) -> Line:
    check, found, figures = "from zero", _text(probes, 60), _figures(probes, 60)
    if missing := _missing(check, probes, found, figures):
        return missing
    if max(probe.late_ms for probe in probes) <= 20_000:
        return Line(check, "ok", found, figures=figures)
    means = "The platform needs that long to notice a message and to start an instance."
    return Line(check, "look", found, means, "Store events at least two minutes ahead, or set alwaysReady to 1 for fire_shard.", figures)


def _quiet(probes: Sequence[Probe]) -> Line:
    check, found, figures = "after an answer, then silence", _text(probes, 60), _figures(probes, 60)
    if missing := _missing(check, probes, found, figures):
        return missing
    if max(probe.late_ms for probe in probes) <= AFTER_ANSWER.look:
        return Line(check, "ok", found, figures=figures)
    means = "Work after an HTTP answer waits or does not run: the platform may suspend an instance that has answered."
    return Line(check, "bad", found, means, "Report it. Until then set TOCSIN_EXPRESS_EVENTS to 0, so that the queue delivers.", figures)


def _stuck(seen: Seen) -> Line:
    came = [probe for probe in seen.probes if probe.deliveries]
    stuck = [probe for probe in came if probe.late_ms >= STUCK]
    figures = {"events": len(came), "stuck": len(stuck)}
    found = f"{len(stuck)} of {count_of(len(came), 'event')} more than {STUCK // 1000} s late"
    if not stuck:
        return Line("stuck messages", "ok", found, figures=figures)
    means = "Instances that ended had taken these messages; the service has sent them again."
    return Line(
        "stuck messages", "look", found, means, "Up to 1 in 200 is usual. If it is more, report it to the platform's support.", figures
    )


def _starts(probes: Sequence[Probe]) -> Iterator[int]:
    """Yield the times at which the processes started that have delivered these events, each once."""
    last = -math.inf
    for start in sorted(each.fired - each.uptime_ms for probe in probes for each in probe.deliveries if each.uptime_ms is not None):
        if start - last > SAME_PROCESS:
            yield start
        last = start


def _processes(probes: Sequence[Probe]) -> Line:
    number = len(list(_starts(probes)))
    check, found = f"crowd of {len(probes)}", f"{_text(probes, 60)}; {count_of(number, 'process', 'processes')}"
    figures = {**_figures(probes, 60), "processes": number}
    return _missing(check, probes, found, figures) or Line(check, "ok", found, figures=figures)


def _ticks(seen: Seen) -> Line:
    offset = seen.storage_offset
    correction = (offset.low + offset.high) / 2 if offset.known else 0.0
    ticks = [look.wall + correction - age + UNSURE for look in seen.looks if (age := timer_age(look)) is not None]
    # Several looks may have seen the tick of one minute.
    late = sorted({int(tick // 60): max(0, round(tick % 60 - UNSURE)) for tick in reversed(ticks)}.values())
    figures = {"late_s": late}
    if not late:
        means = "The timer has not run during the measures."
        return Line("timer at the minute", "bad", "no tick", means, "See the line about the timer.", figures)
    usual = late[len(late) // 2]
    found = f"{count_of(len(late), 'tick')}, p50 {usual} s after the minute, max {late[-1]} s"
    if late[-1] <= TICK_LATE:
        return Line("timer at the minute", "ok", found, figures=figures)
    when = "only when it is due"
    if usual > 60 - TICK_AHEAD:
        when = f"{60 - usual} s before the minute, and the tick that it has missed runs at once"
    means = f"The platform starts an instance for the timer {when}. The planned wakes do not depend on it."
    return Line("timer at the minute", "look", found, means, "Nothing, unless schedules or leases need it earlier.", figures)
