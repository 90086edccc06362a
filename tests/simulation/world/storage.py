"""Tables and queues as one instance sees them: the shared twin behind a network that fails as the profile says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from shared.core.errors import OutcomeUnknown, Unavailable
from shared.storage.blocking import run_through
from shared.storage.memory import MemoryTables
from shared.storage.names import EVENTS, SHARDS, TENANTS
from shared.storage.ports import Applied, Get, Message, Op, TableRequest, WrappedTables, Write, WriteRefused
from shared.storage.server_time import ServerTimeEstimator

from ..checks.invariants import found_by_lists, still_filed, takes_over

if TYPE_CHECKING:
    from .instance import Instance


class SimTables(WrappedTables):
    """`ports.Tables` with faults. `side`: of a mirrored pair, the account it is; it may be out of reach."""

    def __init__(self, instance: Instance, tables: MemoryTables, side: str = "") -> None:
        super().__init__(tables)
        self._instance, self._world = instance, instance.world
        self._inner, self._side = tables, side
        self.server_time = ServerTimeEstimator(instance.clock)

    async def perform(self, request: TableRequest) -> Any:
        if isinstance(request, Write):
            return await self._write(request.table, request.pk, request.ops)
        table, pk = request.table, request.pk
        await self._before_read(table, pk)
        answer = await self._inner.perform(request)
        if isinstance(request, Get):
            self._world.note(self._instance, "get", (self._side + table, pk, request.rk), answer)
        elif answer.rows:
            self._world.note(self._instance, "query", (self._side + table, pk), answer)
        else:
            return answer
        await self._after()
        return answer

    async def _write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        instance, world = self._instance, self._world
        await self._reached()
        fault = world.fault(instance, "write")
        sent = self.server_time.elapsed()
        if fault is not None:
            return self._noted(sent, await self._troubled(fault, table, pk, ops))
        if wait := world.latency(instance):
            await asyncio.sleep(wait)
        if world.away(instance, self._side):
            raise OutcomeUnknown("simulated: the account went away")
        answer = self._apply("write", table, pk, ops)
        await self._after()
        self._noted(sent, answer)
        if world.away(instance, self._side):
            raise OutcomeUnknown("simulated: the account went away")
        return answer

    def _noted(self, sent: float, answer: Applied | WriteRefused) -> Applied | WriteRefused:
        if isinstance(answer, Applied):
            self.server_time.note(sent, self.server_time.elapsed(), answer.etags)
        return answer

    def _apply(self, what: str, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        before = takes_over(self._world, self._inner, self._instance, pk, ops) if table == EVENTS else False
        answer = run_through(self._inner.write(table, pk, ops))
        if before and isinstance(answer, Applied):
            self._world.counts["takeovers"] += 1
        self._world.note(self._instance, what, (self._side + table, pk, ops), answer)
        if table == SHARDS and isinstance(answer, Applied):
            still_filed(self._world, self._inner, pk, ops)
        if table == EVENTS and isinstance(answer, Applied):
            found_by_lists(self._world, self._inner, pk, ops)
        if table == TENANTS and isinstance(answer, Applied):
            self._world.ward.written(ops)
        return answer

    async def _troubled(self, fault: str, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        instance, world = self._instance, self._world

        def apply(how: str) -> Applied | WriteRefused:
            if world.away(instance, self._side):
                raise OutcomeUnknown("simulated: the account went away")
            return self._apply(f"write {how}", table, pk, ops)

        def note() -> None:
            world.note(instance, f"write {fault}", (table, pk, ops), None)

        match fault:
            case "slow":
                note()
                before = world.random.random() < 0.5
                if before:
                    await asyncio.sleep(world.long_wait())
                answer = apply("slow")
                if not before:
                    await asyncio.sleep(world.long_wait())
                await instance.ready()
                return answer
            case "pause":
                before = world.random.random() < 0.5
                if before:
                    instance.pause(world.long_wait())
                answer = apply("then pause" if not before else "and pause")
                if not before:
                    instance.pause(world.long_wait())
                await instance.ready()
                return answer
            case "unavailable":
                note()
                await world.timeout(instance)
                raise Unavailable("simulated: 503")
            case "crash":
                note()
            case "crash-applied":
                apply("crash-applied")
            case "crash-delayed" | "lost-delayed":
                note()
                world.later(lambda: self._arrive(table, pk, ops))
            case "lost-applied":
                apply("lost-applied")
            case "lost-never":
                note()
        if fault.startswith("crash"):
            instance.crash()
            raise asyncio.CancelledError
        await world.timeout(instance)
        raise OutcomeUnknown("simulated: no answer")

    def _arrive(self, table: str, pk: str, ops: Sequence[Op]) -> None:
        if not self._world.lost(self._side):
            self._apply("write arrives", table, pk, ops)

    async def _reached(self) -> None:
        await self._instance.ready()
        if self._world.away(self._instance, self._side):
            await self._world.timeout(self._instance)
            raise Unavailable("simulated: the account is away")

    async def _before_read(self, table: str, pk: str) -> None:
        instance, world = self._instance, self._world
        await self._reached()
        fault = world.fault(instance, "read")
        if fault is None:
            if wait := world.latency(instance):
                await asyncio.sleep(wait)
            return
        world.note(instance, f"read {fault}", (table, pk), None)
        match fault:
            case "unavailable":
                await world.timeout(instance)
                raise Unavailable("simulated: 503")
            case "slow":
                await asyncio.sleep(world.long_wait())
                await instance.ready()
            case "pause":
                instance.pause(world.long_wait())
                await instance.ready()
            case "crash":
                instance.crash()
                raise asyncio.CancelledError

    async def _after(self) -> None:
        """The way back: what was read may be stale when it arrives."""
        if wait := self._world.latency(self._instance):
            await asyncio.sleep(wait)
        await self._instance.ready()

    async def close(self) -> None:
        """Nothing to release."""


class SimQueues:
    """`ports.Queues` with faults. Only the host receives. `side`: of a mirrored pair, the account that has them."""

    def __init__(self, instance: Instance, side: str = "") -> None:
        self._instance, self._world, self._side = instance, instance.world, side

    async def send(self, queue: str, text: str, *, visible_in: float = 0.0) -> None:
        instance, world = self._instance, self._world
        await instance.ready()
        if world.away(instance, self._side):
            await world.timeout(instance)
            raise Unavailable("simulated: the account is away")
        fault = world.fault(instance, "send")
        queue = world.queue_of(queue, self._side)

        def put(how: str = "send") -> None:
            if not world.lost(self._side):
                world.note(instance, how, (queue, text, visible_in), None)
                world.host.put(queue, text, visible_in)

        if fault is None:
            if wait := world.latency(instance):
                await asyncio.sleep(wait)
            put()
            await instance.ready()
            return
        await self._troubled(fault, put)

    async def _troubled(self, fault: str, put: Callable[[str], None]) -> None:
        instance, world = self._instance, self._world
        if fault in ("lost-applied", "crash-applied", "doubled"):
            put(f"send {fault}")
        else:
            world.note(instance, f"send {fault}", None, None)
        if fault == "doubled":
            put("send again")
            return
        if fault == "lost-delayed":
            world.later(lambda: put("send arrives"))
        if fault.startswith("crash"):
            instance.crash()
            raise asyncio.CancelledError
        await world.timeout(instance)
        raise Unavailable("simulated: 503") if fault == "unavailable" else OutcomeUnknown("simulated: no answer")

    async def receive(self, queue: str, *, limit: int = 32, lease: float = 600.0) -> list[Message]:
        raise AssertionError("the app does not receive; the host does")

    async def renew(self, queue: str, message: Message, *, lease: float) -> bool:
        return await self._leased(message, lambda: self._world.queues.renew(self._of(queue), message, lease=lease))

    async def delete(self, queue: str, message: Message) -> bool:
        return await self._leased(message, lambda: self._world.queues.delete(self._of(queue), message))

    def _of(self, queue: str) -> str:
        return self._world.queue_of(queue, self._side)

    async def _leased(self, message: Message, request: Callable[[], Coroutine[Any, Any, bool]]) -> bool:
        """A request about a message in work. Its faults have a chance of their own: other requests meet theirs as without it."""
        instance, world = self._instance, self._world
        await instance.ready()
        if world.away(instance, self._side):
            await world.timeout(instance)
            raise Unavailable("simulated: the account is away")
        chance = world.lease_chance.random() if world.troubled and instance.faulty else 1.0
        if chance < world.profile.message_trouble:
            world.note(instance, "message's lease unavailable", message.id)
            await world.timeout(instance)
            raise Unavailable("simulated: 503")
        if wait := world.latency(instance):
            await asyncio.sleep(wait)
        receipt = message.receipt
        done = run_through(request())
        await instance.ready()
        if chance < 2 * world.profile.message_trouble:
            # Applied, and the answer was lost: the adapter asks again with the former receipt, which is no longer good.
            message.receipt = receipt
            await world.timeout(instance)
            return False
        return done

    async def length(self, queue: str) -> int:
        return await self._world.queues.length(queue)

    async def ensure(self, queues: Sequence[str]) -> None:
        await self._world.queues.ensure(queues)

    async def close(self) -> None:
        """Nothing to release."""
