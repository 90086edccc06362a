"""The emulator: the world, a clock that moves it, and its HTTP servers. It belongs to one event loop."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from typing import Any, Self

from ...core.clock import Clock, Millis, SystemClock
from . import rules
from .http_server import ControlServer, MetadataServers
from .metadata_service import ImdsAnswer, ImdsRequest, ask
from .model import Happening, ImdsEvent, World
from .scenario import Scenario, StepSpec, steps_of

MAX_HISTORY = 10_000
"""Lines of the log that are kept."""
_NEWS = tuple(each.name for each in fields(World) if each.name not in ("now", "log"))


class Emulator:
    """A metadata service for each machine of a scenario, each on its own port, and a control API on another port.

    ::

        async with Emulator(scenario_of({"vms": [{"name": "n1"}]})) as imds:
            agent = start_agent(imds.url("n1"))
            imds.do({"event": {"name": "update", "vms": ["n1"], "notice": "PT5S"}})
            await imds.until(lambda world: imds.event("update").approved_at is not None)

    `clock`: pass a `SettableClock` to move time in the test. `speed` divides the scenario's durations. `port`: port of the first
    machine, the others follow; 0 chooses free ports. Only the machines' servers listen on `host`; the control API always listens on the
    loopback address.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        clock: Clock | None = None,
        speed: float = 1.0,
        seed: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        control_port: int = 0,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self._start, self._zero = self.clock.now(), self.clock.monotonic()
        self._world = rules.initial_world(scenario, self._start, speed=speed, seed=uuid.uuid4().hex if seed is None else seed)
        self._machines = MetadataServers(self, list(self._world.vms), host, port)
        self._control = ControlServer(self, control_port)
        self._listeners: list[Callable[[Happening], None]] = []
        self._ticker: asyncio.Task[None] | None = None
        self._news, self._turn = asyncio.Event(), asyncio.Event()
        self.history: deque[Happening] = deque(maxlen=MAX_HISTORY)
        """Lines of the log, oldest first."""

    async def __aenter__(self) -> Self:
        try:
            await self._machines.start()
            await self._control.start()
        except BaseException:
            await self.close()
            raise
        self._ticker = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop listening, and cancel running requests."""
        if self._ticker is not None:
            self._ticker.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticker
        await self._machines.close()
        await self._control.close()

    @property
    def world(self) -> World:
        """The present world."""
        self._put(rules.tick(self._world, self.now()))
        return self._world

    @property
    def urls(self) -> dict[str, str]:
        """Base URL of each machine, without a path. It replaces `http://169.254.169.254`."""
        return self._machines.urls

    @property
    def control_url(self) -> str:
        """Base URL of the control API."""
        return self._control.url

    def url(self, vm: str) -> str:
        """Return the base URL of a machine."""
        return self.urls[vm]

    def now(self) -> Millis:
        """Return the emulator's time. It does not step back when the system clock is set back."""
        return self._start + int((self.clock.monotonic() - self._zero) * 1000 + 1e-6)

    def listen(self, listener: Callable[[Happening], None]) -> None:
        """Call `listener` with each line of the log: the lines so far, and all later ones."""
        for line in self.history:
            listener(line)
        self._listeners.append(listener)

    def do(self, step: StepSpec | dict[str, Any]) -> None:
        """Perform a step of a scenario now, or after its `at`. Raises `Problem` if it is malformed or cannot be done."""
        self.do_all(steps_of(step) if isinstance(step, dict) else [step])

    def do_all(self, steps: list[StepSpec]) -> None:
        """Perform several steps as one: if one raises `Problem`, none was done."""
        self._put(rules.inject_steps(self.world, steps))

    def ask(self, vm: str, request: ImdsRequest) -> ImdsAnswer:
        """Return the answer to a machine's request."""
        world, answer = ask(self.world, vm, request)
        self._put(world)
        return answer

    def event(self, name: str) -> ImdsEvent:
        """Return the first event of that name, listed or ended. Raises KeyError if there is none."""
        world = self.world
        for event in (*world.events, *world.ended):
            if event.name == name:
                return event
        raise KeyError(name)

    async def until(self, done: Callable[[World], bool], timeout: float = 60.0) -> World:
        """Wait until `done(world)` is True. Raises TimeoutError after `timeout` seconds of real time."""
        async with asyncio.timeout(timeout):
            while not done(world := self.world):
                await self._news.wait()
        return world

    async def news(self, after: int, timeout: float) -> list[Happening]:
        """Return the lines of the log after number `after` as soon as there are any; none after `timeout` seconds of real time."""
        with suppress(TimeoutError):
            await self.until(lambda world: world.happened > after, timeout)
        return [line for line in self.history if line.number > after]

    def _put(self, world: World) -> None:
        old = self._world
        self._world, lines = rules.take_log(world)
        self.history.extend(lines)
        for line in lines:
            for listener in self._listeners:
                listener(line)
        # A change of the time alone wakes no waiter: waiters read the world, which moves its time, and would wake each other for ever.
        if any(getattr(world, name) is not getattr(old, name) for name in _NEWS):
            news, self._news = self._news, asyncio.Event()
            news.set()
        # A request that only changes a counter does not change the next due time, and a thousand machines send many requests.
        if lines or world.planned is not old.planned:
            self._turn.set()

    async def _tick(self) -> None:
        """Do what is due at its time, also without requests."""
        while True:
            due = rules.next_due(self.world)
            self._turn.clear()
            waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._turn.wait())]
            if due is not None:
                waits.append(asyncio.ensure_future(self.clock.sleep((due - self.now()) / 1000)))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
