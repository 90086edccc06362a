"""Sends recorded requests again with a bare client, to measure what they cost the emulator without an app.

Requests of one group, such as a tenant, keep their order. A request that came right after an answer of its group was caused by it, and is
sent as soon as that answer arrives. All others were caused by a clock or a caller, and are sent at their recorded time.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from shared.storage.azure.connections import AccountConnections, NotSent
from shared.storage.azure.transport import EMULATOR_CONNECTIONS

from .recorder import Request

CAUSED_WITHIN = 0.05
"""Longest time in seconds from an answer to a request that it caused."""
REQUEST_TIMEOUT = 300.0
"""Longest time in seconds for a request, including the wait for a connection."""
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *\d+")
_MATCH = re.compile(rb"If-Match: W/[^\r]*")


@dataclass(frozen=True, slots=True)
class Step:
    """A request to send.

    at: seconds after the start. after: index of the step whose answer it waits for; None if there is none. caused: True if it is sent as
    soon as that answer arrives; otherwise it waits for `at` too.
    """

    port: int
    raw: bytes
    at: float
    after: int | None
    caused: bool


@dataclass(slots=True)
class Played:
    """The seconds that each step took, and the status of its answer; 0 without an answer."""

    took: list[float]
    statuses: list[int]


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A request to another server, sent when a step is answered but not before `at`. at: seconds after the start."""

    url: str
    raw: bytes
    at: float


@dataclass(slots=True)
class _Group:
    """The answers to the steps of a group so far. ends: monotonic time of each answer, and the number of its step."""

    ends: list[tuple[float, int]] = field(default_factory=list)

    def before(self, began: float) -> tuple[float, int] | None:
        """Return the time of the last answer until `began`, and the number of its step; None if there is none."""
        return max((each for each in self.ends if each[0] <= began), default=None)


def plan(
    requests: Sequence[Request], start: float, group_of: Callable[[bytes], str], latest: Mapping[int, float] = MappingProxyType({})
) -> list[Step]:
    """Return the steps that send a recording's requests at their times.

    start: monotonic time of the recording's start. group_of: returns a request's group, "" for none. latest: monotonic time, by the number
    of a request, at which it is sent although it was recorded later.
    """
    groups: dict[str, _Group] = {}
    steps: list[Step] = []
    for number, request in enumerate(requests):
        name = group_of(request.raw)
        group = groups.setdefault(name, _Group()) if name else _Group()
        last = group.before(request.began)
        group.ends.append((request.ended, number))
        caused = last is not None and request.began - last[0] < CAUSED_WITHIN
        at = min(request.began, latest.get(number, request.began)) - start
        steps.append(Step(request.port, unconditional(request.raw), at, None if last is None else last[1], caused))
    return steps


def in_order(requests: Sequence[Request], group_of: Callable[[bytes], str]) -> list[Step]:
    """Return steps that send the requests of each group one after the other without pauses, all groups at the same time."""
    last: dict[str, int] = {}
    steps: list[Step] = []
    for number, request in enumerate(requests):
        name = group_of(request.raw)
        steps.append(Step(request.port, unconditional(request.raw), 0.0, last.get(name), True))
        last[name] = number
    return steps


def unconditional(raw: bytes) -> bytes:
    """Return the request with `If-Match: *`: rows of another emulator have other ETags than those that were recorded."""
    changed = _MATCH.sub(b"If-Match: *", raw)
    head, end, body = changed.partition(b"\r\n\r\n")
    return _LENGTH.sub(b"\r\nContent-Length: %d" % len(body), head, count=1) + end + body


async def play(
    steps: Sequence[Step],
    ports: Mapping[int, int],
    follow_ups: Mapping[int, Sequence[FollowUp]],
    start: float,
) -> Played:
    """Send the requests of the steps.

    ports: the emulator's port now, for each recorded one. follow_ups: those of each step, by its number. start: monotonic time.
    """
    player = _Player(steps, ports, follow_ups, start)
    try:
        return await player.play()
    finally:
        await player.close()


class _Player:
    """Sends the requests of steps, all groups at the same time."""

    def __init__(
        self,
        steps: Sequence[Step],
        ports: Mapping[int, int],
        follow_ups: Mapping[int, Sequence[FollowUp]],
        start: float,
    ) -> None:
        self._steps, self._follow_ups, self._start = steps, follow_ups, start
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
        """Send a step's request; after its answer, start the requests that wait for it."""
        step = self._steps[number]
        if not step.caused:
            await self._until(step.at)
        began = time.monotonic()
        self._played.statuses[number] = await self._send(self._urls[step.port], step.raw)
        self._played.took[number] = time.monotonic() - began
        for follow_up in self._follow_ups.get(number, ()):
            self._tasks.create_task(self._follow_up(follow_up))
        for follower in self._next.get(number, ()):
            self._tasks.create_task(self._step(follower))

    async def _follow_up(self, follow_up: FollowUp) -> None:
        await self._until(follow_up.at)
        await self._send(follow_up.url, follow_up.raw)

    async def _send(self, url: str, raw: bytes) -> int:
        connections = self._connections.get(url)
        if connections is None:
            # The emulator closes unused connections after 5 s.
            connections = self._connections[url] = AccountConnections(url, most=EMULATOR_CONNECTIONS, kept=4.0, connect=3.0)
        try:
            answer, _ = await connections.exchange(raw, REQUEST_TIMEOUT, time.monotonic)
        except (NotSent, OSError):
            return 0
        return answer.status or 0
