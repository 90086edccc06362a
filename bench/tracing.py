"""Measures what the protocol trace costs: bytes of log and CPU, on the service in memory.

CPU is that of the trace's own code, with the formatting of its log lines, which go to the null device.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any, Final

from shared.core.clock import SettableClock
from shared.engine.thread_runner import ThreadRunner
from shared.extras.verification.watch import TraceWatch
from shared.leases.profiles import Profile
from shared.leases.protocol import membership, takeover
from shared.leases.protocol.membership import Registered, ServerReport
from shared.leases.rows import Fleet, MoveLimits, fleet_key
from shared.leases.rules import ServerSession
from shared.storage.blocking import MemoryBlockingTables
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES
from shared.storage.ports import Op, Row
from shared.storage.transition_trace import TracedBlockingTables, TracedTables, TransitionTrace
from shared.testing import Tocsin

from .report import Figure
from .tools.stage import Run

USD_PER_GB: Final = (2.30, 2.76)
"""Price of a GB of logs in Azure Monitor, in the cheapest and in the dearest of common regions."""
PREFIX: Final = 60
"""Bytes that a log has before each line: time, level and the logger's name, about."""
HOUR: Final = timedelta(hours=1)


class TimedTrace(TransitionTrace):
    """A trace that counts its lines, their bytes (`size`), and its own CPU time."""

    lines: int
    size: int

    def __init__(self, share: float, watch: Callable[[str], object] | None = None) -> None:
        log = logging.getLogger(f"{__name__}.lines")

        def put(line: str) -> None:
            self.lines, self.size = self.lines + 1, self.size + len(line) + PREFIX
            log.info("%s", line, extra={"action": "protocol_step"})
            if watch is not None:
                watch(line)

        super().__init__("12345-0123abcd", share, lambda: int(time.time() * 1000), put)
        self.reset()

    def reset(self) -> None:
        """Set the counts to 0."""
        self.lines = self.size = self._calls = 0
        self._spent = 0.0

    @property
    def spent(self) -> float:
        """The trace's own CPU time in seconds, without that of the measurement."""
        return max(0.0, self._spent - self._calls * _clock_time())

    def timed[T](self, call: Callable[..., T], *arguments: Any) -> T:
        """Make a call, and add its CPU time."""
        began = time.thread_time()
        try:
            return call(*arguments)
        finally:
            self._spent += time.thread_time() - began
            self._calls += 1

    def kind(self, table: str, pk: str) -> str | None:
        return self.timed(super().kind, table, pk)

    def record_read(self, kind: str, pk: str, rows: Sequence[Row]) -> None:
        self.timed(super().record_read, kind, pk, rows)

    def record_write(self, kind: str, pk: str, ops: Sequence[Op], answer: Any) -> None:
        self.timed(super().record_write, kind, pk, ops, answer)


@cache
def _clock_time() -> float:
    """Return the seconds that a measurement of nothing shows."""
    rounds = 20_000
    spent = 0.0
    for _ in range(rounds):
        began = time.thread_time()
        spent += time.thread_time() - began
    return spent / rounds


@contextmanager
def _logged_nowhere() -> Iterator[None]:
    log = logging.getLogger(f"{__name__}.lines")
    with open(os.devnull, "w") as nowhere:
        handler = logging.StreamHandler(nowhere)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
        try:
            yield
        finally:
            log.removeHandler(handler)


async def _delivered(trace: TransitionTrace | None, count: int, *, lone: bool) -> float:
    """Deliver events from their POST to their end; return the CPU time used, in seconds. lone: each in a shard of its own."""
    kit = Tocsin()
    if trace is not None:
        kit._storage.tables = TracedTables(kit._storage.tables, trace)
    async with kit:
        began = time.process_time()
        if lone:
            for number in range(count):
                await kit.client.schedule({"n": number}, delay=HOUR * (number + 1))
        else:
            due = (kit.now + HOUR).isoformat()
            events = [{"due": due, "payload": {"n": number}} for number in range(count)]
            await kit.client.call("POST", "events/batch", events)
        received = await kit.advance(hours=count + 2 if lone else 2)
        assert len(received) == count, len(received)
        return time.process_time() - began


def _heartbeats(trace: TimedTrace, count: int) -> None:
    """Send heartbeats of a server that owns partitions."""
    tables = MemoryTables(SettableClock())
    asyncio.run(tables.ensure(ALL_TABLES))
    runner = ThreadRunner(TracedBlockingTables(MemoryBlockingTables(tables), trace), lambda: 0.0, 1.0)
    key = fleet_key("demo", "search")
    assert runner.run(takeover.create_fleet(key, Fleet(16, Profile(2.0, 10.0, 15.0), MoveLimits())))
    session = ServerSession(key, "search-7", "d7cd3obr5qc14r67")
    assert isinstance(runner.run(membership.register(session, ServerReport(), None, (), 15.0)), Registered)
    claims = runner.run(takeover.scout(session, list(range(16))))
    runner.run(membership.beat(session, ServerReport(), "live", claims))
    trace.reset()
    for _ in range(count):
        runner.run(membership.beat(session, ServerReport(), "live"))


def _price(size: float) -> str:
    """Return the price of a million things of `size` bytes each."""
    low, high = (size * 1e6 / 1e9 * price for price in USD_PER_GB)
    return f"a million: {size / 1000:.2f} GB of logs, {low:.2f} to {high:.2f} USD"


async def measure(run: Run) -> list[Figure]:
    """Measure bytes and CPU of the trace."""
    bulk, lone, beats = run.pick(2_970, 990), run.pick(200, 50), run.pick(5_000, 1_000)
    with _logged_nowhere():
        run.report_progress("the trace", 0, 5)
        plain = await _delivered(None, bulk, lone=False)
        traces = {"sampled:0.01": TimedTrace(0.01), "all": TimedTrace(1.0)}
        for done, trace in enumerate(traces.values(), 1):
            run.report_progress("the trace", done, 5)
            await _delivered(trace, bulk, lone=False)
        watch = TraceWatch(time.monotonic)
        watched = TimedTrace(1.0, watch.take)
        await _delivered(watched, bulk, lone=False)
        watched.timed(watch.flush)
        single = TimedTrace(1.0)
        alone = await _delivered(single, lone, lone=True)
        beat = TimedTrace(1.0)
        await asyncio.to_thread(_heartbeats, beat, beats)
    whole, sampled = traces["all"], traces["sampled:0.01"]
    return [
        Figure("trace of an event in bulk", whole.size / bulk, "bytes", note=_price(whole.size / bulk)),
        Figure("trace of a lone event", single.size / lone, "bytes", note=f"{single.lines / lone:.1f} lines; {_price(single.size / lone)}"),
        Figure("trace of a heartbeat", beat.size / beats, "bytes", note=f"of a server with the library; {_price(beat.size / beats)}"),
        Figure("CPU of the service, an event in bulk, trace off", plain / bulk * 1e6, "us", note="from its POST to its end"),
        Figure(
            "CPU of the trace, sampled:0.01",
            sampled.spent / bulk * 1e6,
            "us",
            "<=",
            5,
            "a shard in a hundred is traced: here, perhaps none",
        ),
        Figure("  all", whole.spent / bulk * 1e6, "us", "<=", 60, "log line included"),
        Figure("  all, and verified in the process", watched.spent / bulk * 1e6, "us", "<=", 200),
        Figure(
            "  all, a lone event", single.spent / lone * 1e6, "us", note=f"the service itself: {(alone - single.spent) / lone * 1e6:.0f} us"
        ),
        Figure("  all, a heartbeat", beat.spent / beats * 1e6, "us"),
    ]
