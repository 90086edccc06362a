"""CPU that requests to table storage cost this process: what `python -m bench cluster` charges for a request and for a row."""

from __future__ import annotations

import statistics
import time

from shared.core.clock import SystemClock
from shared.storage.azure.tables import AzureTables
from shared.storage.names import EVENTS
from shared.storage.ports import Applied, Insert, Merge, Props, RowQuery

from ..report import Figure
from ..tools.stage import Run, emulator, payload

GROUP = 99
SHARD = 990
ROW: Props = {"state": "scheduled", "body": payload(1), "size": 1000}


async def measure(run: Run) -> list[Figure]:
    """Write and read rows of 500 bytes one request after the other. A row's cost is what further rows of a request add."""
    rounds = run.pick(5, 2)
    found: dict[str, list[float]] = {"one": [], "group": [], "merge": [], "page": []}
    with emulator() as azurite:
        tables = AzureTables.from_connection_string(azurite.connection_string, SystemClock())
        await tables.ensure([EVENTS])
        for turn in range(rounds):
            run.report_progress("CPU of storage requests", turn, rounds)
            for name, seconds in (await _round(tables, turn)).items():
                found[name].append(seconds)
        await tables.close()
    one, group, merge, page = (1e6 * statistics.median(found[name]) for name in ("one", "group", "merge", "page"))
    note = f"an insert of one row; {GROUP} inserts in a transaction {group:,.0f} us, {GROUP} merges {merge:,.0f} us"
    return [
        Figure("CPU of a request to table storage", one, "us", note=note),
        Figure("  a further row that is inserted", (group - one) / (GROUP - 1), "us"),
        Figure("  a further row that is merged", (merge - one) / (GROUP - 1), "us"),
        Figure("  a further row that is read", (page - one) / (SHARD - 1), "us", note=f"a page of {SHARD} rows {page:,.0f} us"),
    ]


async def _round(tables: AzureTables, turn: int) -> dict[str, float]:
    """Return the seconds of CPU of a request of each kind."""
    seconds: dict[str, float] = {}
    shard = f"shard-{turn}"
    groups = [[f"e{number:03}" for number in range(at, at + GROUP)] for at in range(0, SHARD, GROUP)]
    etags: dict[str, str] = {}
    began = time.process_time()
    for names in groups:
        answer = await tables.write(EVENTS, shard, [Insert(name, dict(ROW)) for name in names])
        assert isinstance(answer, Applied)
        etags.update(zip(names, answer.etags, strict=True))
    seconds["group"] = (time.process_time() - began) / len(groups)
    began = time.process_time()
    for names in groups:
        answer = await tables.write(EVENTS, shard, [Merge(name, {"state": "firing", "epoch": 1}, etags[name]) for name in names])
        assert isinstance(answer, Applied)
    seconds["merge"] = (time.process_time() - began) / len(groups)
    began = time.process_time()
    for _ in range(5):
        assert len((await tables.query(RowQuery(EVENTS, shard, end="~"))).rows) == SHARD
    seconds["page"] = (time.process_time() - began) / 5
    began = time.process_time()
    for number in range(100):
        assert isinstance(await tables.write(EVENTS, f"one-{turn}", [Insert(f"{number}", dict(ROW))]), Applied)
    seconds["one"] = (time.process_time() - began) / 100
    return seconds
