"""The hosts of an app: one for all functions, or one for each group that scales together on Flex Consumption, or as many as its controller
wants.

Each group has hosts (`devhost.host.instance`). A host that storage ends is followed by another after a while. By the rules of Flex
(`devhost.flex`), a group begins with no host and goes back to none when it has been idle: a request, the controller's look at the queue, or
the time of a tick starts one.
"""

import asyncio
import contextlib
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.storage.queue.aio import QueueServiceClient

from devhost.flex import FlexRules, RefusalRules, goes_away, starts_for_tick, wanted_instances
from devhost.host.http import HttpFunctions
from devhost.host.instance import HostInstance, HostParts
from devhost.host.settings import connection, resolve
from devhost.host.timers import Timer, TimerFunctions
from devhost.worker.model import AppIndexError, FunctionInfo, InvocationResult, Trace, TypedValue
from devhost.worker.pool import HTTP

log = logging.getLogger("devhost.groups")

START_TAKES = 5.0
"""Seconds that a start takes on a busy machine, beside `cold`: the controller's reserve before a tick."""
DRAIN_FOR = 10.0
"""Seconds that running invocations get when an instance goes away: those of the Functions host."""
AGAIN_FAILED = 5.0
"""Seconds until the next try when a host cannot start."""

type Pause = Callable[[], Awaitable[None]]


class HostGroup:
    """The hosts of the functions that share processes; an `Invoker`."""

    def __init__(self, name: str, functions: list[FunctionInfo], parts: HostParts, down: Pause, up: Pause) -> None:
        """name: of the group, and of the worker process of its first host. down, up: called when no host of it serves, and when one does
        again."""
        self.name, self.functions, self._parts, self._down, self._up = name, functions, parts, down, up
        self._hosts: dict[int, HostInstance] = {}
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._leaving: set[int] = set()
        """Numbers of hosts that go away. Until then, another host must not have the name of their worker processes."""
        self._duties: set[asyncio.Task[None]] = set()
        self._cuts: set[asyncio.Task[None]] = set()
        self._awake = asyncio.Event()
        self._stopping = False

    @property
    def serves_requests_alone(self) -> bool:
        """True if the group has neither queue functions nor timers."""
        return all(function.trigger["type"] == "httpTrigger" for function in self.functions)

    @property
    def hosts(self) -> list[HostInstance]:
        """The hosts that serve."""
        return list(self._hosts.values())

    @property
    def wanted(self) -> int:
        """The number of hosts that serve or start."""
        return len(self._hosts.keys() | self._starting.keys())

    async def start(self) -> None:
        """Start the first host; its first call starts its worker process. By the rules of Flex, begin to watch instead."""
        flex = self._parts.flex
        if flex is None or self.name == HTTP:
            # By the rules of Flex too: the process that has indexed the app serves requests.
            await self._open(1, worker=False)
        if flex is None:
            return
        for function in self.functions:
            kind = function.trigger["type"]
            if kind == "queueTrigger":
                place = connection(function.trigger.get("connection", "")), resolve(function.trigger["queueName"])
                self._begin(self._watch_queue(*place, flex))
            elif kind == "timerTrigger":
                [timer] = TimerFunctions(self, [function]).timers
                self._begin(self._watch_ticks(timer, flex))
        self._begin(self._watch_idle(flex))

    async def _open(self, number: int, *, worker: bool, again: bool = False) -> None:
        name = self.name if number == 1 else f"{self.name}#{number}"
        host = HostInstance(name, self.functions, self._parts, lambda host, reason: self._failed(number, host, reason))
        try:
            await host.start(worker=worker, again=again)
        except BaseException:
            await self._cut(host)
            raise
        if self._stopping:
            await self._cut(host)
            return
        self._hosts[number] = host
        self._awake.set()

    # Storage ends a host

    def _failed(self, number: int, host: HostInstance, reason: str) -> None:
        if self._hosts.get(number) is not host or self._stopping:
            return
        del self._hosts[number]
        if not self._hosts:
            self._awake.clear()
        log.error("An unhandled exception has occurred. Host is shutting down (%s): %s", host.name, reason)
        self._starting[number] = self._begin(self._follow(number, host))

    async def _follow(self, number: int, ended: HostInstance) -> None:
        """End a host, and start the next."""
        rules = self._parts.refusals or RefusalRules()
        # A group that has run nothing yet has no worker process.
        used = self._parts.pool.has(ended.name)
        try:
            await self._down()
            await self._cut(ended)
            pause = rules.again
            while not self._stopping:
                await asyncio.sleep(pause)
                try:
                    await self._open(number, worker=used, again=True)
                except AppIndexError as error:
                    log.error("the host of %s cannot be started anew, trying again: %s", self.name, error)
                    pause = AGAIN_FAILED
                    continue
                log.warning("the host of %s was started anew", ended.name)
                await self._up()
                return
        finally:
            self._starting.pop(number, None)

    async def _cut(self, host: HostInstance) -> None:
        async def cut() -> None:
            if names := await host.cut():
                log.warning("cut off with the host of %s: %s", host.name, ", ".join(sorted(names)))

        # It closes connections, so it ends whatever becomes of the caller.
        task = asyncio.create_task(cut())
        self._cuts.add(task)
        task.add_done_callback(self._cuts.discard)
        await asyncio.shield(task)

    async def kill(self) -> int:
        """End all hosts as when their machines fail; return how many. Messages that they had taken stay hidden. Another host follows."""
        found = list(self._hosts.items())
        for number, host in found:
            if self._parts.flex is not None:
                self._remove(number)
                try:
                    await self._cut(host)
                finally:
                    self._leaving.discard(number)
            else:
                self._failed(number, host, "it was killed")
        return len(found)

    # The rules of Flex

    async def _watch_queue(self, text: str, name: str, flex: FlexRules) -> None:
        """The controller: look at a queue at regular times, and start hosts for its messages. text: its connection string."""
        options = self._parts.queues
        each = options.batch_size + options.new_batch_threshold
        await asyncio.sleep(random.uniform(0, flex.poll))
        async with QueueServiceClient.from_connection_string(text, retry_total=0, connection_timeout=5) as service:
            queue = service.get_queue_client(name)
            while True:
                try:
                    visible = bool(await queue.peek_messages(max_messages=1))
                    length = (await queue.get_queue_properties()).approximate_message_count or 0 if visible else 0
                    self.scale(wanted_instances(visible=visible, length=length, each=each, most=flex.most))
                except ResourceNotFoundError:
                    log.debug("queue %s does not exist", name)
                except (AzureError, OSError, TimeoutError) as error:
                    log.debug("the controller cannot look at queue %s: %s", name, error)
                await asyncio.sleep(flex.poll)

    async def _watch_ticks(self, timer: Timer, flex: FlexRules) -> None:
        """The controller: start a host for each tick of a timer."""
        tick = timer.schedule.next(_now())
        # As if it had ticked before: a monitored timer whose host comes too late for its first tick is past due.
        self._parts.monitor.next.setdefault(timer.name, tick)
        while (at := starts_for_tick(tick.timestamp(), flex, START_TAKES)) is not None:
            await asyncio.sleep(max(0.0, at - time.time()))
            self.scale(1)
            tick = timer.schedule.next(max(tick, _now()))

    async def _watch_idle(self, flex: FlexRules) -> None:
        while True:
            await asyncio.sleep(min(1.0, flex.idle / 10))
            for number, host in list(self._hosts.items()):
                if goes_away(host.idle_for, host.running, flex):
                    self._remove(number)
                    self._begin(self._go_away(number, host))

    def _remove(self, number: int) -> None:
        """Let a host serve no more calls, because it goes away."""
        del self._hosts[number]
        self._leaving.add(number)
        if not self._hosts:
            self._awake.clear()

    async def _go_away(self, number: int, host: HostInstance) -> None:
        """End an instance in order: running invocations have `DRAIN_FOR` to finish."""
        log.info("an instance of %s goes away after %.0f s without work", host.name, host.idle_for)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_FOR):
                    await host.drain()
                    await host.settled()
        finally:
            await self._cut(host)
            self._leaving.discard(number)

    def scale(self, wanted: int) -> None:
        """Start as many hosts as are missing."""
        for number in itertools.count(1):
            if self.wanted >= wanted or self._stopping:
                return
            if number not in self._hosts and number not in self._starting and number not in self._leaving:
                self._starting[number] = self._begin(self._start_cold(number))

    async def _start_cold(self, number: int) -> None:
        flex = self._parts.flex
        assert flex is not None
        try:
            await asyncio.sleep(flex.cold)
            await self._open(number, worker=True)
            log.info("an instance of %s has started (%d of it serve)", self.name, len(self._hosts))
        except AppIndexError as error:
            log.error("an instance of %s cannot start: %s", self.name, error)
        finally:
            self._starting.pop(number, None)

    async def invoke(
        self, function: FunctionInfo, data: TypedValue, metadata: dict[str, TypedValue] | None = None, trace: Trace | None = None
    ) -> InvocationResult:
        """See `Invoker`. Without a host, one is started, and the call waits for it."""
        while not self._hosts:
            if self._stopping:
                raise asyncio.CancelledError
            if self._parts.flex is not None:
                self.scale(1)
            await self._awake.wait()
        host = min(self._hosts.values(), key=lambda host: host.running)
        return await host.invoke(function, data, metadata, trace)

    # The end

    async def drain(self) -> None:
        """Start no more hosts, and take no more messages and ticks. What runs goes on."""
        await self._rest()
        await asyncio.gather(*(host.drain() for host in self.hosts))

    async def _rest(self) -> None:
        self._stopping = True
        self._awake.set()
        for task in self._duties:
            task.cancel()
        await asyncio.gather(*self._duties, return_exceptions=True)

    async def close(self) -> None:
        """End the hosts, after their worker processes have ended."""
        await self._rest()
        await asyncio.gather(*(host.close() for host in self.hosts), *self._cuts)

    def _begin(self, duty: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(duty)
        self._duties.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._duties.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a duty of the group %s failed", self.name, exc_info=error)


class HostGroups:
    """All groups of an app; an `Invoker`."""

    def __init__(self, functions: list[FunctionInfo], parts: HostParts) -> None:
        """functions: those that are not disabled. Call `start` when `http` is set."""
        self._parts = parts
        self.http: HttpFunctions | None = None
        found: dict[str, list[FunctionInfo]] = {HTTP: []}
        for function in functions:
            found.setdefault(parts.pool.group_of(function), []).append(function)
        self._groups = {
            name: HostGroup(name, each, parts, *((self._refuse, self._listen) if name == HTTP else (_nothing, _nothing)))
            for name, each in found.items()
        }

    async def start(self) -> None:
        """Start the groups, or begin to watch for what starts them. Raises SettingsError."""
        for group in self._groups.values():
            await group.start()

    async def invoke(
        self, function: FunctionInfo, data: TypedValue, metadata: dict[str, TypedValue] | None = None, trace: Trace | None = None
    ) -> InvocationResult:
        """See `Invoker`."""
        return await self._groups[self._parts.pool.group_of(function)].invoke(function, data, metadata, trace)

    async def run_timer(self, name: str) -> bool:
        """Run a timer's function at once, beside its schedule; return False if there is no such timer."""
        for group in self._groups.values():
            timers = TimerFunctions(group, group.functions, monitor=self._parts.monitor)
            if await timers.run_now(name):
                return True
        return False

    async def kill(self, name: str) -> int:
        """End all hosts of a group as when their machines fail; return how many."""
        group = self._groups.get(name)
        return 0 if group is None else await group.kill()

    async def drain(self) -> None:
        """Start nothing more for queues and timers. What runs goes on, and so do requests."""
        await asyncio.gather(*(group.drain() for group in self._groups.values() if not group.serves_requests_alone))

    async def close(self) -> None:
        """End all hosts, after their worker processes have ended."""
        await asyncio.gather(*(group.close() for group in self._groups.values()))

    async def _refuse(self) -> None:
        # On Flex, the platform's front holds requests until an instance serves them.
        if self.http is not None and self._parts.flex is None:
            await self.http.cut()

    async def _listen(self) -> None:
        if self.http is not None:
            await self.http.listen_again()


async def _nothing() -> None:
    pass


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)
