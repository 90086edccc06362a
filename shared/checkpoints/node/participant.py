"""`CheckpointParticipant`: what a replica runs to have its turns. See docs/checkpoints.md.

One task reports; while a turn is taken, another looks at the clock and at the role. The body runs in its caller's task. Decisions are those
of `node`.
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
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from ...client.concurrent import AsyncClient
from ...client.errors import Forbidden, Invalid, NotFound, Refused, Unauthenticated, Unreadable
from ...core.clock import Clock, SystemClock, steady
from ...core.errors import TocsinError
from ...leases.node.state_file import NameInUse
from . import rules
from .health import Health
from .publisher import PASSING, CheckpointPublisher
from .reporting import ParticipantLog, unwelcome
from .rules import BeginTurn, ReplicaState, ReportReply, StopReason, StopTurn
from .state_file import ReplicaFile
from .turn import Turn, TurnContext, TurnLost

__all__ = ["CheckpointParticipant", "Health", "NameInUse", "Turn", "TurnLost"]

log = logging.getLogger(__name__)

PAUSE: Final = 5.0
"""Seconds between reports until the app says how many."""
TICK: Final = 0.25
"""Seconds between two looks at clock and role while a turn is taken."""
DISPUTED: Final = 3
"""So often in a row a replica begins anew: two processes of one name make each other do so."""
STEADY: Final = 10
"""Reports that show that nobody else has the name."""
FAREWELL: Final = 5.0
"""Seconds that a last report may take."""
_LASTING: Final = (Unauthenticated, Forbidden, NotFound, Invalid)


class CheckpointParticipant:
    """One replica of a fleet, which takes its checkpoints in its turns.

    ::

        async with CheckpointParticipant("search", "s7", url, key, health=health, folder="/var/lib/search") as participant:
            while True:
                async with participant.turn() as turn:
                    path, sequence = await take_checkpoint()
                    turn.result(sequence, path)

    `health()` is called before each report, and four times a second while a turn is taken: it returns at once, and says the truth about the
    role. Who becomes primary calls `recheck` before acting as one. `folder`: where to remember the last checkpoint over restarts; without
    it, one whose publish got lost is lost with the process. `grace`: seconds before the limit at which the body is cancelled. `timeout`:
    seconds that a request may take. `transport`, `clock`, `steady`: other ways to the app and to the time, for proxies, own certificates
    and tests. Belongs to one event loop.
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
    ) -> None:
        """ValueError for an address, a key or a number that cannot be one."""
        if not 0 <= grace < math.inf or not 0 < timeout < math.inf:
            raise ValueError("grace and timeout are seconds: grace from 0, timeout above it")
        self.fleet, self.node = fleet, node
        self._tell = ParticipantLog(fleet, node)
        self._health, self._grace, self._timeout = health, grace, timeout
        self._clock, self._steady = clock or SystemClock(), steady
        # No report is repeated: the next one says more, and an answer counts for its own request only.
        self._client = AsyncClient(url, key, tenant=tenant, timeout=timeout, retries=0, transport=transport, clock=self._clock)
        self._folder = Path(folder) if folder is not None else None
        # Late reports of an earlier process of this name must not speak for this one.
        self._incarnation = str(uuid.uuid4())
        self._me, self._lives = ReplicaState(), 0
        self._known = Health()
        self._in = self._registered = self._ended = False
        self._pause, self._failures = PAUSE, 0
        self._problem: TocsinError | None = None
        self._waiter: asyncio.Future[Turn] | None = None
        self._body: tuple[Turn, asyncio.Task[Any]] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._bell, self._idle, self._quiet = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._quiet.set()
        self.counts: Counter[str] = Counter()
        """What was done so far: reports, unanswered, refused, begun, short, published, late, failed, and lost turns by their reason."""
        self._publisher = CheckpointPublisher(
            *(self._client, node, lambda epoch: self._path("turns", str(epoch), "publish")),
            timeout=timeout,
            clock=self._clock,
            steady=steady,
            counts=self.counts,
        )

    # -- for the application

    def turn(self) -> TurnContext:
        """`async with participant.turn() as turn`: waits until this replica may take its checkpoint, cancels the body when it may no longer
        (`TurnLost`), publishes `turn.result` when the body ends by itself. One at a time.

        Raises what keeps this replica from taking part: `NameInUse`, or the app's refusal of its first report.
        """
        return TurnContext(self)

    @property
    def last_checkpoint(self) -> int:
        """The sequence of this replica's last checkpoint, 0 for none."""
        return self._publisher.memory.last

    async def recheck(self) -> None:
        """The role may have changed: look at once. When this returns to a primary, no body of a turn runs."""
        self._bell.set()
        # A role that cannot be told may have become the primary's.
        if self._body is not None and ((health := self._look()) is None or health.role == "primary"):
            self._lose("promoted")
            await self._idle.wait()

    async def __aenter__(self) -> Self:
        if self._reporting is not None:
            raise RuntimeError("a participant starts once")
        if self._folder is not None:
            self._publisher.open(ReplicaFile(self._folder, self.fleet, self.node))
        self._reporting = asyncio.create_task(self._run(), name=f"checkpoint-{self.node}-reports")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended = self._publisher.ended = True
        self._lose("stopped")
        await self._quiet.wait()
        if self._waiter is not None and not self._waiter.done():
            # Before the last report: what that asks for nobody would take.
            self._waiter.set_exception(TocsinError("the participant has ended"))
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)
            if self._in and self._problem is None:
                # Else the others would wait for a turn that is over, or for one granted to who has left.
                with contextlib.suppress(TocsinError):
                    await self._report(FAREWELL)
        await self._client.close()
        self._publisher.close()

    # -- for the turn

    async def _granted(self, task: asyncio.Task[Any]) -> Turn:
        if self._reporting is None or self._ended:
            raise RuntimeError("enter the participant first: async with CheckpointParticipant(...)")
        if self._waiter is not None or not self._quiet.is_set():
            raise RuntimeError("one turn at a time")
        if self._problem is None:
            self._tell.waits()
        while True:
            if self._problem is not None:
                raise self._problem.with_traceback(None)
            self._waiter = asyncio.get_running_loop().create_future()
            self._bell.set()
            try:
                turn = await self._waiter
            except asyncio.CancelledError:
                self._over(failed=False)
                raise
            finally:
                self._waiter = None
            self._body = (turn, task)
            # It may have waited for this task to run.
            reason = rules.must_stop(self._me, self._steady(), primary=not self._may_begin(), spare=self._grace)
            if reason is None and not self._ended:
                break
            self._body = None
            self._over(failed=False)
            if self._ended:
                raise TurnLost(turn.epoch, "stopped")
        self._idle.clear()
        self.counts["begun"] += 1
        self._tell.granted(turn)
        self._watching = asyncio.create_task(self._watch(turn), name=f"checkpoint-{self.node}-watch")
        return turn

    def _out(self) -> None:
        """The body has ended."""
        self._body = None
        if self._watching is not None:
            self._watching.cancel()
        self._idle.set()

    async def _publish(self, turn: Turn) -> None:
        assert turn.made is not None
        try:
            turn.latest = await self._publisher.publish(turn.made, turn.until)
        except (TurnLost, Refused) as why:
            self._tell.unpublished(turn, why)
            raise
        self._failures = 0
        self._tell.published(turn)

    def _over(self, *, failed: bool) -> None:
        """Nothing is taken any more."""
        self._me = rules.over(self._me)
        if failed:
            self._failures += 1
            self.counts["failed"] += 1
        self._quiet.set()
        self._bell.set()

    # -- the watch

    def _lose(self, reason: StopReason) -> None:
        if self._body is not None:
            turn, task = self._body
            if turn.lost is None:
                turn.lost = reason
                self.counts[reason] += 1
                self._tell.lost(turn)
                task.cancel()

    def _may_begin(self) -> bool:
        """Not with a role that cannot be told, which ends no body: who has become primary may have rechecked, and act as one by now."""
        return (health := self._look()) is not None and health.role != "primary"

    def _look(self) -> Health | None:
        try:
            health = self._health()
            if not isinstance(health, Health):
                raise TypeError(f"health() returns a Health, not {type(health).__name__}")
        except Exception as error:
            # Nothing is known to have changed; without reports this replica soon counts as down.
            self._tell.complain("health", "The health of %s cannot be told: %s", error, trace=not isinstance(error, TocsinError))
            return None
        self._known = health
        return health

    async def _watch(self, turn: Turn) -> None:
        try:
            while turn.lost is None:
                primary = (self._look() or self._known).role == "primary"
                reason = rules.must_stop(self._me, self._steady(), primary=primary, spare=self._grace)
                if reason is None:
                    await self._clock.sleep(max(0.0, min(TICK, turn.until - self._grace - self._steady())))
                else:
                    self._lose(reason)
        except BaseException:
            # Nobody would end the body at its limit. One that has ended is not lost by this.
            self._lose("stopped")
            raise
        await self._clock.sleep(turn.remaining() + TICK)
        log.error("The body of turn %d goes on beyond its limit", turn.epoch, extra={"action": "turn_overrun"})

    # -- the reports

    async def _run(self) -> None:
        try:
            await self._publisher.catch_up()
            while True:
                self._bell.clear()
                if await self._report(self._timeout):
                    await self._rest(self._pause)
        except TocsinError as problem:
            if self._waiter is None or self._waiter.done():
                # Else it is the caller's to tell.
                log.error("Replica %s takes no part: %s", self.node, problem, extra={"action": "turn_participant_ended"})
            self._fail(problem)
        except asyncio.CancelledError:
            if not self._ended:
                self._fail(TocsinError("the participant's task was cancelled by its application"))
            raise
        except Exception as error:
            log.exception("The participant failed", extra={"action": "turn_participant_failed"})
            self._fail(TocsinError(f"the participant failed: {type(error).__name__}"))

    def _fail(self, problem: TocsinError) -> None:
        # Where in here it came up says nothing to the caller, and what it came from says the same again.
        problem.__cause__, problem.__suppress_context__ = None, True
        self._problem = problem.with_traceback(None)
        self._lose("stopped")
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(problem)

    async def _rest(self, seconds: float) -> None:
        """Until so many seconds are over, or something is to be told."""
        both = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._bell.wait())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in both:
                each.cancel()

    async def _report(self, timeout: float) -> bool:
        """Report once. False: report again at once."""
        health = self._look()
        if health is None:
            return True
        now = self._steady()
        self._me = rules.asking(self._me, now)
        seq, held, wanted = self._me.seq, self._me.held, self._waiter is not None and not self._waiter.done()
        body = {
            "seq": seq,
            "role": health.role,
            "term": health.term,
            "applied": health.applied,
            "lag": health.lag,
            "load": health.load,
            "failures": self._failures,
            "last_checkpoint": self.last_checkpoint,
            "taking": None if held is None else {"epoch": held.epoch},
            "mono_ms": int(now * 1000),
            "ready": wanted,
            "incarnation": self._incarnation,
        }
        self.counts["reports"] += 1
        try:
            async with asyncio.timeout(timeout):
                said = await self._client.call("POST", self._path("replicas", self.node, "report"), body)
            answer = self._read(said)
        except PASSING as passing:
            self._me = rules.unanswered(self._me)
            self.counts["unanswered"] += 1
            self._tell.complain("unanswered", "A report of %s was not answered: %s", passing)
            return True
        except Refused as refused:
            self._me = rules.unanswered(self._me)
            return await self._refused(refused)
        self._tell.answered()
        self._in = self._registered = True
        if seq > STEADY:
            self._lives = 0
        self._act(seq, answer)
        return True

    def _act(self, seq: int, answer: ReportReply) -> None:
        waiter = self._waiter
        may = waiter is not None and not waiter.done() and self._may_begin()
        self._me, decision = rules.answered(self._me, seq, answer, self._steady(), may=may, spare=self._grace)
        match decision:
            case BeginTurn(held):
                assert waiter is not None
                self._quiet.clear()
                waiter.set_result(Turn(held, self._steady))
                # The app learns at once that it is taken.
                self._bell.set()
            case StopTurn(reason):
                self._lose(reason)
            case None if may and answer.turn is not None and answer.turn[0] > self._me.begun:
                self.counts["short"] += 1
                self._tell.too_short(*answer.turn, self._grace)

    def _read(self, said: Any) -> ReportReply:
        try:
            turn = said["turn"]
            self._pause = min(max(float(said["report_ms"]) / 1000, 0.1), 3600)
            given = None if turn is None else (int(turn["epoch"]), float(turn["limit_ms"]) / 1000)
            return ReportReply(given, frozenset(int(epoch) for epoch in said["revoked"]))
        except (KeyError, TypeError, ValueError):
            raise Unreadable("the answer to a report is not what this API gives") from None

    async def _refused(self, refused: Refused) -> bool:
        self.counts["refused"] += 1
        if self._me.seq == 1:
            # Nothing of it is stored: a second report would be nobody's.
            self._me = rules.anew(self._me)
        elif refused.code == "unknown-replica":
            # A new life must not begin while the old one takes something.
            self._lose("forgotten")
            await self._quiet.wait()
            # One whose registration never got through shows nothing.
            self._me, self._lives, self._registered = rules.anew(self._me), self._lives + self._registered, False
            if self._lives > DISPUTED:
                raise NameInUse(f"another process reports as replica {self.node!r} of this fleet") from refused
            return False
        if isinstance(refused, _LASTING) and not self._in:
            raise unwelcome(refused, self.fleet)
        self._tell.complain(refused.code, "A report of %s was refused: %s", refused)
        return True

    def _path(self, *parts: str) -> str:
        return "/".join(("fleets", quote(self.fleet, safe=""), *(quote(part, safe="") for part in parts)))
