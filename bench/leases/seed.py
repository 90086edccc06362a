"""The scheme that leases are modelled on, as far as its figures go: every server renews each of its partitions, and reads all of them.

Rows are renewed every two minutes, each at a time of its own; a server takes over what it has seen unchanged for four, and serves for three
after it renewed.
"""

from __future__ import annotations

from typing import Any, Final

from shared.engine.effects import Get, Load, Wait, Write
from shared.storage.blocking import run_through
from shared.storage.names import FLEETS
from shared.storage.ports import Applied, Insert, Replace, Row
from tests.simulation.leases.measured.fleet import AZURE
from tests.simulation.leases.world import Host, Task, World

RENEW, SERVE, TAKE_OVER = 120.0, 180.0, 240.0
PK: Final = "seed"


class Server:
    """One process. most: partitions that it takes at most."""

    def __init__(self, world: World, name: str, first: range, most: int, taken: list[tuple[int, float]]) -> None:
        self.host, self._world, self._most, self._taken = Host(world, name), world, most, taken
        self.held: dict[int, float] = dict.fromkeys(first, 0.0)
        self._seen: dict[int, tuple[str, float]] = {}

    def start(self) -> None:
        """Renews and reads, each in one thread."""
        for steps in (self._renew(), self._look()):
            Task(self.host, steps, 10.0, lambda: None, lambda result: None).start(self._world.time.seconds)

    def _now(self) -> float:
        return self.host.steady()

    def _renew(self) -> Any:
        due = {number: self._now() + RENEW * self._world.random.random() for number in self.held}
        while True:
            due |= {number: self._now() for number in self.held if number not in due}
            due |= {number: self._now() + RENEW for number in self.held if number not in due}
            if not due:
                yield Wait(self._now() + 1.0)
                continue
            number = min(due, key=lambda each: due[each])
            yield Wait(min(due[number], self._now() + 1.0))
            if self._now() >= due[number]:
                due[number] = self._now() + RENEW
                row: Row = yield Get(FLEETS, PK, f"{number:05d}")
                yield Write(FLEETS, PK, (Replace(row.rk, {"owner": self.host.name, "at": int(self._now())}, row.etag),))

    def _look(self) -> Any:
        yield Wait(self._now() + RENEW * self._world.random.random())
        while True:
            began = self._now()
            rows: list[Row] = yield Load(FLEETS, PK, "", "~")
            now = self._now()
            for row in rows:
                number = int(row.rk)
                etag, since = self._seen.get(number, ("", now))
                self._seen[number] = (etag, since) if row.etag == etag else (row.etag, now)
                silent = row.etag == etag and now - since >= TAKE_OVER - 1
                if silent and number not in self.held and len(self.held) < self._most:
                    done = yield Write(FLEETS, PK, (Replace(row.rk, {"owner": self.host.name, "at": int(now)}, row.etag),))
                    if isinstance(done, Applied):
                        self.held[number] = now
                        self._taken.append((number, self._world.time.seconds))
            yield Wait(began + RENEW)


def measure(servers: int, partitions: int, crashes: int, at_once: int = 4) -> dict[str, Any]:
    """Return writes and entities a second, and the seconds from each crash to each partition's next owner."""
    world = World("the seed", traced=False)
    world.weather = AZURE
    for number in range(partitions):
        run_through(world.store.write(FLEETS, PK, [Insert(f"{number:05d}", {"owner": "", "at": 0})]))
    taken: list[tuple[int, float]] = []
    share = partitions // servers
    fleet = [Server(world, f"s{i}", range(i * share, (i + 1) * share), 2 * share, taken) for i in range(servers)]
    for server in fleet:
        server.start()
    world.run(2 * RENEW)
    before = dict(world.store.transactions)
    world.run(world.time.seconds + 5 * RENEW)
    made = {name: (count - before[name]) / (5 * RENEW) for name, count in world.store.transactions.items()}
    gaps: list[float] = []
    for _ in range(0, crashes, at_once):
        ended = world.random.sample([server for server in fleet if server.host.alive], at_once)
        for server in ended:
            server.host.alive = False
        at, gone = world.time.seconds, {number for server in ended for number in server.held}
        known = len(taken)
        world.run(at + 3 * TAKE_OVER)
        gaps += [when - at for number, when in taken[known:] if number in gone]
        for old in ended:
            fleet.remove(old)
            fresh = Server(world, f"{old.host.name}+", range(0), 2 * share, taken)
            fleet.append(fresh)
            fresh.start()
        world.run(world.time.seconds + 3 * RENEW * world.random.random())
    # A renewal reads nothing: its server knows the ETag from the one before. Here it is asked for.
    return {"writes": made["write"], "read": made["rows_read"] - made["get"], "gaps": sorted(gaps)}
