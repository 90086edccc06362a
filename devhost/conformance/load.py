"""The load: the scheduler runs in this process on the account; events are posted all the time to a receiver in this process.

Most events are posted in batches and due within seconds; some are posted singly; some are cancelled before they are due; every tenth batch
is due at one instant. At the end, each event must have been delivered once, none early, and none after its cancel.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from devhost.conformance.access import StorageAccess, Traffic
from devhost.conformance.report import Percentiles, Report
from devhost.conformance.triggers import Triggers
from shared.app.application import Application
from shared.core.clock import Millis, SystemClock, to_text
from shared.core.errors import Problem, StorageError
from shared.delivery.channels.fake import FakeReceiver
from shared.delivery.channels.model import HttpChannel
from shared.scheduler.changes.verbs import ChangeRequest
from shared.scheduler.ingest.admission import Admitted
from shared.scheduler.shard.event_clock import EventClock
from shared.storage import Storage
from shared.storage.server_time import ServerTimeEstimator
from shared.tenants.model import Tenant

TENANT: Final = "conformance"
PART: Final = "Load"
"""Prefix of the load's own tables: the suite leaves shards behind that no scheduler can serve."""
BATCH: Final = 20
"""Events in one batch; one batch is posted each second."""
SINGLES: Final = 2
"""Events posted singly each second."""
CANCELLED: Final = 10
"""The event with this index in each batch is cancelled."""
SOONEST: Final = 2.0
LATEST: Final = 12.0
"""Shortest and longest time in seconds from the post to the due time; the longest is shorter in a load of less than a minute."""
TOO_LATE: Final = frozenset({"already-firing", "already-final"})
"""Codes of a cancel that came after the event was claimed. On a slow machine that happens; the event must then be delivered."""
PATIENCE: Final = 150.0
"""Seconds after the last due time in which every event must be delivered: two takeovers of a silent owner take less."""


@dataclass
class Posted:
    """The events of a load."""

    due: dict[str, Millis] = field(default_factory=dict)
    """Due times of the accepted events."""
    cancelled: set[str] = field(default_factory=set)
    """Events whose cancel was acknowledged."""
    doubtful: set[str] = field(default_factory=set)
    """Events whose cancel may or may not have been carried out: both outcomes are correct."""
    too_late: set[str] = field(default_factory=set)
    """Events that were claimed before their cancel: they must be delivered."""
    refused: Counter[str] = field(default_factory=Counter)
    """Posts and cancels that were not accepted, by code."""

    @property
    def owed(self) -> set[str]:
        """The events that must be delivered."""
        return self.due.keys() - self.cancelled - self.doubtful


@dataclass(frozen=True)
class Verdict:
    """The comparison of the arrivals at the receiver with the posted events."""

    lost: list[str]
    early: list[str]
    doubled: list[str]
    after_cancel: list[str]


def judge(posted: Posted, arrivals: list[tuple[str, Millis]]) -> Verdict:
    """Compare posted events with the arrivals: event and time."""
    seen = Counter(event for event, _ in arrivals)
    return Verdict(
        lost=sorted(posted.owed - seen.keys()),
        early=sorted({event for event, at in arrivals if event in posted.due and at < posted.due[event]}),
        doubled=sorted(event for event, count in seen.items() if count > 1),
        after_cancel=sorted(posted.cancelled & seen.keys()),
    )


async def run(access: StorageAccess, report: Report, seconds: float) -> None:
    """Run the load and report it."""
    clock, traffic, latest = SystemClock(), Traffic(), min(LATEST, SOONEST + seconds / 6)
    estimator = ServerTimeEstimator(clock)
    tables, queues = access.tables(traffic, server_time=estimator, part=PART), access.queues(traffic)
    # The scheduler's clock: where this machine's clock is proven wrong, events follow storage's time.
    receiver, posted = FakeReceiver(EventClock(clock, (estimator,), Counter())), Posted()
    storage = Storage(tables, queues, server_times=(estimator,))
    await storage.ensure()
    app = await Application.open(access.settings(), clock=clock, storage=storage, senders={"http": receiver})
    try:
        await app.directory.put(TENANT, Tenant())
        await app.directory.channels.plant(TENANT, "default", HttpChannel(type="http", url="https://receiver.example/"))
        traffic.took.clear()
        async with Triggers(app, queues) as triggers:
            await _post_all(app, posted, seconds, latest, lambda done: report.progress("load", done, seconds + latest))
            finished = await _drained(app, posted, receiver)
        _report(report, posted, receiver, triggers, traffic, finished=finished)
    finally:
        report.end_progress()
        await app.close()


async def _post_all(app: Application, posted: Posted, seconds: float, latest: float, progress: Callable[[float], None]) -> None:
    chance = random.Random(1)
    began = time.monotonic()
    calls: set[asyncio.Task[None]] = set()
    number = 0
    while (passed := time.monotonic() - began) < seconds:
        progress(passed)
        now = app.scheduler.clock.now()
        instant = now + round(1000 * latest)
        dues = [instant if number % 10 == 9 else now + round(1000 * chance.uniform(SOONEST, latest)) for _ in range(BATCH)]
        singles = [[now + round(1000 * chance.uniform(SOONEST, latest))] for _ in range(SINGLES)]
        for each in (dues, *singles):
            task = asyncio.create_task(_post(app, posted, each))
            calls.add(task)
            task.add_done_callback(calls.discard)
        number += 1
        await asyncio.sleep(max(0.0, began + number - time.monotonic()))
    await asyncio.gather(*calls)


async def _post(app: Application, posted: Posted, dues: list[Millis]) -> None:
    body = "\n".join(json.dumps({"due": to_text(due), "payload": {"n": number}}) for number, due in enumerate(dues)).encode()
    try:
        results = await app.scheduler.ingest.batch(TENANT, body, lines=True)
    except (Problem, StorageError) as error:
        posted.refused[f"post: {type(error).__name__}"] += len(dues)
        return
    for number, (due, result) in enumerate(zip(dues, results, strict=True)):
        if isinstance(result, Problem):
            posted.refused[f"post: {result.code}"] += 1
            continue
        posted.due[result.id] = due
        if number == CANCELLED and isinstance(result, Admitted):
            await cancel(app, posted, result.id)


async def cancel(app: Application, posted: Posted, event: str) -> None:
    """Cancel an event, and record the answer."""
    try:
        await app.scheduler.changes.cancel(ChangeRequest(TENANT), event)
    except Problem as problem:
        if problem.code in TOO_LATE:
            posted.too_late.add(event)
        else:
            posted.refused[f"cancel: {problem.code}"] += 1
    except StorageError as error:
        posted.refused[f"cancel: {type(error).__name__}"] += 1
        posted.doubtful.add(event)
    else:
        posted.cancelled.add(event)


async def _drained(app: Application, posted: Posted, receiver: FakeReceiver) -> bool:
    """Wait until everything is delivered and no event is open; False if it takes too long."""
    ends_at = time.monotonic() + PATIENCE + LATEST
    while time.monotonic() < ends_at:
        if posted.owed <= set(receiver.delivered()):
            try:
                if (await app.scheduler.stats.of(TENANT, app.clock.now()))["open"] == 0:
                    return True
            except StorageError:
                pass
        await asyncio.sleep(1.0)
    return False


def _report(report: Report, posted: Posted, receiver: FakeReceiver, triggers: Triggers, traffic: Traffic, *, finished: bool) -> None:
    arrivals = [(got.id, got.began) for got in receiver.received]
    verdict = judge(posted, arrivals)
    faults = sum(traffic.faults.values())
    shown = ", ".join(f"{count} x {name}" for name, count in sorted(traffic.faults.items())) or "no answer 408, 429 or 5xx, none lost"
    waits = f"; Retry-After: {', '.join(sorted(set(traffic.retry_after)))}" if traffic.retry_after else ""
    report.add("load, faults of storage", "note" if faults else "ok", shown + waits)
    _check(report, "load, nothing lost", verdict.lost, f"{len(posted.owed):,} events were delivered")
    _check(report, "load, nothing early", verdict.early, f"{len(arrivals):,} deliveries")
    if verdict.doubled and faults:
        report.add("load, no double delivery", "note", f"{len(verdict.doubled)} events after {faults} faults of storage, as promised")
    else:
        _check(report, "load, no double delivery", verdict.doubled, "each event was delivered once")
    _check(
        report,
        "load, no delivery after a cancel",
        verdict.after_cancel,
        f"{len(posted.cancelled):,} cancels, {len(posted.too_late):,} too late",
    )
    if finished:
        report.add("load, everything settled", "ok", "no event is open")
    elif not verdict.lost:
        report.add("load, everything settled", "FAILED", "events are still open")
    _check(report, "load, functions", triggers.bugs, f"failed by storage: {sum(triggers.failed.values())}")
    if posted.refused:
        what = ", ".join(f"{count} x {name}" for name, count in sorted(posted.refused.items()))
        report.add("load, calls accepted", "note" if faults else "FAILED", f"refused: {what}")
    late = [at - posted.due[event] for event, at in arrivals if event in posted.due]
    kinds = ("point read", "query", "write of one row", "batch", "queue send", "queue receive", "queue delete")
    calls = {kind: Percentiles.of(traffic.took.get(kind, ())) for kind in kinds}
    report.table("load", {"lateness of deliveries": Percentiles.of(late), **calls})
    report.facts["load"] = {"events": len(posted.due), "cancelled": len(posted.cancelled), "faults": dict(traffic.faults)}
    report.facts["load"]["connections"] = {"opened": traffic.opened, "reused": traffic.reused}


def _check(report: Report, name: str, found: list[str], good: str) -> None:
    if found:
        report.add(name, "FAILED", f"{len(found)}: {', '.join(found[:5])}")
    else:
        report.add(name, "ok", good)
