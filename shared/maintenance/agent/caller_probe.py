"""Runs the fleet's caller probe while the app asks for it: a GET, or a command of this node's file. Results go into the next report.

Each probe starts at its time, whether or not those before it have been answered, as independent callers do: a service that stands still for
five seconds makes five slow answers and not one. The node decides what may be run: the app can name hosts and commands that the node's file
lists, and nothing else. Results are kept in memory only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import ssl
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from ...core.http_exchange import HttpReply, exchange
from ...core.tls import client_tls
from ..latency import READY, Latencies, ProbePhase, merged, with_answer, with_failure
from .hooks.runner import SECRETS

log = logging.getLogger(__name__)

MOST_WAITING: Final = 10
"""Probes under way at a time. The app allows time limits of at most eight times the interval."""
REPORTED: Final = 8
"""Events in one report. The app asks for no more at a time."""
KEPT: Final = 600.0
"""Seconds for which the results of an event are reported after its last probe: the first of these reports may be lost."""
ORDER_LASTS: Final = 30.0
"""Seconds for which an answer of the app counts. The next one is due after five."""
PAUSE: Final = 3.0
"""Seconds of delay that show that this machine itself has paused: the probes under way then measured the machine."""
SHORTEST: Final = 0.2
"""Shortest time between two probes, in seconds, whatever the app asks for."""
LARGEST: Final = 1024 * 1024
"""Largest answer in bytes. A larger one counts as a failure."""


@dataclass(frozen=True, slots=True)
class ProbeConsent:
    """The targets that the node's file lets the fleet probe. hosts: like `db.example` or `db.example:8080`. commands: by the names
    that fleets use."""

    hosts: frozenset[str] = frozenset()
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """The fleet's caller probe. every, timeout: seconds. slow_ms: slower answers are counted, in milliseconds."""

    url: str
    command: str
    every: float
    timeout: float
    slow_ms: int | None = None


@dataclass(slots=True)
class _EventResults:
    """Results for one event. at: time of the last probe (steady)."""

    at: float
    phases: dict[ProbePhase, Latencies] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """The part of the app's answer about the caller probe. target: None if the fleet has none. events: those to probe for now."""

    target: ProbeTarget | None = None
    events: Mapping[str, ProbePhase] = field(default_factory=dict)


type Probe = Callable[[ProbeTarget], bool]
"""Asks once as a caller does. Returns true for a good answer in time."""


class CallerProber:
    """Probes on threads of its own while the last answer of the app asks for it. run: names this process. steady: seconds."""

    def __init__(self, consent: ProbeConsent, *, run: str, steady: Callable[[], float], ask: Probe | None = None) -> None:
        self._consent, self._run, self._steady = consent, run, steady
        self._ask: Probe = ask if ask is not None else self._ask_once
        self._bell = threading.Condition()
        self._order, self._until = ProbeOrder(), 0.0
        self._results: dict[str, _EventResults] = {}
        self._pending: dict[str, Latencies] = {}
        """Results by event since the last answer. They count if the next answer names the same phase."""
        self._waiting = self._pauses = self._series = 0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._tls: ssl.SSLContext | None = None

    def follow(self, order: ProbeOrder) -> bool:
        """Follow an answer of the app. Returns true if the app should learn soon whether this node can probe."""
        with self._bell:
            new = order.target != self._order.target
            if new:
                # Another target is another series of results.
                self._results.clear()
                self._series += 1
            else:
                self._settle(order)
            self._pending.clear()
            self._order, self._until = order, self._steady() + ORDER_LASTS
            idle = self._thread is None and not self._closed
            if idle and order.target is not None and order.events and self._state(order.target) == READY:
                self._thread = threading.Thread(target=self._serve, name="caller-probe", daemon=True)
                self._thread.start()
            self._bell.notify_all()
            if new and order.target is not None and (state := self._state(order.target)) != READY:
                log.warning("The fleet's caller probe cannot run here: %s", state, extra={"action": "agent_probe_refused"})
            return new and order.target is not None

    def report(self) -> dict[str, Any] | None:
        """Return the report's part about the caller probe; None if the fleet has none, or the app's release does not know it."""
        with self._bell:
            target = self._order.target
            if target is None:
                return None
            events = {
                event_id: {phase: _results_out(found) for phase, found in results.phases.items()}
                for event_id, results in self._results.items()
                if self._steady() - results.at <= KEPT
            }
            return {"state": self._state(target), "run": f"{self._run}.{self._series}", "events": events}

    def close(self) -> None:
        """Stop probing."""
        with self._bell:
            self._closed = True
            self._bell.notify_all()

    # -- its own threads

    def _serve(self) -> None:
        at = self._steady()
        while (order := self._next_order(at)) is not None and order.target is not None:
            now = self._steady()
            with self._bell:
                if now - at > PAUSE:
                    self._pauses += 1
                    at = now
                free = self._waiting < MOST_WAITING
                self._waiting += free
                pauses = self._pauses
            if free:
                threading.Thread(target=self._probe, args=(order, order.target, pauses), name="caller", daemon=True).start()
            at += max(SHORTEST, order.target.every)

    def _next_order(self, at: float) -> ProbeOrder | None:
        """Wait until a probe is due. Returns None when there is nothing to probe any more."""
        with self._bell:
            while True:
                now = self._steady()
                target = self._order.target
                over = target is None or not self._order.events or now > self._until or self._state(target) != READY
                if self._closed or over:
                    self._thread = None
                    return None
                if now >= at:
                    return self._order
                self._bell.wait(at - now)

    def _probe(self, order: ProbeOrder, target: ProbeTarget, pauses: int) -> None:
        began = self._steady()
        try:
            good = self._ask(target)
        finally:
            took = self._steady() - began
            with self._bell:
                self._waiting -= 1
        with self._bell:
            # A probe that ends this long after its time limit was held up by the machine.
            if pauses == self._pauses and took <= target.timeout + PAUSE and target == self._order.target:
                self._count(order, target, took if good and took <= target.timeout else None)

    def _count(self, order: ProbeOrder, target: ProbeTarget, took: float | None) -> None:
        for event_id, phase in order.events.items():
            if self._order.events.get(event_id) == phase:
                before = self._pending.get(event_id, Latencies())
                self._pending[event_id] = with_failure(before) if took is None else with_answer(before, took * 1000, target.slow_ms)

    def _settle(self, order: ProbeOrder) -> None:
        """Count the results since the last answer, except for events that have changed their phase: nobody knows when."""
        for event_id, found in self._pending.items():
            phase = self._order.events[event_id]
            if order.events.get(event_id) == phase:
                # The latest event last, so that the oldest is dropped.
                results = self._results.pop(event_id, None) or _EventResults(0.0)
                results.phases[phase] = merged([results.phases.get(phase, Latencies()), found])
                results.at = self._steady()
                self._results[event_id] = results
        while len(self._results) > REPORTED:
            del self._results[next(iter(self._results))]

    def _state(self, target: ProbeTarget) -> str:
        """Return `ready`, or the reason why this node does not run the probe."""
        if target.command:
            known = target.command in self._consent.commands
            return READY if known else f"probe.commands of the node's file has no {target.command}"
        parts = urlsplit(target.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        allowed = f"{host}:{port}" in self._consent.hosts or (parts.port is None and host in self._consent.hosts)
        return READY if allowed else f"probe.hosts of the node's file does not list {parts.netloc[:200]}"

    def _ask_once(self, target: ProbeTarget) -> bool:
        if target.command:
            return _succeeds(self._consent.commands[target.command], target.timeout)
        if target.url.startswith("https:") and self._tls is None:
            self._tls = client_tls()
        headers = {"User-Agent": "tocsin-agent"}
        answer = exchange("GET", target.url, headers=headers, timeout=target.timeout, largest=LARGEST, tls=self._tls)
        return isinstance(answer, HttpReply) and answer.status < 400


def _succeeds(command: tuple[str, ...], timeout: float) -> bool:
    """Run a command without input and output. Returns true if it ends with exit code 0 in time."""
    environment = {key: value for key, value in os.environ.items() if key not in SECRETS}
    nothing = subprocess.DEVNULL
    try:
        process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, env=environment, start_new_session=True)
    except OSError:
        return False
    try:
        return process.wait(timeout) == 0
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False


def _results_out(found: Latencies) -> dict[str, Any]:
    return {"buckets": dict(found.buckets), "failures": found.failures, "slow": found.slow}
