"""Plays recorded requests again, by a bare client: what the emulator's one thread takes for them, without an app.

Requests of one group (a tenant) keep their order. One that began right after another of its group had been answered begins at once when
that one is answered; all others begin at their recorded time, because a clock or a caller made them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from shared.storage.azure.connections import AccountConnections, NotSent

from .recorder import Request

THINK = 0.05
"""Longest time in seconds between an answer and a request that it has caused."""
MOST = 16
"""Open connections to a port at most. One thread is not faster with more, and node accepts one in each turn of its loop: beside many
requests in flight, those on new connections would wait for seconds."""
PATIENCE = 300.0
"""Longest time in seconds for a request, the wait for a connection included."""
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *\d+")
_MATCH = re.compile(rb"If-Match: W/[^\r]*")


@dataclass(frozen=True, slots=True)
class Step:
    """A request to play. at: seconds after the start. after: index of the step that it follows; None if there is none.

    caused: True if it begins as soon as that step is answered, else also not before `at`.
    """

    port: int
    raw: bytes
    at: float
    after: int | None
    caused: bool


@dataclass(slots=True)
class Played:
    """The seconds that each step took, and the status of its answer; 0 for a request that was not answered."""

    took: list[float]
    statuses: list[int]


@dataclass(frozen=True, slots=True)
class Errand:
    """A request to a server that is no storage, sent once a step is answered and its time has come. at: seconds after the start."""

    url: str
    raw: bytes
    at: float


@dataclass(slots=True)
class _Group:
    """The steps of a group so far, with the times of their answers."""

    ends: list[tuple[float, int]] = field(default_factory=list)

    def before(self, began: float) -> tuple[float, int] | None:
        """Return the last answer before this time, with its step."""
        return max((each for each in self.ends if each[0] <= began), default=None)


def plan(
    requests: Sequence[Request], start: float, group_of: Callable[[bytes], str], latest: Mapping[int, float] = MappingProxyType({})
) -> list[Step]:
    """Return the steps of a recording. start: its monotonic time. group_of: returns "" for a request that belongs to no group.

    latest: monotonic time at which a request begins at the latest; a recorded one that is later was made to wait.
    """
    groups: dict[str, _Group] = {}
    steps: list[Step] = []
    for number, request in enumerate(requests):
        name = group_of(request.raw)
        group = groups.setdefault(name, _Group()) if name else _Group()
        last = group.before(request.began)
        group.ends.append((request.ended, number))
        caused = last is not None and request.began - last[0] < THINK
        at = min(request.began, latest.get(number, request.began)) - start
        steps.append(Step(request.port, unconditional(request.raw), at, None if last is None else last[1], caused))
    return steps


def in_order(requests: Sequence[Request], group_of: Callable[[bytes], str]) -> list[Step]:
    """Return steps that play each group one after the other as fast as they are answered, all groups side by side."""
    last: dict[str, int] = {}
    steps: list[Step] = []
    for number, request in enumerate(requests):
        name = group_of(request.raw)
        steps.append(Step(request.port, unconditional(request.raw), 0.0, last.get(name), True))
        last[name] = number
    return steps


def unconditional(raw: bytes) -> bytes:
    """Return a request that changes a row whatever its ETag is: that of the recording is none of the rows of a new emulator."""
    changed = _MATCH.sub(b"If-Match: *", raw)
    head, end, body = changed.partition(b"\r\n\r\n")
    return _LENGTH.sub(b"\r\nContent-Length: %d" % len(body), head, count=1) + end + body


async def play(
    steps: Sequence[Step],
    ports: Mapping[int, int],
    errands: Mapping[int, Sequence[Errand]],
    start: float,
) -> Played:
    """Play the steps. ports: the present port for each recorded one. errands: those that each step allows. start: monotonic time."""
    player = _Player(steps, ports, errands, start)
    try:
        return await player.play()
    finally:
        await player.close()


class _Player:
    def __init__(
        self,
        steps: Sequence[Step],
        ports: Mapping[int, int],
        errands: Mapping[int, Sequence[Errand]],
        start: float,
    ) -> None:
        self._steps, self._errands, self._start = steps, errands, start
        self._urls = {old: f"http://127.0.0.1:{port}" for old, port in ports.items()}
        self._connections: dict[str, AccountConnections] = {}
        self._next: dict[int, list[int]] = {}
        for number, step in enumerate(steps):
            if step.after is not None:
                self._next.setdefault(step.after, []).append(number)
        self._played = Played([0.0] * len(steps), [0] * len(steps))

    async def play(self) -> Played:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for number, step in enumerate(self._steps):
                if step.after is None:
                    tasks.create_task(self._step(number))
        return self._played

    async def close(self) -> None:
        for each in self._connections.values():
            await each.close()

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, self._start + at - time.monotonic()))

    async def _step(self, number: int) -> None:
        step = self._steps[number]
        if not step.caused:
            await self._until(step.at)
        began = time.monotonic()
        self._played.statuses[number] = await self._send(self._urls[step.port], step.raw)
        self._played.took[number] = time.monotonic() - began
        for errand in self._errands.get(number, ()):
            self._tasks.create_task(self._run(errand))
        for follower in self._next.get(number, ()):
            self._tasks.create_task(self._step(follower))

    async def _run(self, errand: Errand) -> None:
        await self._until(errand.at)
        await self._send(errand.url, errand.raw)

    async def _send(self, url: str, raw: bytes) -> int:
        connections = self._connections.get(url)
        if connections is None:
            # The emulator closes unused connections after 5 s.
            connections = self._connections[url] = AccountConnections(url, most=MOST, kept=4.0, connect=3.0)
        try:
            answer, _ = await connections.exchange(raw, PATIENCE, time.monotonic)
        except (NotSent, OSError):
            return 0
        return answer.status or 0
