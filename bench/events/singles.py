"""Single POSTs through the whole HTTP path, and cancels."""

from __future__ import annotations

import statistics
import time

import aiohttp
from yarl import URL

from shared.app.application import Application
from shared.scheduler.changes.verbs import ChangeRequest
from shared.scheduler.ingest.admission import Admitted
from shared.storage.azure import wire
from shared.storage.azure.account import VERSION, from_connection_string
from shared.storage.azure.tables import _WRITE
from shared.storage.names import EVENTS
from shared.storage.ports import Insert

from ..report import Figure
from ..tools import machine
from ..tools.stage import FLIGHT, KEY, TENANT, Run, application, batch_text, devhost, emulator, event_text, flight, load

HOUR = 3_600_000
SHARD = 990
HEADERS = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}


async def posts(run: Run) -> list[Figure]:
    """Measure single POSTs and a no-op route through the same worker, in turns."""
    rounds, seconds = run.pick(4, 2), run.pick(4.0, 2.0)
    rates: dict[str, list[float]] = {"post": [], "noop": []}
    cpu: dict[str, list[float]] = {"post": [], "noop": []}
    took: list[tuple[float, float]] = []
    with emulator() as azurite:
        async with devhost(azurite.connection_string) as host:
            due = HOUR * 24 + int(1000 * time.time())
            calls = {
                "post": [("POST", "/api/v1/events", HEADERS, event_text(number, due + number)) for number in range(1000)],
                "noop": [("GET", "/api/healthz", {}, "")],
            }
            for turn in range(-1, rounds):
                run.report_progress("single POSTs", turn + 1, rounds + 1)
                for name in ("noop", "post"):
                    before = machine.cpu_seconds(host.pid)
                    found = await load(host, calls[name], seconds=1.0 if turn < 0 else seconds)
                    assert set(found["statuses"]) <= {"200", "201"}, found["statuses"]
                    if turn >= 0:
                        rates[name].append(found["count"] / found["seconds"])
                        cpu[name].append((machine.cpu_seconds(host.pid) - before) / found["count"] * 1e6)
                        if name == "post":
                            took.append((found["p50"], found["p99"]))
    rate, noop = statistics.median(rates["post"]), statistics.median(rates["noop"])
    share = statistics.median(post / other for post, other in zip(rates["post"], rates["noop"], strict=True))
    p50, p99 = (statistics.median(column) for column in zip(*took, strict=True))
    note = (
        f"devhost process, client in another; {statistics.median(cpu['post']):.0f} us CPU a request in the devhost; "
        f"answered in {p50:.0f} ms (p50), {p99:.0f} ms (p99)"
    )
    return [
        Figure(f"single POSTs, {FLIGHT} in flight, whole HTTP path", rate, "/s", ">=", 1500, note, rates),
        Figure("  a no-op route through the same worker", noop, "/s", note=f"healthz: {statistics.median(cpu['noop']):.0f} us CPU"),
        Figure("  single POSTs / a no-op route", share, "", ">=", 0.5, "median of the rounds"),
    ]


async def cancels(run: Run) -> list[Figure]:
    """Measure cancels of one shard's events beside merges of single rows, in turns; then through HTTP."""
    rounds = run.pick(7, 3)
    ours: list[float] = []
    bare: list[float] = []
    with emulator() as azurite:
        text = azurite.connection_string
        async with application(text) as (app, _):
            for turn in range(-1, rounds):
                run.report_progress("cancels", turn + 1, rounds + 2)
                ours.append(await _ours(app, turn))
                bare.append(await _bare(app, text, turn))
        async with devhost(text) as host:
            through: list[float] = []
            for _ in range(run.pick(3, 1)):
                ids = await host.batch([int(app.clock.now()) + 48 * HOUR] * SHARD)
                found = await load(host, [("DELETE", f"/api/v1/events/{id}", HEADERS, "") for id in ids])
                assert set(found["statuses"]) == {"204"}, found["statuses"]
                through.append(found["count"] / found["seconds"])
    ratio = statistics.median(mine / other for mine, other in zip(ours[1:], bare[1:], strict=True))
    note = f"{statistics.median(ours[1:]):,.0f} against {statistics.median(bare[1:]):,.0f}/s, {rounds} rounds of {SHARD} in turns"
    return [
        Figure(
            f"cancels, {FLIGHT} in flight, one shard / merges by a bare client", ratio, "", ">=", 0.5, note, {"ours": ours, "bare": bare}
        ),
        Figure("  cancels through HTTP", statistics.median(through), "/s", note="DELETE to a devhost process, client in another"),
    ]


async def _ours(app: Application, turn: int) -> float:
    """`Changes.cancel` of each event of one full shard, by its id."""
    due = app.clock.now() + (30 + turn) * HOUR
    made = await app.scheduler.ingest.batch(TENANT, batch_text([due - due % 60_000 + 1000] * SHARD), lines=True)
    ids = [each.id for each in made if isinstance(each, Admitted)]
    assert len({id.partition(".")[0] for id in ids}) == 1, "not one shard"
    wall, _ = await flight([lambda id=id: app.scheduler.changes.cancel(ChangeRequest(TENANT), id) for id in ids], FLIGHT)  # type: ignore[misc]
    return SHARD / wall


async def _bare(app: Application, text: str, turn: int) -> float:
    """PATCH of each row of such a partition, on its ETag, by a bare aiohttp client."""
    account, pk = from_connection_string("table", text), f"merges-{turn}"
    etags: dict[str, str] = {}
    for start in range(0, SHARD, 99):
        ops = [Insert(f"e{number:03}", {"state": "scheduled", "body": "x" * 500}) for number in range(start, min(start + 99, SHARD))]
        answer = await app.storage.tables.write(EVENTS, pk, ops)
        etags |= dict(zip([op.rk for op in ops], answer.etags, strict=True))  # type: ignore[union-attr]
    body = wire.encode_row(pk, "e000", {"state": "cancelled", "ended": 1_800_000_000_000, "by": "0123456789abcdef"})

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=128)) as session:

        async def merge(rk: str) -> None:
            path = f"/{wire.entity_path(EVENTS, pk, rk)}"
            headers = {**_WRITE, "If-Match": etags[rk], "x-ms-version": VERSION}
            await account.credential.authorize("PATCH", account.path + path, {}, headers, 0)
            row = body.replace(b'"e000"', f'"{rk}"'.encode())
            async with session.patch(URL(account.base + path, encoded=True), data=row, headers=headers) as reply:
                await reply.read()
                assert reply.status == 204, reply.status

        wall, _ = await flight([lambda rk=rk: merge(rk) for rk in etags], FLIGHT)  # type: ignore[misc]
    return SHARD / wall
