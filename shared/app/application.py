"""The application of one process: `build(settings, ports, parts)` wires the jobs together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ..core.clock import Clock, Millis, SystemClock
from ..core.errors import StorageError
from ..core.event_loop import StallWatch
from ..core.ids import Ids, SystemIds
from ..core.process_identity import ProcessIdentity
from ..core.settings import Settings
from ..delivery.channels import Sender, close_senders, open_senders
from ..engine.async_runner import AsyncRunner
from ..engine.stored_forms import StoredForms, newer_forms
from ..ops.export.service import NO_OUTLETS, Outlets
from ..scheduler.service import OwnAccount, OwnProcess, Scheduler
from ..storage import Storage, open_storage
from ..storage.ports import Message
from ..tenants.store import OtherJobs, TenantDirectory
from ..web.arrivals import Arrivals
from .parts import Part, check_settings, rows_beside
from .ports import Ports
from .services import Services
from .start import prepare
from .timers import Jobs, Timers

if TYPE_CHECKING:
    from ..delivery.channels.model import ChannelSpec
    from ..leases.service.owner_lookup import OwnerLookup
    from ..scheduler.ingest.event_limits import LimitNotices
    from ..scheduler.mirror.pair import MirrorPair
    from ..scheduler.protocol.mirroring import Side

log = logging.getLogger(__name__)


class Application(Services):
    """All services of a process, over one storage account. Belongs to one event loop; `open` opens it, `close` ends it."""

    def __init__(
        self,
        settings: Settings,
        ports: Ports,
        parts: Sequence[Part],
        storage: Storage,
        pair: MirrorPair | None = None,
        second: Application | None = None,
    ) -> None:
        """storage: the account to work on: `ports.storage`, or its `second`. pair: the mirrored pair, if there is one. second: the
        application on the second account, given to the application on the first. Use `build`."""
        side: Side = "first" if storage is ports.storage else "second"
        senders = ports.senders_second or ports.senders if side == "second" else ports.senders
        clock, tables = ports.clock, storage.tables
        self.settings, self.ports, self.parts, self.storage, self.clock = settings, ports, parts, storage, clock
        self.home, self.senders, self.pair, self.other, self.leaving = ports.storage.tables, senders, pair, second, False
        self.body_limit = settings.body_limit
        """Largest body in bytes that the host lets in, whatever a route accepts."""
        self.began, self.began_monotonic = clock.now(), clock.monotonic()
        self.forms = StoredForms(tables, clock, ports.stored_forms, self.leave)
        self.all_forms = (self.forms, second.forms) if second is not None else (self.forms,)
        self.stalls = StallWatch(clock.monotonic)
        """Measures while `run` is running. One for both sides: they share a process."""
        if second is not None:
            second.all_forms, second.stalls = self.all_forms, self.stalls
        self.directory = TenantDirectory(
            tables,
            clock,
            settings,
            jobs=OtherJobs(
                remains=lambda tenant: self.scheduler.remains(tenant),
                refuse_delete=lambda tenant: self.fleets.refuse_living(tenant),
                on_delete=self._end_parts,
                on_searchable=lambda tenant, new: self.scheduler.label_index.begin(tenant, fresh=new),
                on_expired_key=self._tell_expired_key,
                may_write=lambda: not self.forms.newer,
                find_absent=self._find_absent,
            ),
            entropy=ports.entropy,
        )
        self.arrivals = Arrivals(clock, storage.server_times, ports.entropy(6).hex())
        self.runner = AsyncRunner(self.home, clock)

        def owners() -> OwnerLookup:
            from ..leases.service.owner_lookup import OwnerLookup

            return OwnerLookup(self.runner, clock)

        process = OwnProcess(settings, clock, ports.ids, self.arrivals, ports.process)
        account = OwnAccount(storage, senders, self.forms, side, pair)
        self.scheduler = Scheduler(process, account, self.directory, owners, rows_beside(parts))
        self.queue_sides = [(storage.queues, self.scheduler)]
        if second is not None:
            self.queue_sides = second.queue_sides = [*self.queue_sides, *second.queue_sides]
        self.on_failover: Callable[[Side], Awaitable[None]] | None = None
        if second is not None and pair is not None:
            # As `MirrorPair.wait` has it, only a take-over waits.
            takes: dict[Side, Millis] = {"first": 1_000, "second": pair.waits.take + 1_000}
            wakes_of = {"first": self.scheduler.wakes, "second": second.scheduler.wakes}
            self.on_failover = second.on_failover = lambda side: wakes_of[side].start(takes[side])
            self.scheduler.serving = second.scheduler.serving = self._serving_scheduler

    async def _find_absent(self, spec: ChannelSpec) -> Sequence[tuple[str, str]]:
        from ..delivery.channels.validation import find_absent

        return await find_absent(self.senders, spec)

    @cached_property
    def timers(self) -> Timers:
        """Runs the jobs of the sweep."""
        from .timer_jobs import timer_jobs, under_way

        pressure = self.ports.storage.pressure

        def stretch() -> float:
            return pressure.stretch if pressure is not None else 1.0

        jobs = Jobs(timer_jobs(self), tuple(self.part_timers), under_way, self.scheduler.watch_ticks)
        wakes = self.scheduler.wakes if self.scheduler.wakes.on else None
        return Timers(self.storage, self.clock, jobs, stretch, self.forms, wakes)

    @property
    def limit_notices(self) -> LimitNotices:
        """Tells tenants that they have reached limits."""
        return self.scheduler.limit_notices

    def longest_stall(self) -> float:
        """See `Services`."""
        return self.stalls.longest

    @classmethod
    async def open(
        cls,
        settings: Settings | None = None,
        *,
        parts: Sequence[Part] = (),
        clock: Clock | None = None,
        ids: Ids | None = None,
        storage: Storage | None = None,
        senders: Mapping[str, Sender] | None = None,
        outlets: Outlets = NO_OUTLETS,
        process: ProcessIdentity | None = None,
    ) -> Application:
        """Build the application, prepare its storage and check it; the defaults come from the environment.

        parts: the optional parts of the service. outlets: receivers of the metrics.
        process: identity of this process, so that a later one on the same machine can prove its end.
        Raises `UnsafeSettings`, `StorageError`.
        """
        settings, clock = settings or Settings(), clock or SystemClock()
        check_settings(parts, settings)
        readers = [part.trace(clock.monotonic) for part in parts if part.trace is not None] if settings.trace != "off" else []

        def read(line: str) -> None:
            for reader in readers:
                reader.take(line)

        storage = storage or open_storage(settings, clock, read if readers else None)
        second, more = None, {name: make for part in parts for name, make in part.senders.items()}
        if storage.second is not None and senders is None:
            second = open_senders(settings, storage.second.queues, clock, more)
        first = senders or open_senders(settings, storage.queues, clock, more)
        ports = Ports(storage, clock, ids or SystemIds(), first, second, outlets, process, readers)
        app = build(settings, ports, parts)
        try:
            # A wrong value is found when the app starts, and not when the timer runs.
            _ = app.part_timers
            await prepare(settings, storage, app.directory, [side.forms for side in app._sides()])
        except BaseException:
            await app.close()
            raise
        return app

    def judge(self, functions: Iterable[str], environment: Mapping[str, str]) -> None:
        """Have `readyz` of each side say which functions that the settings demand do not run. functions: those that the host was given."""
        from .given_functions import GivenFunctions

        given = GivenFunctions(functions, environment, self.parts)
        for side in self._sides():
            side.unserved = given.fault(self.settings, second=side is self.other)

    async def admit_write(self) -> None:
        """Raise 503 if storage has the stored forms of a newer version."""
        if await self.forms.is_newer():
            raise newer_forms(self.forms)

    async def leave_to_newer(self, queue: str, message: Message) -> bool:
        """Put a message of a queue back if it needs a newer version's process; return True if so. Raises `StorageError`, and `Problem` for
        bytes that no queue takes: the host then keeps the message."""
        if not await self.forms.is_newer():
            return False
        await self.scheduler.intake.put_back(queue, message)
        return True

    async def _tell_expired_key(self, tenant: str, prefix: str) -> None:
        if not self.forms.newer:
            await self.scheduler.notices(tenant, "key.expired", prefix, "a call carried the key")

    async def serving(self) -> Application:
        """Return the application of the side that serves now."""
        if self.other is None or self.pair is None:
            return self
        return self.other if await self.pair.side() == "second" else self

    async def _serving_scheduler(self) -> Scheduler:
        return (await self.serving()).scheduler

    async def resumed(self, tenant: str) -> None:
        """See `Services`."""
        try:
            count = await self.scheduler.sweeps.recall(tenant)
        except StorageError as error:
            # The channel is resumed nevertheless, and every shard looks again by itself.
            log.warning("The shards of %s could not be woken: %s", tenant, error, extra={"action": "recall_failed", "tenant": tenant})
            return
        log.info("%d shards of %s were woken", count, tenant, extra={"action": "shards_recalled", "tenant": tenant})

    async def recover(self) -> None:
        """Look, while this process is young, for shards that were lost with a former one, or in an outage. Both sides: the one that does
        not serve finds its messages refused."""
        if await self.forms.is_newer():
            return
        # The timers of the side that serves: the other account may not answer, and its shards are not served.
        catch_up = (await self.serving()).timers.catch_up()
        await asyncio.gather(catch_up, *(app.scheduler.recovery.run() for app in self._sides()))

    def glance(self) -> None:
        """Look if the timer has stopped, beside the call that is served. Every call of a function does so: whoever works can find it."""
        self.scheduler.wakes.glance()
        if self.other is not None:
            self.other.scheduler.wakes.glance()

    @property
    def busy(self) -> bool:
        """True while an owner of this process serves a shard."""
        return any(app.scheduler.firing.serving for app in self._sides())

    def leave(self) -> None:
        """Stop accepting work because the process is about to end: owners finish what they have begun and release their shards."""
        for app in self._sides():
            app.leaving = True
            app.scheduler.leave()
            if (failover := app.made("failover")) is not None:
                failover.leave()
            for service in app.used_parts:
                service.leave()

    async def _end_parts(self, tenant: str) -> None:
        """Delete what belongs to a tenant beside its keys and channels."""
        await self.fleets.end_all(tenant)
        await self.scheduler.notices.forget(tenant)

    async def close(self) -> None:
        """Release shards and connections."""
        self.leave()
        sides = self._sides()
        try:
            for app in sides:
                await app.scheduler.close()
                for each in (app.made("watch"), app.made("failover"), *app.used_parts):
                    if each is not None:
                        await each.close()
                await app.directory.close()
        finally:
            for app in sides:
                await app.scheduler.flow.close()
            await close_senders(self.senders)
            for app in sides:
                if (arm := app.made("arm")) is not None:
                    await arm.close()
            if self.other is not None and self.other.senders is not self.senders:
                await close_senders(self.other.senders)
            await self.storage.close()

    def _sides(self) -> list[Application]:
        return [self] if self.other is None else [self, self.other]


def build(settings: Settings, ports: Ports, parts: Sequence[Part] = ()) -> Application:
    """Build the application. With a mirrored pair it is the one on the first account, which knows the other. parts: see `app/parts.py`."""
    storage = ports.storage
    if storage.second is None:
        return Application(settings, ports, parts, storage)
    from ..scheduler.mirror.pair import MirrorPair, MirrorTimeouts

    waits = MirrorTimeouts(settings.mirror_stop_seconds, round(settings.mirror_take_seconds * 1000))
    pair = MirrorPair(storage.tables, ports.clock, waits)
    return Application(settings, ports, parts, storage, pair, Application(settings, ports, parts, storage.second, pair))
