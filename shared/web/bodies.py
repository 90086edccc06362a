"""Bounds what large bodies may take of a process: their bytes in memory, and the time for which they keep the event loop."""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from itertools import count
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter

from ..core.errors import Problem
from .json_spans import Malformed, ParseSteps, Span, array_elements, finish, lines
from .parsing import LARGE, MAX_DEPTH, load_json, parse_in_steps, parse_json, parse_json_in_steps, parse_small
from .problem import invalid, unreadable

MAX_IN_WORK = 48 * 1024 * 1024
"""Most bytes of bodies that a process works on at once. Parsed and stored, each byte takes about three."""
BUSY_RETRY = 2
"""Seconds after which a caller may repeat a request that was refused because of `MAX_IN_WORK`."""
REST = 10
"""Turns of the event loop between two steps, in which no body is read. A call takes several turns for each answer of storage. While nothing
else runs, ten turns take 20 us, so they hardly delay the body itself."""
PACE = 16 * 1024
"""Bytes of a body that are parsed before other tasks may run."""
ELEMENT_COST = 1024
"""Bytes that an element counts for in addition to its own: an error takes longer to describe than a short element to parse."""
WHOLE = 64 * 1024
"""Largest body in bytes that is read in one step, whatever it holds: up to 15 ms."""
SMALL = 256 * 1024
"""Largest body in bytes that is parsed only to describe its fault."""
FINDING_COST = 128
"""Bytes that are added to the size of each element while elements are found, for the work that does not depend on its size."""


class BodyBudget:
    """Counts the bytes of bodies in work. One per process."""

    def __init__(self, limit: int = MAX_IN_WORK) -> None:
        self._limit, self._in_work = limit, 0

    def take(self, size: int) -> None:
        """Count a body of `size` bytes until `release`. Raises 503 `busy` if there is no room for it; an only body always has room."""
        if self._in_work and self._in_work + size > self._limit:
            detail = "Too many large requests are being served; nothing was changed. Repeat the call after Retry-After."
            raise Problem(503, "busy", detail, headers={"retry-after": str(BUSY_RETRY)})
        self._in_work += size

    def release(self, size: int) -> None:
        """Count a body no longer."""
        self._in_work -= size


_born = count()


class Reader:
    """A call that reads a body, or does other long work, in several steps. Its age counts from the making of the object."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = next(_born)
        """Smaller than the number of every younger reader."""


type _Asked = tuple[int, int, asyncio.Future[None]]
"""A step that was asked for: the number of its reader, its own number, and its turn."""


class _Turns:
    """Gives the turns of one event loop to the steps of its readers.

    Every second turn goes to the oldest reader that waits, so that of bodies that come together the first is stored while the others are
    read. The turns between go to the reader that has waited longest, so that nobody waits more than twice as long as in a plain circle.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], _Asked] = {}
        """The steps that wait, by their turns, in the order in which they were asked for."""
        self._by_age: list[_Asked] = []
        """A heap of the steps that wait, those of the oldest reader first, and of some steps that no longer wait."""
        self._numbers = count()
        self._resting = self._oldest_next = False

    async def take(self, reader: Reader) -> None:
        """Wait for a turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = asked = (reader.number, next(self._numbers), turn)
        heappush(self._by_age, asked)
        if not self._resting:
            self._resting = True
            self._rest(REST)
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.pop(turn, None)
            raise

    def _rest(self, left: int) -> None:
        """Leave `left` turns of the event loop to everything else, then give the next one to a reader, for as long as any waits."""
        if not left:
            self._give()
            left = REST
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._rest, left - 1)
        else:
            self._resting = False
            self._by_age.clear()

    def _give(self) -> None:
        while self._waiting:
            turn = self._oldest() if self._oldest_next else next(iter(self._waiting))
            del self._waiting[turn]
            # One that was just cancelled leaves its turn to another.
            if not turn.done():
                turn.set_result(None)
                self._oldest_next = not self._oldest_next
                break
        if len(self._by_age) > 2 * len(self._waiting) + REST:
            self._by_age = list(self._waiting.values())
            heapify(self._by_age)

    def _oldest(self) -> asyncio.Future[None]:
        while True:
            *_, turn = heappop(self._by_age)
            if turn in self._waiting:
                return turn


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


async def take_turn(reader: Reader | None = None) -> None:
    """Let other tasks run, and return in a turn of the event loop that no other body has. reader: takes the turn; None: a new one.

    However many bodies are being read, one of them does one step, and everything else has the next `REST` turns. They are turns and not a
    time on a clock, so that code that waits for an idle loop does not find one while a body is being read.
    """
    await _turns.setdefault(asyncio.get_running_loop(), _Turns()).take(reader or Reader())


async def in_turns[T](steps: ParseSteps[T], size: int, reader: Reader | None = None) -> T:
    """Run the steps of a body or element of `size` bytes and return their result: each step in a turn of its own, unless it is small."""
    if size <= LARGE:
        return finish(steps)
    reader = reader or Reader()
    while True:
        await take_turn(reader)
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


async def parse_whole[T](adapter: TypeAdapter[T], raw: bytes) -> T:
    """Return `raw` as the type of `adapter`. Raises 422."""
    if len(raw) <= WHOLE:
        return parse_json(adapter, raw)
    return await in_turns(parse_json_in_steps(adapter, raw), len(raw))


async def parse_body[T](adapter: TypeAdapter[T], raw: bytes, opaque: str, reader: Reader | None = None) -> tuple[T, bytes | None]:
    """Return `raw` as the type of `adapter`, and one member of it as sent; see `parsing.parse_in_steps`. Raises 422."""
    if len(raw) <= LARGE and (found := parse_small(adapter, raw, opaque)) is not None:
        return found
    return await in_turns(parse_in_steps(adapter, raw, opaque), len(raw), reader)


class Pace:
    """Lets other tasks run after every `PACE` bytes of work.

    cost: bytes that each element counts for in addition to its own. reader: the one that does the work; None: a new one.
    """

    def __init__(self, cost: int = ELEMENT_COST, reader: Reader | None = None) -> None:
        self.reader = reader or Reader()
        self._cost, self._done = cost, 0

    def is_over(self, size: int) -> bool:
        """Count `size` bytes of an element; return True if the caller must await `take_turn` for `reader` now.

        For loops whose elements take microseconds, where awaiting `spend` for each would be slow.
        """
        self._done += size + self._cost
        if self._done < PACE:
            return False
        self._done = 0
        return True

    async def spend(self, size: int) -> None:
        """Count `size` bytes of an element, and pause if it is time."""
        if self.is_over(size):
            await take_turn(self.reader)


async def element_spans(raw: bytes, most: int, *, by_line: bool, reader: Reader | None = None) -> list[Span]:
    """Return the places of the elements of a JSON array, or of the lines of JSON lines, without parsing them.

    Raises 422 `malformed-json` if the text is not an array, and 413 for more than `most` elements.
    """
    found: list[Span] = []
    pace = Pace(FINDING_COST, reader)
    if not by_line and raw[:1] != b"[" and not raw.lstrip(b" \t\n\r").startswith(b"["):
        # A large document is not read only to say what is wrong with it.
        if len(raw) <= SMALL:
            load_json(raw)
        raise invalid("", "must be an array of events")
    try:
        for span in lines(raw) if by_line else array_elements(raw, MAX_DEPTH):
            if span is None:
                await take_turn(pace.reader)
                continue
            if len(found) == most:
                raise Problem(413, "content-too-large", f"The body has more than {most:,} events. Send several batches.")
            found.append(span)
            if pace.is_over(span.end - span.start):
                await take_turn(pace.reader)
    except Malformed as wrong:
        raise unreadable("malformed-json", f"The body is not a JSON array: {wrong}.") from None
    return found
