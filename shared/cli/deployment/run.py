"""The steps of a run, in their order, and the long measures of `--flex`: lone events, a crowd, and events from zero."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import httpx

from ...client.errors import Unreachable, Unreadable
from ...client.http import api_base
from ...core.errors import TocsinError
from ..failures import to_command_failure
from ..session import CommandSession, api_path
from ..terminal.documents import parse
from .plan import CROWD, QUIET, ZERO, FlexPlan, Plan, gap_kind
from .rules import CHANNEL
from .seen import Look, Probe, Seen
from .stage import Stage

NOW: Final = 3
"""Events that are due now, one right after the other."""
BACKGROUND: Final = 4
"""Events that are due now, each followed by silence."""
_LOOK_EVERY: Final = 1.0
"""Seconds between two looks into the queue. Deliveries carry their times, so this changes no figure."""
_SHOWN_STATES: Final = 5
"""Events that did not arrive and of which the service is asked."""

type Progress = Callable[[str], None]


class Run:
    """Runs the checks, and keeps what was seen even if it ends early."""

    def __init__(self, session: CommandSession, seen: Seen, progress: Progress) -> None:
        self.session, self.seen, self.progress = session, seen, progress
        self._began = time.monotonic()
        seen.started = time.time()
        self._by_id: dict[str, Probe] = {}
        self._due_at: dict[str, float] = {}
        """Monotonic time at which each event is due, by its id."""
        self.mail_error = ""
        """The reason of the last look into the queue, if that failed."""

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    @property
    def open_events(self) -> Iterable[str]:
        """The ids of the events that have not arrived."""
        return [probe.id for probe in self.seen.probes if probe.id and not probe.deliveries]

    def look(self) -> Look:
        """Read `readyz`, which needs no key. Without an answer the document is empty."""
        url = api_base(self.session.app.url).removesuffix("v1/") + "readyz"
        before = time.time()
        try:
            # 503 is an answer here, so it is not tried again.
            answer = self.session.client._http.get(url)
            document = parse(answer.content)
        except httpx.TransportError:
            look = Look(self.seconds, before, 0, {})
        except ValueError:
            look = Look(self.seconds, before, answer.status_code, {})
        else:
            self.seen.service_offset.observe(answer.headers.get("date", ""), before, time.time())
            found: Mapping[str, Any] = dict(document) if isinstance(document, dict) else {}
            look = Look(self.seconds, before, answer.status_code, found)
        self.seen.looks.append(look)
        return look

    def first_look(self) -> None:
        """Read `readyz` for the first time. Raises `Unreachable` and `Unreadable` if it is no service of ours."""
        look = self.look()
        if not look.status:
            raise Unreachable(f"no answer from {self.session.app.url}/api/readyz", sent=False)
        if "status" not in look.document:
            raise Unreadable(f"status {look.status}, but the body is not the JSON of readyz")

    def standard(self, stage: Stage, plan: Plan) -> None:
        """Run the checks of every service."""
        self.progress("storing events")
        # Events that are due late come first: nothing needs to wait for them.
        self.post(stage, "far", plan.far)
        self.post(stage, "middle", plan.middle)
        self._cancel(stage, self.post(stage, "cancel", plan.cancel_ahead))
        spread = plan.batch_ahead / 4
        self.post_batch(stage, "batch", [plan.batch_ahead + spread * number / plan.batch for number in range(plan.batch)])
        self.post(stage, "soon", plan.soon)
        self.progress("events that are due now")
        for _ in range(NOW):
            self.post(stage, "now", 0)
        self.look()
        for number in range(BACKGROUND):
            self.progress(f"silence after an answer, {number + 1} of {BACKGROUND}")
            self.post(stage, "background", 0)
            self.listen(stage, plan.pause)
        early = ("now", "background", "soon", "batch", "middle")
        self.await_all(stage, early, plan.patience, f"events of the next {plan.middle:g} s")
        self.look()
        self.progress(f"{plan.idle:g} s without a request")
        self.listen(stage, plan.idle)
        self.post(stage, "idle", 0)
        self.look()
        self.await_all(stage, ("far", "idle"), plan.patience, f"the event that is due {plan.far:g} s after its request")
        self.look()
        self.progress("reading what did not arrive")
        self.read_missing(stage)

    def listen(self, stage: Stage, seconds: float) -> None:
        """Read the queue for some seconds. No request goes to the service."""
        ends_at = time.monotonic() + seconds
        while True:
            self._collect(stage)
            left = ends_at - time.monotonic()
            if left <= 0:
                return
            self.session.sleep(min(left, _LOOK_EVERY))

    def await_all(self, stage: Stage, kinds: Sequence[str], patience: float, what: str) -> None:
        """Read the queue until the events of these kinds have arrived, or `patience` seconds after the last one's due time."""
        waiting = [probe for probe in self.seen.probes if probe.kind in kinds and probe.id]
        # By this machine's monotonic time: its wall clock may be wrong.
        last = max((self._due_at[probe.id] for probe in waiting), default=0.0)
        while (left := [probe for probe in waiting if not probe.deliveries]) and time.monotonic() < last + patience:
            self.progress(f"{len(waiting) - len(left)} of {len(waiting)} arrived: {what}")
            self._collect(stage)
            self.session.sleep(min(_LOOK_EVERY, max(0.0, last + patience - time.monotonic())))
        self._collect(stage)

    def read_missing(self, stage: Stage) -> None:
        """Ask the service for the states of events that did not arrive."""
        missing = [probe for probe in self.seen.probes if probe.id and not probe.deliveries and probe.kind != "cancel"]
        kinds = {probe.kind: probe for probe in reversed(missing)}
        for probe in [*kinds.values()][:_SHOWN_STATES]:
            try:
                found = stage.session.get(api_path("events", probe.id))
                probe.state, probe.error = str(found.get("state", "")), str(found.get("error") or "")
            except TocsinError as error:
                probe.unread = to_command_failure(error).title

    def post(self, stage: Stage, kind: str, delay: float) -> Probe:
        """Store an event. A failure is kept with it."""
        probe = Probe(kind)
        self.seen.probes.append(probe)
        before = time.monotonic()
        try:
            # Without an id of its own: an event that is due now is then delivered by the process that stores it.
            answer = stage.session.send("POST", "events", {"channel": CHANNEL, "delay": f"PT{delay:.3f}S", "payload": kind})
            self._accepted(probe, answer, delay)
        except TocsinError as error:
            probe.error = to_command_failure(error).title
        probe.answer_ms = round((time.monotonic() - before) * 1000)
        return probe

    def post_batch(self, stage: Stage, kind: str, delays: Sequence[float]) -> None:
        """Store many events in one request."""
        probes = [Probe(kind) for _ in delays]
        self.seen.probes += probes
        lines = [{"channel": CHANNEL, "delay": f"PT{delay:.3f}S", "payload": kind} for delay in delays]
        try:
            answer = stage.session.send("POST", "events/batch", lines)
            for probe, result, delay in zip(probes, answer["results"], delays, strict=False):
                if result.get("id"):
                    self._accepted(probe, result, delay)
                else:
                    probe.error = f"status {result['status']}"
        except TocsinError as error:
            for probe in probes:
                probe.error = to_command_failure(error).title

    def _accepted(self, probe: Probe, answer: Mapping[str, Any], delay: float) -> None:
        probe.id = str(answer["id"])
        # A little later than the due time: the service counts from the arrival of the request.
        self._by_id[probe.id], self._due_at[probe.id] = probe, time.monotonic() + delay

    def _cancel(self, stage: Stage, probe: Probe) -> None:
        if not probe.id:
            return
        try:
            stage.session.send("DELETE", api_path("events", probe.id), repeatable=True)
        except TocsinError as error:
            probe.error = to_command_failure(error).title

    def _collect(self, stage: Stage) -> None:
        """Take what has arrived. A failure is kept: storage may answer the next look."""
        try:
            for delivered in stage.mailbox.take(stage.source):
                if (probe := self._by_id.get(delivered.id)) is not None:
                    probe.deliveries.append(delivered)
            self.mail_error = ""
        except TocsinError as error:
            self.mail_error = to_command_failure(error).title


def measure(run: Run, stage: Stage, plan: FlexPlan) -> None:
    """Run the measures. They stand in the run's observations."""
    run.progress("storing the events of the long measures")
    due = plan.lead
    for _ in range(plan.passes):
        for gap in plan.gaps:
            due += gap
            run.post(stage, gap_kind(gap), due)
    due += plan.gaps[-1]
    step = plan.crowd_span / plan.crowd
    run.post_batch(stage, CROWD, [due + step * number for number in range(plan.crowd)])
    _listen_and_look(run, stage, due + plan.crowd_span, plan)
    kinds = (*map(gap_kind, plan.gaps), CROWD)
    run.await_all(stage, kinds, plan.patience, "events of the long measures")
    for number in range(plan.zeros):
        run.progress(f"{plan.silence:g} s without a request, {number + 1} of {plan.zeros}")
        run.listen(stage, plan.silence)
        run.post(stage, ZERO, plan.near)
        run.await_all(stage, (ZERO,), plan.patience, "an event from zero")
        run.post(stage, QUIET, 0)
        run.listen(stage, plan.silence / 5)
    run.look()
    run.read_missing(stage)


def _listen_and_look(run: Run, stage: Stage, seconds: float, plan: FlexPlan) -> None:
    """Read the queue for some seconds, and `readyz` from time to time."""
    ends_at = run.seconds + seconds
    for number in itertools.count(1):
        left = ends_at - run.seconds
        if left <= 0:
            return
        run.progress(f"{left:.0f} s left: lone events at distances of {plan.gaps[0]:g} to {plan.gaps[-1]:g} s")
        run.listen(stage, min(plan.look, left))
        if number * plan.look < seconds:
            run.look()
