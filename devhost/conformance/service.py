"""Checks the behaviour of the storage service where Azurite is known to differ: ETags, times, limits, kept connections, throttling.

Each check returns a line about what it saw. It fails with AssertionError, and raises `Noted` for a known difference of an emulator.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from devhost.conformance.access import RunTables, StorageAccess, Traffic
from devhost.conformance.report import Noted, Report
from shared.core.clock import ServerTime, SystemClock, aged, combine, sample
from shared.core.errors import OutcomeUnknown, Unavailable
from shared.storage import limits
from shared.storage.azure import wire
from shared.storage.azure.transport import TransportPolicy
from shared.storage.ports import ANY, Applied, Insert, Merge, RowQuery, Upsert
from shared.storage.server_time import ServerTimeEstimator, elapsed_ms, etag_time

TABLE: Final = "Service"
ROUNDS, AT_ONCE = 20, 16
PARTITIONS: Final = 16
TIMED_WRITES: Final = 20
"""Writes to each partition whose times are compared: the quickest gives the narrowest bounds."""
MOST_APART: Final = 1_000.0
"""Milliseconds by which the clocks of partitions may differ: half of the width of bounds that still correct a clock."""
BURST_ROWS: Final = 100
BURST_AT_ONCE: Final = 32
_JSON: Final = {**wire.READ, "Content-Type": "application/json", "Prefer": "return-no-content"}


@dataclass
class Target:
    """The table under test, and the traffic of its connection."""

    tables: RunTables
    traffic: Traffic
    server_time: ServerTimeEstimator
    emulated: bool
    batches: int
    """Batches of the burst."""

    def differs(self, line: str) -> AssertionError | Noted:
        """Return the exception for a behaviour that is allowed only to an emulator."""
        return Noted(f"{line}; Azurite is known for it") if self.emulated else AssertionError(line)

    async def refused(self, method: str, path: str, body: bytes, **headers: str) -> str:
        """Send a request past the adapter's own checks; return the service's error code, or '' if it took the request."""
        answer = await self.tables.wire.call("write", method, path, headers={**_JSON, **headers}, body=body, repeat=False)
        return wire.parse_failure(answer.status, answer.body).code if answer.status >= 300 else ""


async def etags_are_unique(target: Target) -> str:
    """Every write of a row gets an ETag of its own, also within a millisecond: all conditional writes rely on it."""
    seen: list[str] = []
    await target.tables.write(TABLE, "etags", [Insert("r", {"n": 0})])
    for _ in range(ROUNDS):
        answers = await asyncio.gather(*(target.tables.write(TABLE, "etags", [Merge("r", {"n": n}, ANY)]) for n in range(AT_ONCE)))
        seen += [answer.etags[0] for answer in answers if isinstance(answer, Applied)]
    times = Counter(etag_time(etag) for etag in seen)
    shared = sum(count for count in times.values() if count > 1)
    line = f"{len(seen)} writes of one row, {shared} of them within one millisecond of another, {len(seen) - len(set(seen))} equal ETags"
    if len(set(seen)) < len(seen):
        raise target.differs(line)
    return line


async def etag_is_the_timestamp(target: Target) -> str:
    """The ETag of a write contains the row's Timestamp: the scheduler's clock is checked by it."""
    one = await target.tables.write(TABLE, "times", [Insert("a", {})])
    many = await target.tables.write(TABLE, "times", [Insert("b", {}), Insert("c", {})])
    assert isinstance(one, Applied) and isinstance(many, Applied)
    found = dict(zip("abc", one.etags + many.etags, strict=True))
    for key, etag in found.items():
        row = await target.tables.get(TABLE, "times", key)
        assert row is not None and row.etag == etag, f"row {key} has ETag {row and row.etag}, its write answered {etag}"
        assert etag_time(etag) == row.timestamp, f"the ETag {etag} does not hold the Timestamp {row.timestamp}"
    digits = re.search(r"\.(\d+)Z", one.etags[0])
    same = "the same" if len(set(many.etags)) == 1 else "another"
    return f"{len(digits[1]) if digits else 0} decimals of a second; rows of one batch have {same} ETag"


async def times_of_the_service(target: Target) -> str:
    """`Date` has whole seconds and is not behind a write before it; the service's time is near this machine's."""
    await target.tables.write(TABLE, "times", [Upsert("now", {})])
    row = await target.tables.get(TABLE, "times", "now")
    assert row is not None
    assert row.read_at % 1000 == 0, f"Date {row.read_at} has milliseconds"
    assert row.read_at > row.timestamp - 2000, f"Date {row.read_at} is far behind the Timestamp {row.timestamp}"
    bounds = target.server_time.bounds
    assert bounds is not None, "the ETags of writes gave no bounds of the service's time"
    resolution = "milliseconds or finer" if row.timestamp % 1000 else "not known from one row"
    now = SystemClock().now()
    return f"Timestamp in {resolution}, Date in seconds; Date is {(now - row.read_at) / 1000:+.1f} s behind this machine's clock"


async def times_of_partitions(target: Target) -> str:
    """The clocks of the servers behind 16 partitions are near each other: a process's deliveries follow the one that it wrote to last."""
    elapsed = elapsed_ms(SystemClock())
    seen: dict[str, ServerTime] = {}

    async def ask(pk: str) -> None:
        sent = elapsed()
        answer = await target.tables.write(TABLE, pk, [Upsert("now", {})])
        received = elapsed()
        if isinstance(answer, Applied) and (written := etag_time(answer.etags[0])) is not None:
            seen[pk] = combine(seen.get(pk), sample(sent, received, written))

    for _ in range(TIMED_WRITES):
        await asyncio.gather(*(ask(f"times{number:x}") for number in range(PARTITIONS)))
    assert len(seen) == PARTITIONS, f"only the ETags of {len(seen)} of {PARTITIONS} partitions hold a time"
    least, most = spread_of(seen.values(), elapsed())
    line = f"the clocks of {PARTITIONS} partitions are at least {least:.0f} and at most {most:.0f} ms apart"
    assert least <= MOST_APART, f"{line}: an event can be early by that much"
    if least > 0:
        raise Noted(f"{line}: an event can be early by that much, by the clock of another partition")
    return line


def spread_of(seen: Iterable[ServerTime], at: float) -> tuple[float, float]:
    """Return the least and the most, in milliseconds, by which the fastest clock is ahead of the slowest at the monotonic moment `at`."""
    bounds = [aged(each, at) for each in seen]
    lowest, highest = min(each.high for each in bounds), max(each.low for each in bounds)
    return max(0.0, highest - lowest), max(each.high for each in bounds) - min(each.low for each in bounds)


async def limits_of_the_service(target: Target) -> str:
    """The service refuses what is over its limits. The adapter's own checks are bypassed."""
    path = f"/{target.tables.named(TABLE)}"
    wide = wire.encode_row("limits", "wide", {f"p{number}": number for number in range(limits.MAX_PROPS + 1)})
    large = wire.encode_row("limits", "large", {f"s{number}": "x" * 32000 for number in range(17)})
    found = {
        "253 properties": await target.refused("POST", path, wide),
        "an entity over 1 MiB": await target.refused("POST", path, large),
        "a string over 64 KiB": await target.refused("POST", path, wire.encode_row("limits", "long", {"s": "x" * 32769})),
    }
    await target.tables.write(TABLE, "limits", [Insert("full", {f"p{number}": number for number in range(limits.MAX_PROPS)})])
    row = f"/{wire.entity_path(target.tables.named(TABLE), 'limits', 'full')}"
    grown = wire.encode_row("limits", "full", {"one": 1})
    found["a merge to 253 properties"] = await target.refused("PATCH", row, grown, **{"If-Match": ANY})
    line = "; ".join(f"{what}: {code or 'accepted'}" for what, code in found.items())
    if not all(found.values()):
        raise target.differs(line)
    return line


async def comparisons_by_type(target: Target) -> str:
    """A condition matches no row whose property has another type."""
    await target.tables.write(TABLE, "types", [Insert("r", {"i": 5, "s": "5"})])
    tests = {"an integer with a fraction": "i lt 5.5", "an integer with a text": "i eq '5'", "a text with an integer": "s eq 5L"}
    found = {}
    for what, condition in tests.items():
        query = {"$filter": f"PartitionKey eq 'types' and {condition}"}
        path = f"/{target.tables.named(TABLE)}()"
        answer = await target.tables.wire.call("query", "GET", path, query=query, headers=wire.READ, repeat=True)
        rows = wire.decode_page("types", answer.body, 0) if answer.status == 200 else []
        found[what] = "refused" if answer.status >= 400 else "matches" if rows else "no match"
    line = "; ".join(f"{what}: {seen}" for what, seen in found.items())
    if "matches" in found.values():
        raise target.differs(line)
    return line


async def connections_last(target: Target) -> str:
    """An idle connection is still good shortly before the adapter would drop it."""
    idle = target.tables.wire.account.idle_seconds * 0.9
    tables = target.tables
    await tables.get(TABLE, "p", "r")
    opened = target.traffic.opened
    await asyncio.sleep(idle)
    await tables.get(TABLE, "p", "r")
    line = f"a request after {idle:.0f} s of silence"
    if target.traffic.opened > opened:
        raise Noted(f"{line} needed a new connection: the service closes connections before the {idle:.0f} s that the adapter keeps them")
    return f"{line} went over the kept connection"


async def throttling(target: Target) -> str:
    """A burst into one partition: everything that was answered as stored is there; refusals show how the service throttles."""
    before, began = Counter(target.traffic.faults), asyncio.get_running_loop().time()
    outcomes: Counter[str] = Counter()
    numbers = iter(range(target.batches))

    async def lane() -> None:
        for number in numbers:
            ops = [Insert(f"{number:05d}:{row:03d}", {"n": row}) for row in range(BURST_ROWS)]
            try:
                answer = await target.tables.write(TABLE, "burst", ops)
            except OutcomeUnknown:
                outcomes["unknown"] += 1
            except Unavailable:
                outcomes["refused"] += 1
            else:
                outcomes["stored" if isinstance(answer, Applied) else "wrong"] += 1

    await asyncio.gather(*(lane() for _ in range(BURST_AT_ONCE)))
    seconds = asyncio.get_running_loop().time() - began
    rows = await _count(target.tables, "burst")
    least, most = outcomes["stored"] * BURST_ROWS, (outcomes["stored"] + outcomes["unknown"]) * BURST_ROWS
    assert outcomes["wrong"] == 0 and rows % BURST_ROWS == 0 and least <= rows <= most, f"{rows} rows are there after {dict(outcomes)}"
    faults = Counter(target.traffic.faults) - before
    seen = ", ".join(f"{count} x {name}" for name, count in sorted(faults.items())) or "no 503, 500 or 429"
    waits = f"; Retry-After: {', '.join(sorted(set(target.traffic.retry_after)))}" if target.traffic.retry_after else ""
    line = f"{target.batches} batches of {BURST_ROWS} rows at {rows / seconds:,.0f} rows/s: {seen}{waits}"
    if target.emulated:
        raise Noted(f"{line}; Azurite never throttles")
    return line


async def _count(tables: RunTables, pk: str) -> int:
    count, cursor = 0, None
    while True:
        page = await tables.query(RowQuery(TABLE, pk, select=(), cursor=cursor))
        count += len(page.rows)
        if (cursor := page.next) is None:
            return count


CHECKS: Final[Mapping[str, Callable[[Target], Awaitable[str]]]] = {
    "ETags are unique": etags_are_unique,
    "ETags hold the Timestamp": etag_is_the_timestamp,
    "times of the service": times_of_the_service,
    "times of partitions": times_of_partitions,
    "limits of the service": limits_of_the_service,
    "comparisons by type": comparisons_by_type,
    "connections last": connections_last,
    "throttling": throttling,
}


async def run(access: StorageAccess, report: Report, batches: int) -> None:
    """Run the checks. batches: the number of batches in the burst."""
    traffic, server_time = Traffic(), ServerTimeEstimator(SystemClock())
    tables = access.tables(traffic, TransportPolicy(attempts=5), server_time=server_time)
    target = Target(tables, traffic, server_time, access.emulated, batches)
    try:
        await tables.ensure([TABLE])
        for number, (name, check) in enumerate(CHECKS.items()):
            report.progress("service", number, len(CHECKS))
            await report.run(name, check(target))
    finally:
        report.end_progress()
        await tables.close()
