"""`LeaseKeeper`: what a server process runs to have its share of a fleet's partitions.

Two daemon threads: one beats, claims and releases, and does nothing else; the other looks at the fleet (`scanner`). Callbacks run on
threads of their own. `owns` reads one immutable value and the clock: no lock, no I/O.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Self

from ..clock import SystemClock, steady
from ..errors import Rejected, StorageError, TocsinError
from ..ids import Ids, SystemIds
from ..storage.blocking import BlockingTables
from . import rules
from .calls import Calls
from .driver import Driver
from .proof import NameInUse, StateFile
from .protocol import membership
from .protocol.membership import MAX_RIDERS, Again, Beaten, Fenced, InUse, Publish, Registered, Waiting
from .rows import Fleet, ServerState, fleet_key, server_key
from .rules import Claim, HandOff, Session, Sight
from .scanner import Scanner, read_fleet
from .stamps import PROFILES, unsafe

__all__ = ["FleetMissing", "LeaseKeeper", "NameInUse"]

log = logging.getLogger(__name__)

_NEVER: Final = float("-inf")


class FleetMissing(TocsinError):
    """There is no fleet of that name, or its profile is unsafe."""


class View(NamedTuple):
    """What `owns` reads: the epochs of what is held, and until when (steady seconds, exclusive)."""

    epochs: dict[int, int]
    until: float


class LeaseKeeper:
    """Keeps one server's leases in one fleet.

    ::

        with LeaseKeeper("search", "s7", tables, on_gained=load, on_lost=unload) as keeper:
            ...
            if keeper.owns(partition):      # right before each step that must not be done twice
                ...

    `on_gained(partition, epoch)`: served from now on, under this fencing token. `on_lost(partition, reason)`: no longer; reasons are
    `handed-off` (stop within the fleet's drain time; the successor starts when the callback returns), `expired`, `fenced`, `stopped`.
    After `expired` the same partition may come back under the same epoch: nobody had it meanwhile. `on_danger(seconds)`: so much validity
    is left, and beats fail. `folder`: where to keep the proof of one's own end for the next start; without it a restart after a crash
    waits T.
    """

    def __init__(
        self,
        fleet: str,
        server: str,
        tables: BlockingTables,
        *,
        tenant: str = "default",
        on_gained: Callable[[int, int], object] = lambda partition, epoch: None,
        on_lost: Callable[[int, str], object] = lambda partition, reason: None,
        on_danger: Callable[[float], object] = lambda seconds: None,
        domain: str = "",
        capacity: int = 0,
        folder: Path | str | None = None,
        ids: Ids | None = None,
    ) -> None:
        """ValueError for a name that cannot be one. `capacity`: partitions this server can have, 0 for no bound of its own."""
        self._key = fleet_key(tenant, fleet)
        server_key(server)
        self.server = server
        self.counts: Counter[str] = Counter()
        self._tables, self._ids, self._clock = tables, ids or SystemIds(), SystemClock()
        self._on_gained, self._on_lost, self._on_danger = on_gained, on_lost, on_danger
        self._publish = Publish(domain, capacity)
        self._folder = Path(folder) if folder is not None else None
        self._file: StateFile | None = None
        self._driver = Driver(tables, steady, 2.5)
        self._fleet: Fleet | None = None
        self._scanner: Scanner | None = None
        self._session: Session | None = None
        self._view = View({}, _NEVER)
        self._told: dict[int, int] = {}
        self._hand_offs: dict[int, HandOff] = {}
        self._offered: deque[Claim] = deque()
        self._wants: dict[int, float] = {}
        self._orders: tuple[tuple[int, ...], tuple[int, ...]] | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._problem: TocsinError | None = None
        self._next_beat = 0.0
        self._last_cycle = _NEVER
        self._claimed_this_cycle = 0
        self._failures = 0
        self._warned = False
        self._draining = False
        self._stopping = False
        self._drain_until = float("inf")
        self._calls: Calls | None = None
        self._thread: threading.Thread | None = None

    # -- for the application

    def owns(self, partition: int) -> bool:
        """Whether this process may act on the partition right now. Under a microsecond; ask at the point of use, each time."""
        epochs, until = self._view
        return partition in epochs and steady() < until

    def epoch(self, partition: int) -> int | None:
        """The fencing token, None unless the partition is owned."""
        epochs, until = self._view
        return epochs.get(partition) if steady() < until else None

    def owned(self) -> dict[int, int]:
        """Partition to epoch, of all that are owned right now."""
        epochs, until = self._view
        return dict(epochs) if steady() < until else {}

    def publish(self, *, load: float | None = None, capacity: int | None = None) -> None:
        """Tell the planner, with the next beat. load: any measure that is alike on all servers."""
        now = self._publish
        self._publish = Publish(now.domain, now.capacity if capacity is None else capacity, now.load if load is None else load)

    def start(self) -> Self:
        """Start the threads; once only. Returns at once: `wait` tells when the server is in."""
        if self._thread is not None:
            raise RuntimeError("a keeper starts once")
        self._calls = Calls(f"lease-{self.server}")
        self._thread = threading.Thread(target=self._run, name=f"lease-{self.server}-beats", daemon=True)
        self._thread.start()
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server is registered. Raises `NameInUse`, `FleetMissing`, or what else ended the keeper."""
        self._ready.wait(timeout)
        if self._problem is not None:
            raise self._problem
        return self._session is not None

    def drain(self) -> None:
        """Hand everything off, and take nothing, until `undrain`."""
        self._drain(True)

    def undrain(self) -> None:
        """Take part again."""
        self._drain(False)

    def _drain(self, on: bool) -> None:
        self._draining = on
        self._drain_until = steady() + self._fleet.limits.drain if on and self._fleet is not None else float("inf")
        self._next_beat = 0.0
        self._wake.set()

    def stop(self, timeout: float | None = None) -> bool:
        """Hand off, leave, end the threads. False when that takes longer than `timeout` seconds; it goes on then, and ends in bounded
        time."""
        if self._thread is None:
            return True
        self._stopping = True
        self.drain()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    # -- for the scanner (its thread)

    def session(self) -> Session | None:
        """See `scanner.Seat`."""
        session = self._session
        return session if session is not None and not session.fenced else None

    def wants(self) -> list[int]:
        """See `scanner.Seat`."""
        now = steady()
        with self._lock:
            self._wants = {partition: until for partition, until in self._wants.items() if now < until}
            offered = {claim.partition for claim in self._offered}
            return [] if self._draining else sorted(self._wants.keys() - offered)

    def offer(self, claims: Collection[Claim]) -> None:
        """See `scanner.Seat`."""
        with self._lock:
            self._offered += claims
        self._wake.set()

    def orders(self, take: Collection[int], drop: Collection[int]) -> None:
        """See `scanner.Seat`."""
        with self._lock:
            self._orders = (tuple(take), tuple(drop))
        self._wake.set()

    def shed(self) -> frozenset[rules.Duty]:
        """See `scanner.Seat`."""
        return rules.shed(self._failures)

    # -- the thread that beats

    def _run(self) -> None:
        try:
            self._serve()
        except TocsinError as problem:
            self._problem = problem
            log.error("The lease keeper of %s ended: %s", self.server, problem, extra={"action": "lease_keeper_ended"})
        except Exception as error:
            self._problem = TocsinError(f"the lease keeper failed: {type(error).__name__}")
            log.exception("The lease keeper failed", extra={"action": "lease_keeper_failed"})
        finally:
            self._view = View({}, _NEVER)
            self._notify("stopped" if self._problem is None else "failed")
            if self._scanner is not None:
                self._scanner.stop()
            if self._calls is not None:
                self._calls.close()
            if self._file is not None:
                self._file.close()
            self._ended.set()
            self._ready.set()

    def _serve(self) -> None:
        fleet = self._read_fleet()
        if fleet is None:
            return
        self._fleet, self._driver.request = fleet, fleet.profile.request
        if self._folder is not None:
            self._file = StateFile(self._folder, self._key, self.server)
        self._pause(self._ids.chance() * fleet.profile.beat / 4)
        while True:
            if not self._join(fleet):
                return
            while (session := self._session) is not None and not session.fenced:
                if self._step(fleet, session):
                    return
            self._after_fence()

    def _pause(self, seconds: float) -> None:
        if seconds > 0 and not self._stopping:
            self._wake.wait(seconds)
            self._wake.clear()

    def _read_fleet(self) -> Fleet | None:
        while not self._stopping:
            try:
                fleet = self._driver.drive(read_fleet(self._key))
            except StorageError as error:
                self._failed(error)
                self._pause(1.0)
                continue
            if fleet is None:
                raise FleetMissing(f"there is no fleet {self._key!r}")
            name = next((name for name, known in PROFILES.items() if known == fleet.profile), "")
            if problem := unsafe(fleet.profile, fleet.limits.drain, name=name):
                raise FleetMissing(f"the fleet's profile is unsafe: {problem}")
            self._failures = 0
            return fleet
        return None

    def _join(self, fleet: Fleet) -> bool:
        """Register a new incarnation. False when told to stop meanwhile."""
        session = Session(self._key, self.server, self._ids.name())
        proven = self._file.begin(session.incarnation) if self._file is not None else ()
        before: Sight | None = None
        while not self._stopping:
            try:
                found = self._driver.drive(membership.register(session, self._publish, before, proven, fleet.profile.takeover))
            except StorageError as error:
                self._failed(error)
                found = None
            match found:
                case Registered():
                    break
                case InUse():
                    raise NameInUse(f"a living server is called {self.server!r}")
                case Fenced():
                    session = Session(self._key, self.server, self._ids.name())
                    proven = self._file.begin(session.incarnation) if self._file is not None else ()
                case Waiting(sight):
                    before = sight
            self._pause(fleet.profile.beat / 4)
        else:
            return False
        log.info("Server %s is in, incarnation %s", self.server, session.incarnation, extra={"action": "lease_joined"})
        self._failures, self._next_beat = 0, steady() + fleet.profile.beat * self._ids.chance()
        self._session = session
        self._start_scanner(fleet)
        self._show(fleet, session)
        self._ready.set()
        return True

    def _start_scanner(self, fleet: Fleet) -> None:
        if self._scanner is not None:
            self._scanner.stop()
        driver = Driver(self._tables, steady, fleet.profile.request)
        scanner = Scanner(self._key, self.server, fleet.profile, self, driver, steady, self._clock.now, self._ids.chance)
        scanner.counts = self.counts
        self._scanner = scanner
        threading.Thread(target=scanner.run, name=f"lease-{self.server}-scans", daemon=True).start()

    def _after_fence(self) -> None:
        log.warning("Server %s was fenced: it had been silent for too long", self.server, extra={"action": "lease_was_fenced"})
        self.counts["was_fenced"] += 1
        self._session = None
        self._hand_offs.clear()
        with self._lock:
            self._offered.clear()
            self._wants.clear()
            self._orders = None
        self._view = View({}, _NEVER)
        self._notify("fenced")

    def _step(self, fleet: Fleet, session: Session) -> bool:
        """Do what is due, or wait for it. True when the keeper is done."""
        now = steady()
        self._show(fleet, session)
        self._take_orders(fleet, session)
        if self._draining and (now >= self._drain_until or (self._scanner is not None and self._scanner.alone)):
            self._give_up(fleet, set(session.held))
        for partition in rules.releasable(self._hand_offs, now):
            del self._hand_offs[partition]
            if partition in session.held:
                session.leaving[partition] = session.held.pop(partition)
        if self._stopping and (not (session.held or session.leaving or session.open) or now >= self._drain_until + fleet.profile.validity):
            return self._leave(session)
        claims = self._ready_claims(fleet, session, now)
        if now >= self._next_beat or ((claims or session.leaving) and not self._failures):
            self._beat(fleet, session, claims)
            return False
        waits = [self._next_beat, *(hand_off.until for hand_off in self._hand_offs.values())]
        if self._told:
            waits += [self._view.until, self._view.until - self._danger(fleet) if not self._warned else self._next_beat]
        if self._draining and session.held.keys() - self._hand_offs.keys():
            waits.append(min(self._drain_until, now + fleet.profile.beat / 8))
        self._wake.wait(max(0.0, min(waits) - now))
        self._wake.clear()
        return False

    def _ready_claims(self, fleet: Fleet, session: Session, now: float) -> list[Claim]:
        if now - self._last_cycle >= fleet.profile.beat:
            self._last_cycle, self._claimed_this_cycle = now, 0
        room = min(fleet.limits.claims_per_cycle - self._claimed_this_cycle, MAX_RIDERS - len(session.leaving))
        with self._lock:
            if self._draining or "claim" in self.shed():
                self._offered.clear()
            offered = [claim for claim in self._offered if claim.partition in self._wants and claim.partition not in session.held]
        return offered[: max(0, room)]

    def _beat(self, fleet: Fleet, session: Session, claims: list[Claim]) -> None:
        state: ServerState = "draining" if self._draining else "live"
        leaving = sorted(session.leaving)[:MAX_RIDERS]
        with self._lock:
            # Tried once: what does not succeed is scouted again.
            tried = {claim.partition for claim in claims}
            self._offered = deque(claim for claim in self._offered if claim.partition not in tried)
        sent = steady()
        self.counts["beats"] += 1
        try:
            done = self._driver.drive(membership.beat(session, self._publish, state, claims, leaving, self._clock.now()))
        except StorageError as error:
            self._failed(error)
            done = Again()
        match done:
            case Beaten(claimed, released):
                self._failures = 0
                self._claimed_this_cycle += len(claimed)
                self.counts["claimed"] += len(claimed)
                self.counts["released"] += len(released)
                with self._lock:
                    for claim in claimed:
                        self._wants.pop(claim.partition, None)
                self._next_beat = sent + fleet.profile.beat * (0.97 + 0.06 * self._ids.chance())
            case Again(told, refused):
                if told:
                    self._obey(fleet, session.take, session.drop)
                self.counts["races_lost"] += len(refused)
                if session.open:
                    # The answer was lost: the store is slow or away.
                    self._failures += 1
                    self._next_beat = steady() + fleet.profile.beat * (0.1 + 0.1 * self._ids.chance())
                else:
                    self._next_beat = steady() + (fleet.profile.beat * 0.2 if self._failures else 0.0)
            case Fenced():
                return
        self._show(fleet, session)

    def _failed(self, error: StorageError) -> None:
        self._failures += 1
        self.counts["failed"] += 1
        # What storage will never do needs somebody's help; say so once, not with every try.
        level = logging.ERROR if isinstance(error, Rejected) and self._failures == 1 else logging.DEBUG
        log.log(level, "A lease request failed: %s", error, extra={"action": "lease_request_failed"})

    def _take_orders(self, fleet: Fleet, session: Session) -> None:
        with self._lock:
            orders, self._orders = self._orders, None
        if orders is not None:
            session.take, session.drop = orders
            self._obey(fleet, *orders)

    def _obey(self, fleet: Fleet, take: Collection[int], drop: Collection[int]) -> None:
        """New orders replace the ones before; each has its deadline, after which it is forgotten and the next plan decides."""
        until = steady() + fleet.limits.drain + fleet.profile.validity + 2 * fleet.profile.beat
        with self._lock:
            self._wants = {partition: self._wants.get(partition, until) for partition in take}
        self._give_up(fleet, set(drop))
        if take and self._scanner is not None:
            self._scanner.poke()

    def _give_up(self, fleet: Fleet, partitions: set[int]) -> None:
        """Begin to hand off: stop serving at once, tell the application, release when it is done or its time is up."""
        session, now = self._session, steady()
        if session is None or self._calls is None:
            return
        given = sorted(partitions & set(session.held) - set(self._hand_offs))
        self._hand_offs |= {partition: HandOff(now, now + fleet.limits.drain) for partition in given}
        told = {partition for partition in given if self._told.pop(partition, None) is not None}
        self._show(fleet, session)
        for partition in given:
            if partition in told:
                self._calls.put(partition, partial(self._on_lost, partition, "handed-off"), partial(self._stopped_serving, partition))
            else:
                self._stopped_serving(partition)

    def _stopped_serving(self, partition: int) -> None:
        found = self._hand_offs.get(partition)
        if found is not None:
            self._hand_offs[partition] = HandOff(found.since, found.until, stopped=True)
        self._wake.set()

    def _danger(self, fleet: Fleet) -> float:
        """Seconds of validity left at which the application is warned: two beats have failed by then, or one for the seed's profile."""
        return max(fleet.profile.validity - 2.25 * fleet.profile.beat, fleet.profile.validity / 6)

    def _show(self, fleet: Fleet, session: Session) -> None:
        """Publish what `owns` reads, and tell the application what has changed."""
        epochs = {partition: held.epoch for partition, held in session.held.items() if partition not in self._hand_offs}
        self._view = View(epochs, rules.expires(session, fleet.profile))
        left = self._view.until - steady()
        self._notify("expired" if left <= 0 else "handed-off")
        if self._told and left <= self._danger(fleet):
            if not self._warned and self._calls is not None:
                self._warned = True
                self._calls.put(0, partial(self._on_danger, left))
        else:
            self._warned = False

    def _notify(self, reason: str) -> None:
        now, calls = self.owned(), self._calls
        if calls is None:
            return
        for partition, epoch in list(self._told.items()):
            if now.get(partition) != epoch:
                del self._told[partition]
                calls.put(partition, partial(self._on_lost, partition, reason))
        for partition, epoch in now.items():
            if partition not in self._told:
                self._told[partition] = epoch
                calls.put(partition, partial(self._on_gained, partition, epoch))

    def _leave(self, session: Session) -> bool:
        """End the incarnation, so that nobody waits for its silence. True: done, or given up; others wait T then."""
        for _ in range(3):
            try:
                if self._driver.drive(membership.leave(session)) != "again":
                    return True
            except StorageError as error:
                self._failed(error)
            self._pause(0.1)
        return True
