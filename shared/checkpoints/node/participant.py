"""`CheckpointParticipant`, which a replica runs to get its turns. See docs/how-to/checkpoints.md.

One task sends reports. During a turn, another task watches the clock and the replica's role. The body of the turn runs in its caller's
task. `rules` makes the decisions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from ...client.concurrent import AsyncClient
from ...client.errors import Forbidden, Invalid, NotFound, Refused, Unauthenticated
from ...core.clock import Clock, SystemClock, steady
from ...core.errors import TocsinError, text_of
from ...leases.node.state_file import NameInUse
from . import rules
from .messages import Health, build_report, parse_reply
from .publisher import PASSING, CheckpointPublisher
from .rules import BeginTurn, ReplicaState, ReportReply, StopReason, StopTurn
from .state_file import ReplicaFile
from .timings import FIRST_INTERVAL, LAST_REPORT_TIMEOUT, WATCH_INTERVAL
from .turn import ParticipantLog, Turn, TurnLost, explain_refusal

__all__ = ["CheckpointParticipant", "Health", "NameInUse", "Turn", "TurnLost"]

log = logging.getLogger(__name__)

MAX_RESTARTS: Final = 3
"""A replica registers again at most this often in a row. Two processes of one name would otherwise repeat it without end."""
UNDISPUTED_REPORTS: Final = 10
"""Accepted reports in a row after which no other process has this replica's name."""
_LASTING: Final = (Unauthenticated, Forbidden, NotFound, Invalid)


class CheckpointParticipant:
    """One replica of a fleet, which takes its checkpoints in its turns.

    ::

        async with CheckpointParticipant("search", "s7", url, key, health=health, folder="/var/lib/search") as participant:
            while True:
                async with participant.turn() as turn:
                    path, sequence = await take_checkpoint()
                    turn.result(sequence, path)

    `health()` is called before each report, and four times a second during a turn. It must return at once, with the replica's true role. A
    replica that becomes primary calls `recheck` before it acts as one. `folder`: keeps the last checkpoint over restarts; without it, a
    checkpoint with a lost publish is lost with the process. `grace`: seconds before the limit at which the body is cancelled. `timeout`:
    seconds that a request may take. `allow_plain_http`: as for `Client`. `transport`, `clock` and `steady` replace the connection and the
    clocks, for proxies, own certificates and tests. Belongs to one event loop.
    """

    def __init__(
        self,
        fleet: str,
        node: str,
        url: str,
        key: str,
        *,
        health: Callable[[], Health],
        folder: Path | str | None = None,
        tenant: str | None = None,
        grace: float = 1.0,
        timeout: float = 10.0,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
        steady: Callable[[], float] = steady,
        allow_plain_http: bool | None = None,
    ) -> None:
        """Raises ValueError for an invalid address, key or number."""
        if not 0 <= grace < math.inf or not 0 < timeout < math.inf:
            raise ValueError(f"expected seconds: grace of 0 or more and timeout above 0, not {grace!r} and {timeout!r}")
        self.fleet, self.node = fleet, node
        self._log = ParticipantLog(fleet, node)
        self._health, self._grace, self._timeout = health, grace, timeout
        self._clock, self._steady = clock or SystemClock(), steady
        # No report is retried: the next one is newer, and an answer counts for its own request only.
        self._client = AsyncClient(
            *(url, key),
            tenant=tenant,
            timeout=timeout,
            retries=0,
            transport=transport,
            clock=self._clock,
            allow_plain_http=allow_plain_http,
        )
        self._folder = Path(folder) if folder is not None else None
        # Late reports of an earlier process of this name must not count for this one.
        self._incarnation = str(uuid.uuid4())
        self._state, self._restarts = ReplicaState(), 0
        self._last_health = Health()
        self._accepted = self._registered = self._ended = False
        self._interval, self._failures = FIRST_INTERVAL, 0
        self._problem: TocsinError | None = None
        self._waiter: asyncio.Future[Turn] | None = None
        self._body: tuple[Turn, asyncio.Task[Any]] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._report_now, self._no_body, self._no_turn = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._no_body.set()
        self._no_turn.set()
        self.counts: Counter[str] = Counter()
        """Counts: reports, unanswered, refused, begun, short, published, late, failed, and lost turns by their reason."""
        self._publisher = CheckpointPublisher(
            *(self._client, node, lambda epoch: self._path("turns", str(epoch), "publish")),
            timeout=timeout,
            clock=self._clock,
            steady=steady,
            counts=self.counts,
        )

    # -- for the application

    def turn(self) -> TurnContext:
        """Return a context that waits for a turn: `async with participant.turn() as turn`. One at a time.

        It waits until this replica may take its checkpoint, cancels the body when the turn is lost (`TurnLost`), and publishes
        `turn.result` when the body ends by itself. Raises the reason for which this replica cannot take part: `NameInUse`, or the app's
        refusal of its first report.
        """
        return TurnContext(self)

    @property
    def last_checkpoint(self) -> int:
        """Sequence of this replica's last checkpoint; 0 for none."""
        return self._publisher.memory.last

    async def recheck(self) -> None:
        """Check the role at once, because it may have changed. When this returns to a primary, no body of a turn is running."""
        self._report_now.set()
        # If the role is unknown, this replica may have become the primary.
        if self._body is not None and ((health := self._read_health()) is None or health.role == "primary"):
            self._lose("promoted")
            await self._no_body.wait()

    async def __aenter__(self) -> Self:
        if self._reporting is not None:
            raise RuntimeError("a participant can be entered only once; create another one")
        if self._folder is not None:
            self._publisher.open(ReplicaFile(self._folder, self.fleet, self.node))
        self._reporting = asyncio.create_task(self._run(), name=f"checkpoint-{self.node}-reports")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended = self._publisher.ended = True
        self._lose("stopped")
        await self._no_turn.wait()
        if self._waiter is not None and not self._waiter.done():
            # Before the last report, so that it asks for no turn.
            self._waiter.set_exception(TocsinError("the participant has ended"))
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)
            if self._accepted and self._problem is None:
                # Without it the other replicas would wait for a turn that is over or was granted to this one.
                with contextlib.suppress(TocsinError):
                    await self._report(LAST_REPORT_TIMEOUT)
        await self._client.close()
        self._publisher.close()

    # -- for the turn

    async def _await_turn(self, task: asyncio.Task[Any]) -> Turn:
        if self._reporting is None or self._ended:
            raise RuntimeError("enter the participant first: async with CheckpointParticipant(...)")
        if self._waiter is not None or not self._no_turn.is_set():
            raise RuntimeError("this participant is already in a turn or waits for one; take one turn at a time")
        if self._problem is None:
            self._log.waits()
        while True:
            if self._problem is not None:
                raise self._problem.with_traceback(None)
            self._waiter = asyncio.get_running_loop().create_future()
            self._report_now.set()
            try:
                turn = await self._waiter
            except asyncio.CancelledError:
                self._turn_ended(failed=False)
                raise
            finally:
                self._waiter = None
            self._body = (turn, task)
            # This task may have run late.
            reason = rules.stop_reason(self._state, self._steady(), primary=not self._may_begin(), spare=self._grace)
            if reason is None and not self._ended:
                break
            self._body = None
            self._turn_ended(failed=False)
            if self._ended:
                raise TurnLost(turn.epoch, "stopped")
        self._no_body.clear()
        self.counts["begun"] += 1
        self._log.granted(turn)
        self._watching = asyncio.create_task(self._watch(turn), name=f"checkpoint-{self.node}-watch")
        return turn

    def _body_ended(self) -> None:
        """Note that the body has ended."""
        self._body = None
        if self._watching is not None:
            self._watching.cancel()
        self._no_body.set()

    async def _publish(self, turn: Turn) -> None:
        assert turn.made is not None
        try:
            turn.latest = await self._publisher.publish(turn.made, turn.until)
        except (TurnLost, Refused) as why:
            self._log.unpublished(turn, why)
            raise
        self._failures = 0
        self._log.published(turn)

    def _turn_ended(self, *, failed: bool) -> None:
        """Note that no turn is taken any more."""
        self._state = rules.end_turn(self._state)
        if failed:
            self._failures += 1
            self.counts["failed"] += 1
        self._no_turn.set()
        self._report_now.set()

    # -- the watch

    def _lose(self, reason: StopReason) -> None:
        if self._body is not None:
            turn, task = self._body
            if turn.lost is None:
                turn.lost = reason
                self.counts[reason] += 1
                self._log.lost(turn)
                task.cancel()

    def _may_begin(self) -> bool:
        """Return true if this replica is a secondary for certain.

        An unknown role ends no body, but begins none either: a new primary may have called `recheck` already, and act as primary now.
        """
        return (health := self._read_health()) is not None and health.role != "primary"

    def _read_health(self) -> Health | None:
        try:
            health = self._health()
            if not isinstance(health, Health):
                raise TypeError(f"health() returns a Health, not {type(health).__name__}")
        except Exception as error:
            # The last known state stays. Without reports this replica soon counts as down.
            self._log.report_problem("health", "health() of replica %s failed: %s", error, trace=not isinstance(error, TocsinError))
            return None
        self._last_health = health
        return health

    async def _watch(self, turn: Turn) -> None:
        try:
            while turn.lost is None:
                primary = (self._read_health() or self._last_health).role == "primary"
                reason = rules.stop_reason(self._state, self._steady(), primary=primary, spare=self._grace)
                if reason is None:
                    await self._clock.sleep(max(0.0, min(WATCH_INTERVAL, turn.until - self._grace - self._steady())))
                else:
                    self._lose(reason)
        except BaseException:
            # No other task would end the body at its limit. This has no effect on a body that has ended.
            self._lose("stopped")
            raise
        await self._clock.sleep(turn.remaining() + WATCH_INTERVAL)
        log.error("The body of turn %d still runs after the turn's limit", turn.epoch, extra={"action": "turn_overrun"})

    # -- the reports

    async def _run(self) -> None:
        try:
            await self._publisher.catch_up()
            while True:
                self._report_now.clear()
                if await self._report(self._timeout):
                    await self._wait(self._interval)
        except TocsinError as problem:
            if self._waiter is None or self._waiter.done():
                # A caller that waits gets the error itself.
                log.error(
                    "Replica %s does not take part in checkpoints: %s", self.node, problem, extra={"action": "turn_participant_ended"}
                )
            self._fail(problem)
        except asyncio.CancelledError:
            if not self._ended:
                self._fail(TocsinError("the participant's task was cancelled by its application"))
            raise
        except Exception as error:
            log.exception("The participant failed", extra={"action": "turn_participant_failed"})
            self._fail(TocsinError(f"the participant failed: {type(error).__name__}"))

    def _fail(self, problem: TocsinError) -> None:
        # The traceback in this module does not help the caller, and the cause has the same message.
        problem.__cause__, problem.__suppress_context__ = None, True
        self._problem = problem.with_traceback(None)
        self._lose("stopped")
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(problem)

    async def _wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until a report is due at once."""
        both = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._report_now.wait())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in both:
                each.cancel()

    async def _report(self, timeout: float) -> bool:
        """Report once. Returns false if the next report must follow at once."""
        health = self._read_health()
        if health is None:
            return True
        now = self._steady()
        self._state = rules.start_report(self._state, now)
        seq = self._state.seq
        body = build_report(
            self._state,
            health,
            failures=self._failures,
            last_checkpoint=self.last_checkpoint,
            now=now,
            ready=self._waiter is not None and not self._waiter.done(),
            incarnation=self._incarnation,
        )
        self.counts["reports"] += 1
        try:
            async with asyncio.timeout(timeout):
                answered = await self._client.call("POST", self._path("replicas", self.node, "report"), body)
            answer, self._interval = parse_reply(answered)
        except PASSING as passing:
            self._state = rules.report_failed(self._state)
            self.counts["unanswered"] += 1
            self._log.report_problem("unanswered", "A report of %s was not answered: %s", text_of(passing))
            return True
        except Refused as refused:
            self._state = rules.report_failed(self._state)
            return await self._refused(refused)
        self._log.answered()
        self._accepted = self._registered = True
        if seq > UNDISPUTED_REPORTS:
            self._restarts = 0
        self._apply(seq, answer)
        return True

    def _apply(self, seq: int, answer: ReportReply) -> None:
        waiter = self._waiter
        may = waiter is not None and not waiter.done() and self._may_begin()
        self._state, decision = rules.apply_answer(self._state, seq, answer, self._steady(), may=may, spare=self._grace)
        match decision:
            case BeginTurn(held):
                assert waiter is not None
                self._no_turn.clear()
                waiter.set_result(Turn(held, self._steady))
                # A report tells the app at once that the turn is taken.
                self._report_now.set()
            case StopTurn(reason):
                self._lose(reason)
            case None if may and answer.turn is not None and answer.turn[0] > self._state.begun:
                self.counts["short"] += 1
                self._log.too_short(*answer.turn, self._grace)

    async def _refused(self, refused: Refused) -> bool:
        self.counts["refused"] += 1
        if self._state.seq == 1:
            # The registration was not stored, so the next report must register again.
            self._state = rules.restart(self._state)
        elif refused.code == "unknown-replica":
            # A new life must not begin while the old one is in a turn.
            self._lose("forgotten")
            await self._no_turn.wait()
            # Only an accepted registration counts: a refused one does not show that another process has the name.
            self._state, self._restarts, self._registered = rules.restart(self._state), self._restarts + self._registered, False
            if self._restarts > MAX_RESTARTS:
                raise NameInUse(
                    f"another process reports as replica {self.node!r} of this fleet; give each process a node name of its own"
                ) from refused
            return False
        if isinstance(refused, _LASTING) and not self._accepted:
            raise explain_refusal(refused, self.fleet)
        self._log.report_problem(refused.code, "A report of %s was refused: %s", refused)
        return True

    def _path(self, *parts: str) -> str:
        return "/".join(("fleets", quote(self.fleet, safe=""), *(quote(part, safe="") for part in parts)))


class TurnContext:
    """The context of `async with participant.turn()`: waits for the turn, ends the body in time, and publishes."""

    def __init__(self, participant: CheckpointParticipant) -> None:
        self._participant = participant
        self._turn: Turn | None = None
        self._cancelling = 0

    async def __aenter__(self) -> Turn:
        task = asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        self._turn = await self._participant._await_turn(task)
        return self._turn

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        turn, task = self._turn, asyncio.current_task()
        assert turn is not None and task is not None
        turn.ended = True
        self._participant._body_ended()
        if turn.lost is not None:
            self._participant._turn_ended(failed=turn.lost in ("limit", "forgotten"))
            # As in asyncio.timeout: only if no other code cancels this task too.
            ours = task.uncancel() <= self._cancelling
            if ours and (kind is None or issubclass(kind, asyncio.CancelledError)):
                raise TurnLost(turn.epoch, turn.lost) from error
            return False
        if kind is not None or turn.made is None:
            self._participant._turn_ended(failed=kind is not None and issubclass(kind, Exception))
            return False
        try:
            await self._participant._publish(turn)
        finally:
            self._participant._turn_ended(failed=False)
        return False
