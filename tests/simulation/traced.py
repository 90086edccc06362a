"""Simulated histories with the protocol trace on, as processes in production write it: their lines are verified afterwards, without the
planted bug. Of a process that crashes, the line of its last transaction is missing, as it is after kill -9."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shared.engine.effects import Get, Load, Write
from shared.extras.verification.lines import TraceLine, TraceReading, read_text
from shared.storage.ports import Applied, Row
from shared.storage.transition_trace import TracedTables, TransitionTrace
from tests.model.checking.mutants import patched

from . import history as scheduler
from .checkpoints import world as checkpoints
from .leases import world as leases
from .world import pair


class Traces:
    """The lines of all processes of some histories."""

    def __init__(self, share: float = 1.0) -> None:
        self.texts: list[str] = []
        self._share = share
        self._processes: dict[Any, TransitionTrace] = {}

    def of(self, process: Any, name: str, now: Any) -> TransitionTrace:
        """Return the trace of a process, one for each object."""
        if id(process) not in self._processes:
            by = f"{name}-{len(self._processes)}"
            # The object is kept: another one must not get its number.
            self._processes[id(process)] = found = TransitionTrace(by, self._share, now, self.texts.append)
            self._kept = [*getattr(self, "_kept", []), process]
            return found
        return self._processes[id(process)]

    def lines(self) -> list[TraceLine]:
        """Return the lines that a reader of the log finds."""
        reading = TraceReading()
        for text in self.texts:
            read_text(reading, text.encode())
        assert not reading.unreadable
        return reading.found


@contextmanager
def traced_scheduler(share: float = 1.0) -> Iterator[Traces]:
    """Trace the processes of the histories of `simulate`."""
    traces, plain = Traces(share), scheduler.SimTables

    def tables(instance: Any, inner: Any, side: str = "") -> Any:
        found = plain(instance, inner, side) if side else plain(instance, inner)
        # Of a mirrored pair, production traces the first account.
        return found if side == pair.SECOND else TracedTables(found, traces.of(instance, instance.name, instance.clock.now))

    with patched([(scheduler, "SimTables", tables), (pair, "SimTables", tables)]):
        yield traces


@contextmanager
def traced_leases() -> Iterator[Traces]:
    """Trace the servers of the histories of leases."""
    traces, plain = Traces(), leases.Task._resume
    effects: dict[int, Any] = {}

    def resume(self: Any, ticket: int, answer: Any) -> Any:
        if ticket == self._ticket:
            observe(traces.of(self.host, self.host.name, self.host.wall), effects.get(id(self)), answer)
        return plain(self, ticket, answer)

    def ask(self: Any, effect: Any, cursor: Any) -> Any:
        effects[id(self)] = effect
        return asked(self, effect, cursor)

    asked = leases.Task._ask
    with patched([(leases.Task, "_resume", resume), (leases.Task, "_ask", ask)]):
        yield traces


@contextmanager
def traced_checkpoints() -> Iterator[Traces]:
    """Trace the app of the histories of turns: one process."""
    traces, plain = Traces(), checkpoints.World._carried

    def carried(self: Any, effect: Any) -> Any:
        answer = plain(self, effect)
        observe(traces.of(self, "app", lambda: 0), effect, answer)
        return answer

    with patched([(checkpoints.World, "_carried", carried)]):
        yield traces


def observe(trace: TransitionTrace, effect: Any, answer: Any) -> None:
    """Record an effect and its answer, as the tables of a process do."""
    if not isinstance(effect, Get | Load | Write):
        return
    kind = trace.kind(effect.table, effect.pk)
    if kind is None:
        return
    if isinstance(effect, Write):
        if isinstance(answer, Applied) or type(answer).__name__ in ("Lost", "WriteRefused"):
            trace.record_write(kind, effect.pk, effect.ops, None if type(answer).__name__ == "Lost" else answer)
    elif isinstance(answer, Row):
        trace.record_read(kind, effect.pk, (answer,))
    elif isinstance(answer, list):
        trace.record_read(kind, effect.pk, answer)
