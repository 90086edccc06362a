"""Leases on virtual time: 1,024 partitions, 64 servers, storage that answers in 5 to 30 ms and now and then in 300.

The keepers' own loops run, and the app's timers beside them; only threads, network and storage are replaced. So the figures are those of
the protocol, and the same on every machine.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from shared.leases.planner import FleetToPlan, Member, plan
from shared.leases.profiles import PROFILES, Profile
from shared.leases.rows import ActiveIntents
from tests.simulation.leases.history import listening
from tests.simulation.leases.measured.fleet import AZURE, Measured
from tests.simulation.leases.world import Weather

from ..report import Figure
from ..tools.stage import Run
from . import seed

PARTITIONS, SERVERS = 1024, 64
QUIET = 600.0
"""Seconds over which the cost of a quiet fleet is counted."""
RESTART = 3.0
"""Seconds that a process is away in a quick restart."""


async def measure(run: Run) -> list[Figure]:
    """The default profile, the scheme that leases are modelled on, and the planner's own time."""

    def all_() -> list[Figure]:
        return [*_one("default", run), *_model(run), *_planner()]

    return await asyncio.to_thread(all_)


def of(name: str) -> Callable[[Run], Coroutine[Any, Any, list[Figure]]]:
    """Measurements of the other profiles, which take minutes each."""

    async def measure(run: Run) -> list[Figure]:
        return await asyncio.to_thread(_one, name, run)

    return measure


def _one(name: str, run: Run) -> list[Figure]:
    run.report_progress(f"leases, {name}", 0, 1)
    with listening():
        return _Bench(name, PROFILES[name], run).measure()


def at(values: Sequence[float], share: float) -> float:
    """Return the quantile of sorted values."""
    return values[min(len(values) - 1, int(len(values) * share))]


class _Bench:
    def __init__(self, name: str, profile: Profile, run: Run) -> None:
        self.name, self.profile, self.run = name, profile, run
        self.fleet = Measured(profile, SERVERS, PARTITIONS, seed=name)
        self.beat = profile.beat

    def measure(self) -> list[Figure]:
        """Measure all figures of one profile, on one fleet, one after the other."""
        try:
            fleet = self.fleet
            fleet.start_all()
            began = fleet.now
            fleet.run(max(200.0, 40 * self.beat))
            parts = [self.cost, self.crashes, self.hand_offs, self.balance, self.outages]
            parts += [self.quick_restarts, self.slow_restarts, self.spare, self.drains]
            figures = [Figure(self._named("all served and shared out after a cold start"), began, "s")]
            for part in parts:
                figures += part()
            return figures
        finally:
            self.fleet.close()

    def _named(self, what: str) -> str:
        return f"{self.name}: {what}"

    def _figure(self, what: str, value: float, unit: str, limits: dict[str, float], note: str = "") -> Figure:
        limit = limits.get(self.name)
        return Figure(self._named(what), value, unit, "<=" if limit is not None else "", limit, note)

    def cost(self) -> list[Figure]:
        length = max(QUIET, 120 * self.beat)
        made = self.fleet.cost(length)
        note = f"over {length:.0f} s, the app's timers included: {made['query']} queries, {made['get']} gets"
        return [
            self._figure("writes", made["write"] / length, "/s", {"default": 13.0}),
            self._figure("entities read", made["rows_read"] / length, "/s", {"default": 40.0}, note),
        ]

    def crashes(self) -> list[Figure]:
        count, fleet = self.run.pick(*((100, 20) if self.name in ("default", "fast") else (30, 10))), self.fleet
        gaps, whole = list[float](), list[float]()
        for _ in range(count):
            name = fleet.world.random.choice(sorted(fleet.shares()))
            known = len(fleet.watch.gaps)
            fleet.run(self.beat * fleet.world.random.random())
            fleet.nodes[name].crash()
            fleet.until(fleet.served, 4 * self.profile.takeover)
            found = sorted(gap for _, gap, _ in fleet.watch.gaps[known:])
            gaps += found
            whole.append(found[-1])
            self._back(name)
        gaps.sort()
        whole.sort()
        note = f"p50 {at(gaps, 0.5):.1f}, at most {gaps[-1]:.1f} s; {count} crashes, {len(gaps):,} partitions"
        return [self._figure("crash to take-over, p99", at(gaps, 0.99), "s", {"default": 24.0, "fast": 10.0}, note)]

    def _back(self, name: str) -> float:
        """It starts again, and gets its share: how long that takes."""
        self.fleet.start(name)
        return self.fleet.until(lambda: name in self.fleet.shares() and self.fleet.balanced(), 60 * self.beat)

    def hand_offs(self) -> list[Figure]:
        fleet, known = self.fleet, len(self.fleet.watch.gaps)
        count = self.run.pick(20, 8)
        for name in fleet.world.random.sample(fleet.names, count):
            node = fleet.nodes[name]
            node.keeper_state.stop()
            fleet.until(lambda node=node: not node.running and fleet.served(), 60 * self.beat)  # type: ignore[misc]
            self._back(name)
            fleet.run(60.0)
        gaps = sorted(gap for _, gap, _ in fleet.watch.gaps[known:])
        note = f"p50 {at(gaps, 0.5):.2f}, at most {gaps[-1]:.2f} s; {len(gaps):,} hand-offs as {count} servers stop and return"
        return [self._figure("planned hand-off gap, p99", at(gaps, 0.99), "s", {"default": 1.0}, note)]

    def balance(self) -> list[Figure]:
        fleet, joins, leaves = self.fleet, list[float](), list[float]()
        for _ in range(self.run.pick(10, 4)):
            fleet.run(60.0)
            joins.append(self._back("x"))
            fleet.run(60.0)
            fleet.nodes["x"].keeper_state.stop()
            leaves.append(fleet.until(fleet.balanced, 60 * self.beat))
        fleet.run(60.0)
        eight = [f"more{number}" for number in range(8)]
        for name in eight:
            fleet.start(name)
        came = fleet.until(lambda: all(name in fleet.shares() for name in eight) and fleet.balanced(), 900 + 60 * self.beat)
        for name in eight:
            fleet.nodes[name].keeper_state.stop()
        fleet.until(fleet.balanced, 60 * self.beat)
        joins.sort()
        limits = {"default": 2 * self.beat}
        note = f"p50 {at(joins, 0.5):.1f} s; from its process's start; eight at once: {came:.0f} s, which `moves_per_minute` bounds"
        leave = f"p50 {at(sorted(leaves), 0.5):.1f} s"
        return [
            self._figure("max - min <= 1 after one more server, at most", joins[-1], "s", limits, note),
            self._figure("max - min <= 1 after one stops, at most", max(leaves), "s", limits, leave),
        ]

    def outages(self) -> list[Figure]:
        fleet, length = self.fleet, self.profile.validity - self.beat
        figures: list[Figure] = []
        # A beat that fails comes again after up to 0.2 H; one that nobody answers has to time out before that, after H/2.
        for how, spare in (("refuses all", 0.25), ("does not answer", 0.75)):
            moved, known = fleet.moves.total(), len(fleet.watch.gaps)
            for _ in range(self.run.pick(10, 4)):
                fleet.run(10 * self.beat * (1 + fleet.world.random.random()))
                lasts = length - spare * self.beat
                if how == "refuses all":
                    fleet.world.weather = Weather(refuse=1.0)
                else:
                    for node in fleet.nodes.values():
                        node.host.cut_until = fleet.now + lasts
                fleet.run(lasts)
                fleet.world.weather = AZURE
            fleet.run(4 * self.beat)
            gaps = len(fleet.watch.gaps) - known
            note = f"{lasts:.1f} s (V - H less {spare:g} H); {fleet.moves.total() - moved} moves"
            figures.append(Figure(self._named(f"partitions lost while storage {how}"), gaps, "", "==", 0, note))
        return figures

    def quick_restarts(self) -> list[Figure]:
        """Kill each process and start it again at once, as a supervisor does."""
        fleet, moved = self.fleet, self.fleet.moves.total()
        for name in fleet.names:
            fleet.nodes[name].crash()
            fleet.run(min(RESTART, self.profile.validity / 2))
            fleet.start(name)
            fleet.until(lambda name=name: fleet.shares().get(name, 0) > 0 and fleet.served(), 60 * self.beat)  # type: ignore[misc]
        value = (fleet.moves.total() - moved) / PARTITIONS
        return [self._figure("moves per partition, all killed and back within V", value, "", {"default": 0.0}, f"away {RESTART:g} s each")]

    def slow_restarts(self) -> list[Figure]:
        """Stop each server in order for longer than T. The next one stops as soon as it is back."""
        self.fleet.run(20 * self.beat)
        what = "moves per partition, all stopped for longer than T"
        return [self._rolling(what, self.fleet.names, {}, f"no order of stops needs less than {1 + 2 / SERVERS:.3f}")]

    def spare(self) -> list[Figure]:
        """The same with one server more: it comes as the first stops, and the last to stop is the spare one then."""
        fleet = self.fleet
        fleet.run(20 * self.beat)
        fleet.start("spare")
        fleet.until(self._in("spare"), 60 * self.beat)
        return [self._rolling("the same, with a spare server", fleet.names[:-1], {"default": 1.0, "fast": 1.0, "economy": 1.0})]

    def drains(self) -> list[Figure]:
        """Each is drained to the one that has come back, first to the spare server, restarted, and left alone for a while."""
        fleet, known = self.fleet, len(self.fleet.watch.gaps)
        moved, before = fleet.moves.total(), dict(fleet.moves)
        # The spare server of the restarts before is the last one that was stopped.
        names = [name for name in (*fleet.names, "spare") if fleet.nodes[name].running]
        back = next(name for name in fleet.names if name not in names)
        fleet.control("prohibit", back)
        fleet.start(back)
        fleet.until(self._in(back), 60 * self.beat)
        for verb in ("drain", "permit"):
            fleet.control(verb, back)
        for name in names:
            fleet.control("drain", name, back)
            fleet.until(lambda name=name: fleet.served() and not fleet.shares()[name], 60 * self.beat)  # type: ignore[misc]
            node = fleet.nodes[name]
            node.keeper_state.stop()
            fleet.until(lambda node=node: not node.running, 60 * self.beat)  # type: ignore[misc]
            fleet.run(self.profile.takeover + 2 * self.beat)
            fleet.start(name)
            fleet.until(self._in(name), 60 * self.beat)
            fleet.run(4 * self.beat)
            back = name
        most = max(count - before.get(number, 0) for number, count in fleet.moves.items())
        gaps = sorted(gap for _, gap, _ in fleet.watch.gaps[known:])
        note = f"at most {most} of one; gaps p50 {at(gaps, 0.5):.2f}, p99 {at(gaps, 0.99):.2f} s"
        what = "moves per partition, all drained to the one that came back, with pauses"
        return [self._figure(what, (fleet.moves.total() - moved) / PARTITIONS, "", {"default": 1.0, "fast": 1.0, "economy": 1.0}, note)]

    def _in(self, name: str) -> Callable[[], bool]:
        return lambda: self.fleet.nodes[name].keeper_state.session is not None

    def _rolling(self, what: str, back: Sequence[str], limits: dict[str, float], note: str = "") -> Figure:
        fleet, known = self.fleet, len(self.fleet.watch.gaps)
        moved, before = fleet.moves.total(), dict(fleet.moves)
        for name in fleet.names:
            node = fleet.nodes[name]
            node.keeper_state.stop()
            fleet.until(lambda node=node: not node.running, 60 * self.beat)  # type: ignore[misc]
            if name in back:
                fleet.run(self.profile.takeover + 2 * self.beat)
                fleet.start(name)
                fleet.until(self._in(name), 60 * self.beat)
        fleet.until(fleet.balanced, 900 + 60 * self.beat)
        most = max(count - before.get(number, 0) for number, count in fleet.moves.items())
        gaps = sorted(gap for _, gap, _ in fleet.watch.gaps[known:])
        notes = [f"at most {most} of one", f"gaps p99 {at(gaps, 0.99):.2f} s", *([note] if note else [])]
        return self._figure(what, (fleet.moves.total() - moved) / PARTITIONS, "", limits, "; ".join(notes))


def _model(run: Run) -> list[Figure]:
    found = seed.measure(SERVERS, PARTITIONS, run.pick(100, 20))
    gaps: list[float] = found["gaps"]
    name = "the model's scheme (each partition renewed every 120 s, all rows read by all)"
    note = f"p50 {at(gaps, 0.5):.0f}, at most {gaps[-1]:.0f} s; the figures do not separate servers that stop from servers that crash"
    return [
        Figure(f"{name}: writes", found["writes"], "/s"),
        Figure(f"{name}: entities read", found["read"], "/s"),
        Figure(f"{name}: crash to take-over, p99", at(gaps, 0.99), "s", note=note),
    ]


def _planner() -> list[Figure]:
    """Measure the CPU time of one plan, which runs on a thread of its own beside the heartbeats."""
    figures: list[Figure] = []
    for partitions, servers in ((PARTITIONS, SERVERS), (10_000, 200)):
        members = [Member(f"s{number:03d}") for number in range(servers + 1)]
        had = {number: members[number % servers].name for number in range(partitions)}
        dice = random.Random(1)
        forbidden = frozenset((dice.randrange(partitions), dice.choice(members).name) for _ in range(partitions // 2))
        tight = -(-partitions // servers)

        def think(
            owners: dict[int, str], intents: ActiveIntents, most: int, members: list[Member] = members, partitions: int = partitions
        ) -> Callable[[], object]:
            return lambda: plan(FleetToPlan(partitions, owners, members, intents), most=most, budget=32)

        full = think({}, replace(ActiveIntents(), prohibited=forbidden), tight)
        cases = {
            "one more server": think(had, ActiveIntents(), partitions),
            "no owner yet": think({}, ActiveIntents(), partitions),
            f"no owner yet, {len(forbidden):,} prohibitions, no room to spare": full,
        }
        for case, thought in cases.items():
            began = time.process_time()
            thought()
            took = 1000 * (time.process_time() - began)
            figures.append(Figure(f"planner, {partitions:,} x {servers}: {case}", took, "ms of CPU"))
    return figures
