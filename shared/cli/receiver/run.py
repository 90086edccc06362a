"""One run of the checks: what is sent, in which order and how fast."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final
from urllib.parse import quote

from . import requests
from .endpoint import CertificateRefused, Endpoint, EndpointUnreachable, Link, Received, exchange, unreached
from .plan import FIRST_COUNT_READS, Check, CheckPlan
from .requests import STRANGER, TOKEN_PATH, Requests, Wire, wire_of
from .seen import Certificate, IdleConnection, Observed, ReceiverSeen, Step

LONGEST_SKEW: Final = 7 * 86_400.0
"""Difference in seconds beyond which a `Date` is not taken for a clock's time."""
WRONG_CLOCK: Final = 60.0
"""Seconds of difference from which a refused delivery is sent again with the receiver's time."""
UNUSED: Final = 5.0
"""Seconds of difference from which old and future time stamps are chosen so that they are wrong by the clock of the answers, too."""
COPIES: Final = 5
PIECES: Final = 6
SMALLER: Final = (128 * 1024, 32 * 1024)
"""Sizes that are tried where the largest payload is refused."""
_LOST_IN_A_ROW: Final = 3
_CLOSES_AT_ONCE: Final = 0.3
"""Seconds after an answer within which a closed connection counts as closed by it."""

_ALL_OPEN: Final = 1.0
"""Seconds for which a copy waits until the connections of the others are made."""

type Progress = Callable[[str], None]
type Opens = Callable[[], Awaitable[Link]]
"""Returns the connection for a request, once the request may be sent: none waits unused for its turn."""


class EndsEarly(Exception):
    """Ends a run whose further checks would say nothing. Its text is the reason."""


class ReceiverRun:
    """Sends the requests, and keeps what was seen even if it ends early."""

    def __init__(self, endpoint: Endpoint, made: Requests, payload: bytes, seen: ReceiverSeen, plan: CheckPlan, progress: Progress) -> None:
        self.seen, self._endpoint, self._made, self._payload = seen, endpoint, made, payload
        self._plan, self._progress = plan, progress
        self._next_at = 0.0
        self._lost = 0
        self._kept: Link | None = None
        """The connection of the first two deliveries, which is then left unused."""
        self._count: tuple[Endpoint, str] | None = None
        self._settle = plan.settle

    def count_at(self, endpoint: Endpoint, url: str) -> None:
        """Read the effects of an event at this URL, in which `{id}` stands for its id."""
        self._count = endpoint, url

    async def answers_token(self, token: str, url: str) -> str:
        """Return the reason why the endpoint does not show the token; empty if it does. Raises `EndpointUnreachable`."""
        self._progress("reading the token")
        await self._pace()
        wire = self._made.get(url)
        link = await self._connect()
        try:
            found = await link.ask([wire.head], patience=self._plan.patience)
        finally:
            link.close()
        self._note(found)
        if found.seen.status != 200:
            return f"GET {TOKEN_PATH} {found.seen.text}" if found.seen.status else f"GET {TOKEN_PATH}: {found.seen.text}"
        return "" if found.body.strip() == token.encode() else f"GET {TOKEN_PATH} answered another text than the token"

    async def reach(self) -> None:
        """Connect once. Raises `EndpointUnreachable`."""
        (await self._connect()).close()

    async def run(self, checks: Collection[Check]) -> None:
        """Run the checks. What stops them is kept with the observations."""
        late = self._plan.late if {Check.LATE, Check.IDLE} & set(checks) else 0.0
        try:
            async with asyncio.timeout(self._plan.total + late):
                await self._first()
                kept, began = self._kept, time.monotonic()
                # Watched until the delivery over it: it may be closed at any moment.
                idle = asyncio.create_task(kept.watch()) if Check.IDLE in checks and kept is not None and kept.open else None
                try:
                    for check in Check:
                        if check in checks and check not in (Check.LATE, Check.IDLE):
                            self._progress(f"checking {check}")
                            await self._run_check(check)
                    if idle is not None and kept is not None:
                        self._progress("leaving a connection unused")
                        await self._idle(kept, idle, began)
                    if Check.LATE in checks:
                        self._progress("waiting for the late retry")
                        await asyncio.sleep(max(0.0, began + late - time.monotonic()))
                        await self._deliver("late", attempt=3, of="delivery")
                finally:
                    if idle is not None:
                        idle.cancel()
        except TimeoutError:
            self.seen.stopped = f"the run took longer than {self._plan.total + late:g} s"
        except EndsEarly as reason:
            self.seen.stopped = str(reason)
        finally:
            if self._kept is not None:
                self._kept.close()
            # Transports end in the loop's next turn.
            await asyncio.sleep(0)

    async def _first(self) -> None:
        """Send a valid delivery and a second one, over one connection where that is possible."""
        self._progress("sending a first delivery")
        await self._deliver_first()
        if self._kept is not None and self._kept.open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSES_AT_ONCE):
                    await self._kept.watch()
                    self.seen.closed_at_once = True
        second = await self._deliver("second", over=self._connection)
        if second.used and self._kept is not None and not self._kept.open:
            # Without an answer on the kept connection, the service sends at once over another one: the next attempt.
            await self._deliver("second again", over=self._connection, of="second", attempt=2)

    async def _deliver_first(self) -> None:
        first = await self._deliver("delivery", over=self._connection, attempt=4 if self._plan.again else 1)
        if not first.accepted and first.status is not None and self._skew_ms(WRONG_CLOCK):
            self.seen.shift_ms = self._skew_ms(WRONG_CLOCK)
            first = await self._deliver("delivery by its clock", attempt=2, of="delivery")
        if not first.accepted:
            raise EndsEarly("a valid delivery was not accepted")

    async def _run_check(self, check: Check) -> None:
        match check:
            case Check.SIGNATURE:
                await self._signature()
            case Check.TIMESTAMP:
                skew = 0 if self.seen.shift_ms else self._skew_ms(UNUSED)
                for name, away in (("old", min(0, skew) - self._plan.stale * 1000), ("future", max(0, skew) + self._plan.stale * 1000)):
                    # Wrong by this machine's clock and by the one that the answers show, which may be a proxy's.
                    now = self._now() + round(away)
                    await self._send(name, [wire_of(self._made.post(name, self._payload, now))])
            case Check.ROTATION:
                await self._rotation()
            case Check.BYTES:
                await self._deliver("spaced", body=requests.spaced(self._payload))
            case Check.TEXT:
                await self._deliver("text", body=requests.with_text(self._payload))
            case Check.EMPTY:
                await self._deliver("empty", body=b"")
                await self._deliver("null", body=b"null")
            case Check.LARGE:
                await self._large()
            case Check.HEADERS:
                post = self._made.post("longest id", self._payload, self._now(), longest=True)
                await self._send("longest id", [wire_of(post)], id=self._made.id_of("longest id", longest=True))
                post = self._made.post("large header", self._payload, self._now(), padded=True)
                await self._send("large header", [wire_of(post)])
            case Check.SLOW:
                await self._slow()
            case Check.DUPLICATES:
                await self._deliver("duplicate", attempt=2, of="delivery")
            case Check.PARALLEL:
                wires = [wire_of(self._made.post("parallel", self._payload, self._now(), attempt=each + 1)) for each in range(COPIES)]
                await self._send("parallel", wires)
            case Check.CE_ID:
                post = self._made.post("delivery", self._payload, self._now(), attempt=2)
                change = {"ce-id": self._made.id_of("other")}
                await self._send("other ce-id", [wire_of(post, change=change)], id=self._made.id_of("delivery"))
            case _:
                raise AssertionError(check)

    async def _signature(self) -> None:
        now = self._now()
        forged = self._made.post("forged", self._payload, now, secrets=[STRANGER])
        await self._send("forged", [wire_of(forged)])
        unsigned = self._made.post("unsigned", self._payload, self._now(), secrets=[])
        await self._send("unsigned", [wire_of(unsigned)])
        changed = self._made.post("changed", self._payload, self._now())
        await self._send("changed", [wire_of(changed, body=requests.changed(self._payload))])
        # The event itself, after somebody has sent its id with a wrong signature.
        await self._deliver("after forged", of="forged")

    async def _rotation(self) -> None:
        for name, secrets in (("right last", (STRANGER, *self._made.secrets[:1])), ("right first", (*self._made.secrets[:1], STRANGER))):
            post = self._made.post(name, self._payload, self._now(), secrets=secrets)
            await self._send(name, [wire_of(post)])
        post = self._made.post("newer scheme", self._payload, self._now())
        signature = f"v1a,{'A' * 86}== {post.headers['webhook-signature']}"
        await self._send("newer scheme", [wire_of(post, change={"webhook-signature": signature})])

    async def _large(self) -> None:
        for number, size in enumerate([self._plan.largest, *(each for each in SMALLER if each < self._plan.largest)]):
            name = "large" if not number else f"large {number}"
            body = requests.padded_to(self._payload, size)
            self.seen.sizes[name] = len(body)
            if (await self._deliver(name, body=body)).accepted:
                return

    async def _slow(self) -> None:
        wire = wire_of(self._made.post("slow", self._payload, self._now()))
        pieces = wire.pieces(PIECES)
        await self._send("slow", [wire], pieces=pieces, pause=self._plan.pieces / max(1, len(pieces) - 1))

    async def _idle(self, link: Link, watching: asyncio.Task[float], began: float) -> None:
        """Send a delivery over the connection once it was unused for long enough, unless the receiver has closed it."""
        await asyncio.wait({watching}, timeout=max(0.0, began + self._plan.idle - time.monotonic()))
        seen = self.seen.idle = IdleConnection(waited=time.monotonic() - began)
        if watching.done():
            seen.closed_after = watching.result()
            return
        watching.cancel()
        await asyncio.wait({watching})

        async def over() -> Link:
            seen.waited = link.unused
            if link.ended:
                seen.closed_after = seen.waited
            return await self._connection()

        await self._deliver("idle", over=over)

    async def _deliver(
        self, name: str, *, body: bytes | None = None, attempt: int = 1, of: str = "", over: Opens | None = None
    ) -> Observed:
        """Send a valid delivery, and return its answer. of: the step whose event is delivered again."""
        event = of or name
        post = self._made.post(event, self._payload if body is None else body, self._now(), attempt=attempt)
        step = await self._send(name, [wire_of(post)], over=over, id=self._made.id_of(event))
        return step.first

    async def _send(
        self,
        name: str,
        wires: Sequence[Wire],
        *,
        id: str = "",
        over: Opens | None = None,
        pieces: Sequence[bytes] = (),
        pause: float = 0.0,
    ) -> Step:
        """Send requests at once, keep the answers as a step, and count the effects around it."""
        event = id or self._made.id_of(name)
        before = await self._read_count(event)
        await self._pace(len(wires))
        if len(wires) > 1:
            found = await self._at_once(wires)
        else:
            found = [await self._over(over, wires[0], pieces, pause)]
        for each in found:
            self._note(each)
        step = self.seen.steps[name] = Step([each.seen for each in found], before=before)
        if before is not None:
            await self._count_effects(name, step, event, before)
        lost = all(each.seen.status is None for each in found)
        self._lost = self._lost + 1 if lost else 0
        if self._lost >= _LOST_IN_A_ROW:
            while_open = ", while an unused connection was open" if self._kept is not None and self._kept.open else ""
            raise EndsEarly(f"{_LOST_IN_A_ROW} requests in a row had no answer{while_open}")
        return step

    async def _at_once(self, wires: Sequence[Wire]) -> list[Received]:
        """Send requests at the same moment: the connections are made before."""
        all_open = asyncio.Barrier(len(wires))

        async def one(wire: Wire) -> Received:
            began, wall = time.monotonic(), time.time()
            try:
                link = await self._endpoint.connect(self._plan.patience)
            except EndpointUnreachable as error:
                return Received(unreached(error, began), {}, b"", False, wall, time.time())
            try:
                # A receiver may serve one connection after the other.
                with contextlib.suppress(TimeoutError, asyncio.BrokenBarrierError):
                    async with asyncio.timeout(_ALL_OPEN):
                        await all_open.wait()
                return await link.ask([wire.head + wire.body], patience=self._plan.patience, since=time.monotonic())
            finally:
                link.close()

        return await asyncio.gather(*map(one, wires))

    async def _over(self, over: Opens | None, wire: Wire, pieces: Sequence[bytes], pause: float) -> Received:
        """Send over this connection, or in pieces over a new one."""
        patience, began, wall = self._plan.patience, time.monotonic(), time.time()
        link: Link | None = None
        try:
            link = await (self._endpoint.connect(patience) if over is None else over())
            return await link.ask(pieces or [wire.head + wire.body], patience=patience, pause=pause)
        except EndpointUnreachable as error:
            return Received(unreached(error, began), {}, b"", False, wall, time.time())
        finally:
            if over is None and link is not None:
                link.close()

    async def _connection(self) -> Link:
        """Return the kept connection, or a new one in its place. Raises `EndsEarly` if none can be made."""
        kept = self._kept
        if kept is not None and kept.open and kept.ended:
            # The receiver has closed it while the rate or the count delayed the request.
            self.seen.closed_unused = kept.unused
            kept.close()
        if kept is None or not kept.open:
            try:
                kept = self._kept = await self._connect()
            except EndpointUnreachable as error:
                raise EndsEarly(str(error)) from None
        return kept

    async def _connect(self) -> Link:
        try:
            link = await self._endpoint.connect(self._plan.patience)
        except CertificateRefused as error:
            self.seen.certificate = Certificate(str(error))
            raise
        self.seen.certificate = link.certificate
        return link

    def _note(self, found: Received) -> None:
        self.seen.requests += 1
        self.seen.offset.observe(found.fields.get("date", ""), found.before, found.after)

    def _skew_ms(self, least: float) -> int:
        """Return by how many milliseconds the receiver's clock is ahead; 0 if it is less than `least` seconds."""
        offset = self.seen.offset
        if not offset.known or (offset.low < least and offset.high > -least):
            return 0
        skew = (offset.low + offset.high) / 2
        return round(skew * 1000) if abs(skew) < LONGEST_SKEW else 0

    def _now(self) -> int:
        return round(time.time() * 1000) + self.seen.shift_ms

    async def _pace(self, count: int = 1) -> None:
        """Wait until `count` requests may be sent."""
        now = time.monotonic()
        at = max(now, self._next_at)
        self._next_at = at + count / self._plan.rate
        await asyncio.sleep(at - now)

    async def _count_effects(self, name: str, step: Step, event: str, before: int) -> None:
        prompt = await self._read_count(event)
        if prompt is None:
            return
        step.prompt = prompt - before
        settled: int | None = prompt
        if name == "delivery" and prompt == before and step.first.accepted:
            began = time.monotonic()
            for _ in range(FIRST_COUNT_READS - 2):
                await asyncio.sleep(self._plan.longest_settle / FIRST_COUNT_READS)
                settled = await self._read_count(event)
                if settled is None or settled != before:
                    break
            lag = time.monotonic() - began
            if settled is not None and settled != before:
                # Later effects take as long, or longer.
                step.lag, self._settle = lag, max(self._settle, 2 * lag)
        else:
            await asyncio.sleep(self._settle)
            settled = await self._read_count(event)
        if settled is not None:
            step.done = settled - before

    async def _read_count(self, event: str) -> int | None:
        """Return the count of an event's effects; None if it is not read, or cannot be."""
        if self._count is None or self.seen.count_error:
            return None
        endpoint, url = self._count
        await self._pace()
        wire = self._made.get(url.replace("{id}", quote(event, safe="")))
        found = await exchange(endpoint, wire, patience=self._plan.patience)
        self.seen.requests += 1
        count = requests.read_count(found.body) if found.seen.status == 200 and found.whole else None
        if found.seen.status != 200:
            self.seen.count_error, self.seen.count_throttled = found.seen.text, found.seen.throttled
        elif count is None:
            self.seen.count_error = "the answer is neither a number, nor a short list, nor an object with `count`"
        return count
