"""Carries out the loop's effects on threads: polls, hooks and approvals. Each outcome goes to the loop's inbox."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...core.http_exchange import HttpReply, TransportFailure
from .app.messages import event_of
from .app.reporter import Reporter
from .effects import Approve, RunHook, SendResult
from .hooks.runner import Hook, HookResult, HookRunner, RunningHook
from .imds.client import Imds, clock_error
from .loop import interpret_approval, interpret_poll
from .model import HookKind, NodeState
from .observations import DocumentRead, HookEnded, Observation, PollFailed
from .process import AgentProcess
from .timings import LOOK_AHEAD, MIN_POLL_INTERVAL, MOST_RETRY_AFTER

log = logging.getLogger(__name__)


class Polls(NamedTuple):
    """The polls of the metadata service. every: seconds between two. due: returns the seconds until something is due on the node; None if
    nothing is."""

    imds: Imds
    every: float
    due: Callable[[], float | None] = lambda: None


class NodeHooks(NamedTuple):
    """The hooks of a node. runner: None where none run. identity: passed to hooks beside the event. state: the agent's folder."""

    hooks: Mapping[HookKind, Hook]
    runner: HookRunner | None
    identity: Mapping[str, str]
    state: Path


class ThreadedExecutor:
    """The `EffectExecutor` of a real node."""

    def __init__(
        self,
        polls: Polls,
        hooks: NodeHooks,
        reporter: Reporter | None,
        deliver: Callable[[Observation], None],
        process: AgentProcess,
    ) -> None:
        self._imds, self._poll, self._due = polls
        self._hooks, self._runner, self._identity, self._state = hooks
        self._reporter, self._deliver = reporter, deliver
        self._figures, self._context, self._wall, self._steady, _ = process
        self._runs: dict[int, RunningHook] = {}
        self._poll_now, self._closed = threading.Event(), threading.Event()
        self._body: bytes | None = None
        self._seen: DocumentRead | PollFailed = PollFailed("nothing yet")

    # -- polls

    def start(self) -> None:
        """Start polling."""
        threading.Thread(target=self._poll_loop, name="poller", daemon=True).start()

    def close(self) -> None:
        """Stop polling."""
        self._closed.set()
        self._poll_now.set()

    def look(self) -> None:
        self._poll_now.set()

    def _poll_loop(self) -> None:
        while not self._closed.is_set():
            began = self._steady()
            sent = self._wall()
            answer = self._imds.get()
            self._deliver(self._dated(self._read_answer(answer), answer, sent))
            if (asked := asked_pause(answer, self._due())) > self._poll:
                # The service's limit is shared by all processes of the machine, so that not even a look comes earlier.
                self._closed.wait(asked)
                continue
            if self._poll_now.wait(max(MIN_POLL_INTERVAL, self._poll - (self._steady() - began))):
                self._poll_now.clear()
                self._closed.wait(max(0.0, MIN_POLL_INTERVAL - (self._steady() - began)))

    def _read_answer(self, answer: HttpReply | TransportFailure) -> DocumentRead | PollFailed:
        good = isinstance(answer, HttpReply) and answer.status == 200
        # Equal bytes are not parsed again: a document may have thousands of events.
        if not isinstance(answer, HttpReply) or not good or answer.body != self._body:
            self._seen = interpret_poll(answer)
            self._body = answer.body if isinstance(answer, HttpReply) and isinstance(self._seen, DocumentRead) else None
        if isinstance(self._seen, DocumentRead):
            outcome = "good"
        else:
            outcome = "nonsense" if good else "silence" if isinstance(answer, TransportFailure) else "refused"
        self._figures.add("tocsin_agent_polls_total", outcome=outcome)
        return self._seen

    def _dated(self, read: DocumentRead | PollFailed, answer: HttpReply | TransportFailure, sent: int) -> DocumentRead | PollFailed:
        if not isinstance(read, DocumentRead) or not isinstance(answer, HttpReply):
            return read
        error = clock_error(answer.headers.get("date"), sent, self._wall())
        if error is not None:
            self._figures.put("tocsin_agent_clock_error_seconds", error)
        return replace(read, clock_error=error)

    # -- hooks

    def run_hook(self, effect: RunHook) -> None:
        assert self._runner is not None
        event_id = "" if effect.record is None else effect.record.event.event_id

        def done(ran: HookResult) -> None:
            self._figures.add("tocsin_agent_hook_runs_total", hook=effect.kind, outcome=ran.outcome)
            self._figures.add("tocsin_agent_hook_seconds_total", ran.seconds, hook=effect.kind)
            fields = {"hook": effect.kind, "outcome": ran.outcome, "code": "" if ran.code is None else ran.code, "output": ran.output}
            log.info(
                "Output of hook %s", effect.kind, extra={"action": "agent_hook_output", **self._context.about(event_id), "fields": fields}
            )
            self._runs.pop(effect.run, None)
            self._deliver(HookEnded(effect.run, ran.outcome == "done", _describe(ran)))

        hook = replace(self._hooks[effect.kind], deadline=effect.deadline)
        details: dict[str, Any] = {**self._identity, "attempt": effect.attempt, "state": str(self._state), "event_id": ""}
        if effect.record is not None:
            event = effect.record.event
            details |= {**event_of(effect.record), "description": event.description, "rehearsal": event.rehearsal}
        # A hook that ends before it is noted here stays noted. Stopping it then has no effect.
        self._runs[effect.run] = self._runner.start(effect.kind, hook, details, done)

    def stop_hook(self, run: int) -> None:
        if (under_way := self._runs.get(run)) is not None:
            under_way.stop()

    # -- approvals and reports

    def approve(self, effect: Approve) -> None:
        def post() -> None:
            answer = self._imds.approve(effect.raw_id)
            outcome = "silence" if isinstance(answer, TransportFailure) else "posted" if answer.status == 200 else "refused"
            self._figures.add("tocsin_agent_approvals_total", outcome=outcome)
            self._deliver(interpret_approval(effect, answer))

        threading.Thread(target=post, name="approval", daemon=True).start()

    def report(self, state: NodeState) -> None:
        if self._reporter is not None:
            self._reporter.changed(state)

    def result(self, effect: SendResult) -> None:
        if self._reporter is not None:
            self._reporter.result(effect)


def asked_pause(answer: HttpReply | TransportFailure, due: float | None) -> float:
    """Return the seconds for which a refusal asks to wait by Retry-After, as far as the agent can; 0 for none.

    due: seconds until something is due on the node; None if nothing is.
    """
    if not isinstance(answer, HttpReply) or answer.status not in (429, 503):
        return 0.0
    asked = answer.headers.get("retry-after", "").strip()
    if not (asked.isascii() and asked.isdigit()):
        return 0.0
    # Compared as texts, because a peer may send a number of any length.
    seconds = float(asked) if len(asked) < 9 else MOST_RETRY_AFTER
    return max(0.0, min(seconds, MOST_RETRY_AFTER, MOST_RETRY_AFTER if due is None else due - LOOK_AHEAD))


def _describe(ran: HookResult) -> str:
    """Return how a hook ended, in short. The log has all of its output."""
    match ran.outcome:
        case "done":
            return ""
        case "late":
            return f"past its deadline after {ran.seconds:.0f} s"
        case "stopped":
            return "stopped"
    last = next((line.strip() for line in reversed(ran.output.splitlines()) if line.strip()), "")
    ended = "it could not be started" if ran.code is None else f"exit code {ran.code}"
    return ended + (f": {last[:150]}" if last else "")
