"""Reports to the app: at once after a change, else at the interval that the app asks for. While the app is away, reports wait on disk.

It has its own thread, so that the agent's loop never waits for the app. The app's answers come back to the loop as observations.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from ....core import backoff
from ....core.clock import Millis, to_text
from ....core.http_exchange import HttpReply, TransportFailure, exchange
from ....core.tls import client_tls
from ....core.version import recorded_version
from ..caller_probe import CallerProber
from ..config.config import AppSettings
from ..decisions.step import asked_events
from ..effects import SendResult, WriteLog
from ..imds.client import Machine
from ..journal import ReportBacklog
from ..model import NodeState
from ..observations import AppUnreachable, Observation
from ..process import AgentProcess
from ..timings import APP_ANSWER, FAR_RETRY, FIRST_REPORT, NEAR_RETRY, PROBE_READY, USUAL_REPORT
from .messages import ReportReceipt, body_of, distinct_changes, is_reported, near, read_answer, step_of

log = logging.getLogger(__name__)

RESULT_TRIES: Final = 10
MAX_STEPS: Final = 500
"""Steps of stories that wait for the next report."""
STEPS_OF_REPORT: Final = 100
_NOT_TAKEN: Final = (400, 413, 422)
_REFUSES_AGENT: Final = (401, 403, 404)
BATCH: Final = 50
"""Waiting reports that are sent before their file is rewritten."""
TRIES: Final = 5
"""Attempts to send one report: with another `seq`, and without fields that a former release of the app refuses."""
LEAP: Final = 1000
"""Amount by which `seq` is raised when the app has seen a higher one. It grows with each attempt."""


class AppClient:
    """Calls the app's routes of one fleet. The key is sent in a header only."""

    def __init__(self, app: AppSettings, ask: Callable[..., HttpReply | TransportFailure] = exchange) -> None:
        self._root = f"{app.url}/api/v1/fleets/{quote(app.fleet, safe='')}/maintenance"
        self._query = f"?{urlencode({'tenant': app.tenant})}" if app.tenant else ""
        self._headers = {
            "Authorization": f"Bearer {app.key}",
            "Content-Type": "application/json",
            "User-Agent": f"tocsin-agent/{recorded_version()}",
        }
        self._tls = client_tls() if app.url.startswith("https:") else None
        self._proxy = app.proxy
        self._ask = ask

    def post(self, path: str, body: Mapping[str, Any]) -> HttpReply | TransportFailure:
        """POST to a path under `maintenance`."""
        data = json.dumps(body).encode()
        url = f"{self._root}/{path}{self._query}"
        return self._ask("POST", url, headers=self._headers, body=data, timeout=APP_ANSWER, tls=self._tls, proxy=self._proxy)


class ReportSubject(NamedTuple):
    """The node that reports are about. lead: the longest lead of the node's own file; 0 if it sets none."""

    node: str
    machine: Machine
    lead: Millis = 0


class Reporter:
    """Sends reports and results on its own thread. observe: gives an observation to the agent.

    Changes go through the file of waiting reports even while the app answers, so that a crash loses none.
    """

    def __init__(
        self,
        app_client: AppClient,
        backlog: ReportBacklog,
        observe: Callable[[Observation], None],
        subject: ReportSubject,
        process: AgentProcess,
        prober: CallerProber | None = None,
    ) -> None:
        self._app_client, self._backlog, self._observe, self._prober = app_client, backlog, observe, prober
        self._node, self._machine, lead = subject
        self._figures, self._context, self._wall, self._steady, self._chance = process
        wall, steady, chance = self._wall, self._steady, self._chance
        self._own_lead = {"lead_ms": lead} if lead else {}
        self._seq, self._leap, self._failures = wall(), LEAP, 0
        self._steps: deque[dict[str, Any]] = deque(maxlen=MAX_STEPS)
        self._number = 0
        self._steps_taken = True
        self._bell = threading.Condition()
        self._changes: deque[NodeState] = deque()
        self._results: deque[tuple[SendResult, int]] = deque()
        self._state: NodeState | None = None
        self._due = steady() + FIRST_REPORT * chance()
        self._closed = self._busy = False

    # -- called by the loop

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._serve, name="reports", daemon=True).start()

    def changed(self, state: NodeState) -> None:
        """Send a report of a changed state now."""
        with self._bell:
            self._changes.append(state)
            self._bell.notify_all()

    def note(self, line: WriteLog, event_id: str) -> None:
        """Add a line to the story of an event. It goes with the next report."""
        if not is_reported(event_id):
            return
        at = self._wall()
        with self._bell:
            # Also over restarts, and when the clock is set back meanwhile, no two steps have one number.
            self._number = max(self._number + 1, at)
            self._steps.append(step_of(line, event_id, self._number, at))

    def result(self, result: SendResult) -> None:
        """Send the result of a leased approval now."""
        with self._bell:
            self._results.append((result, RESULT_TRIES))
            self._bell.notify_all()

    def latest(self, state: NodeState) -> None:
        """Set the state for reports that are due without a change."""
        self._state = state

    def close(self, timeout: float) -> None:
        """End once all changes are sent or on disk; wait at most `timeout` seconds for that."""
        with self._bell:
            if self._steps and self._state is not None:
                # The last steps of the process: that it ends.
                self._changes.append(self._state)
                self._bell.notify_all()
            self._bell.wait_for(lambda: not (self._busy or self._changes or self._results), timeout)
            self._closed = True
            self._bell.notify_all()

    # -- its own thread

    def _serve(self) -> None:
        while self._wait():
            try:
                self.run_once()
            except OSError as error:
                # An error of the disk: an exchange raises none.
                log.warning(
                    "Waiting reports cannot be stored: %s",
                    error.strerror,
                    extra={"action": "agent_reports_unkept", **self._context.about()},
                )
                self._later()
                # The node must not wait for an answer to a report that it could not send.
                self._observe(AppUnreachable(f"reports cannot be kept: {error.strerror}"))

    def _wait(self) -> bool:
        """Wait until there is something to do. Returns false after `close`."""
        with self._bell:
            self._busy = False
            self._bell.notify_all()
            while not self._closed:
                wait = self._due - self._steady()
                if wait <= 0 or self._changes or (self._results and not self._failures):
                    self._busy = True
                    return True
                self._bell.wait(wait)
            return False

    def run_once(self) -> None:
        """Store changes. Then send everything, unless the app is away and the next attempt is not due."""
        with self._bell:
            changes = distinct_changes(list(self._changes))
            self._changes.clear()
            pending = bool(self._steps)
        due = self._steady() >= self._due
        if due and pending and not changes and self._state is not None:
            # Through the file, as a change: no answer may come.
            changes = [self._state]
        for number, state in enumerate(changes, 1):
            # Steps wait on disk with a report of a change. The latest of several changes has them.
            self._backlog.add(body_of(state, self._node, self._machine) | (self._take_steps() if number == len(changes) else {}))
        if due or not self._failures:
            self._deliver(asked_events(changes[-1]) if changes else frozenset(), due)
        self._figures.put("tocsin_agent_reports_waiting", len(self._backlog))

    def _deliver(self, asked: frozenset[str], due: bool) -> None:
        waited = len(self._backlog) > 0
        while waiting := self._backlog.first(BATCH):
            sent = 0
            for number, body in enumerate(waiting, 1):
                # Only the newest report asks to approve events: older ones may be outdated.
                if not self._send_report(body, asked if number == len(self._backlog) else frozenset()):
                    break
                sent = number
            self._backlog.delivered(sent)
            if sent < len(waiting):
                return
        # A report of a change is a full report too, so no further one is due.
        state = self._state
        if (
            due
            and not waited
            and state is not None
            and not self._send_report(body_of(state, self._node, self._machine), asked_events(state))
        ):
            return
        self._deliver_results()

    def _send_report(self, body: Mapping[str, Any], asked: frozenset[str]) -> bool:
        """Send one report. Returns false if the app is away. A report that is refused for good is dropped, because it would block all later
        ones."""
        probed = self._prober.report() if self._prober is not None else None
        for _ in range(TRIES):
            self._seq += 1
            sent = self._steady()
            body_now = {**self._shown(body), "seq": self._seq}
            answer = self._app_client.post("reports", body_now | ({"probe": probed} if probed is not None else {}))
            refused = not isinstance(answer, TransportFailure) and answer.status in _NOT_TAKEN
            if refused and (probed is not None or self._steps_taken):
                # An instance of a former release of the app refuses fields that it does not know. Results of the probe come with a later
                # report.
                probed, self._steps_taken = None, self._steps_taken and probed is not None
                continue
            if isinstance(answer, TransportFailure) or answer.status != 409:
                break
            if _problem(answer.body, "type").endswith("stale-seq"):
                # The clock was ahead when the agent last ran.
                self._seq += self._leap
                self._leap *= 8
        if isinstance(answer, TransportFailure):
            return self._away(answer.reason, "silence")
        if answer.status == 200:
            # Events that had no room in the report were not sent.
            shown = frozenset(entry["event_id"] for entry in body["events"])
            receipt = read_answer(answer.body, sent, asked & shown)
            if isinstance(receipt, str):
                return self._away(receipt, "refused")
            self._apply_receipt(receipt)
            return True
        why = f"status {answer.status}{_detail(answer.body)}"
        self._away(why, "refused", refused=answer.status in _REFUSES_AGENT)
        if answer.status not in (400, 413, 422):
            return False
        log.warning(
            "The app refuses a report, which is dropped: %s", why, extra={"action": "agent_report_refused", **self._context.about()}
        )
        return True

    def _take_steps(self) -> dict[str, Any]:
        """Return the oldest steps that wait, as a part of a report."""
        with self._bell:
            steps = [self._steps.popleft() for _ in range(min(len(self._steps), STEPS_OF_REPORT))]
        return {"steps": steps}

    def _shown(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a report as this release of the app takes it."""
        if not self._steps_taken:
            return {name: value for name, value in body.items() if name != "steps"}
        return {"steps": [], **body, "sent": to_text(self._wall()), **self._own_lead}

    def _apply_receipt(self, receipt: ReportReceipt) -> None:
        self._figures.add("tocsin_agent_reports_total", outcome="taken")
        self._steps_taken = receipt.steps > 0
        self._failures, self._leap = 0, LEAP
        # Long intervals are spread: whole fleets start at one time.
        spread = 1.0 if receipt.next < USUAL_REPORT / 10 else 0.75 + 0.25 * self._chance()
        self._due = self._steady() + receipt.next * spread
        if self._prober is not None and self._prober.follow(receipt.probe):
            # The app chooses among agents that say that they can run the probe.
            self._due = min(self._due, self._steady() + PROBE_READY * self._chance())
        self._observe(receipt.answer)

    def _away(self, why: str, outcome: str, *, refused: bool = False) -> bool:
        self._figures.add("tocsin_agent_reports_total", outcome=outcome)
        self._later()
        self._observe(AppUnreachable(why, refused))
        return False

    def _later(self) -> None:
        self._failures += 1
        most = NEAR_RETRY if self._state is not None and near(self._state) else FAR_RETRY
        self._due = self._steady() + backoff.exponential(1.0, self._failures - 1, most, 10) * (0.75 + 0.25 * self._chance())

    def _deliver_results(self) -> None:
        with self._bell:
            results = list(self._results)
            self._results.clear()
        for result, tries in results:
            body: dict[str, Any] = {"node": self._node, "outcome": result.outcome}
            if result.http_status:
                body["http_status"] = result.http_status
            answer = self._app_client.post(f"approvals/{quote(result.approval_id, safe='')}/result", body)
            if isinstance(answer, TransportFailure) or answer.status >= 500 or answer.status == 429:
                self._later()
                if tries > 1:
                    with self._bell:
                        self._results.append((result, tries - 1))
            elif answer.status >= 300:
                # A lease that was lost meanwhile is another agent's: nothing is left to do.
                text = "The app takes no result of approval %s: status %s"
                extra = {"action": "agent_result_refused", **self._context.about(result.approval_id.rpartition(".")[0])}
                log.info(text, result.approval_id, answer.status, extra=extra)


def _detail(body: bytes) -> str:
    text = _problem(body, "detail")
    return f": {text[:200]}" if text else ""


def _problem(body: bytes, key: str) -> str:
    """Return a field of a problem document; empty if the body is none."""
    try:
        return str(json.loads(body).get(key) or "")
    except (ValueError, AttributeError):
        return ""
