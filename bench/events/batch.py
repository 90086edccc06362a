"""Batch ingest beside the same rows written by a bare aiohttp client and by the SDK, in rounds that take turns."""

from __future__ import annotations

import statistics
import time

import aiohttp
from azure.data.tables import EdmType, EntityProperty
from azure.data.tables.aio import TableClient, TableServiceClient
from yarl import URL

from shared.app.application import Application
from shared.scheduler.keys import event_row
from shared.storage.azure import wire
from shared.storage.azure.account import VERSION, from_connection_string
from shared.storage.names import EVENTS
from shared.storage.ports import Insert, Op

from ..report import Figure
from ..tools.stage import TENANT, Run, application, batch_text, chunks, emulator, flight, payload, spread

BATCH = 1000
WIDTH = 8
HOUR = 3_600_000
GROUP = 100


async def measure(run: Run) -> list[Figure]:
    """Measure our adapter, the bare client and the SDK in turns."""
    rounds, count = run.pick(7, 3), 20_000
    ours: list[float] = []
    bare: list[float] = []
    sdk: list[float] = []
    cpu: list[float] = []
    with emulator() as azurite:
        text = azurite.connection_string
        async with application(text) as (app, _):
            for turn in range(-1, rounds):
                run.report_progress("batch ingest", turn + 1, rounds + 1)
                await _empty(text)
                wall, used = await _ours(app, count, turn)
                ours.append(count / wall)
                cpu.append(used / count * 1e6)
                await _empty(text)
                bare.append(count / (await _bare(text, count, turn))[0])
                await _empty(text)
                few = count // 8
                sdk.append(few / await _sdk(text, few, turn))
    # The first round of each made connections and compiled what is compiled late.
    ours, bare, sdk, cpu = ours[1:], bare[1:], sdk[1:], cpu[1:]
    rates = {"ours": statistics.median(ours), "bare": statistics.median(bare), "sdk": statistics.median(sdk)}
    to_bare = statistics.median(mine / other for mine, other in zip(ours, bare, strict=True))
    to_sdk = statistics.median(mine / other for mine, other in zip(ours, sdk, strict=True))
    note = (
        f"{rates['ours']:,.0f} against {rates['bare']:,.0f} rows/s, {WIDTH} in flight, {rounds} rounds of {count:,} in turns; batches of "
        f"{BATCH:,} through Ingest.batch, {statistics.median(cpu):.0f} us CPU an event; bare: ready-made bodies; an empty table each time"
    )
    details = {"ours": ours, "bare": bare, "sdk": sdk, "cpu_us": cpu}
    return [
        Figure("batch ingest rate / bare aiohttp client", to_bare, "", ">=", 0.6, note, details),
        Figure(
            "batch ingest rate / azure-data-tables", to_sdk, "", ">=", 4, f"submit_transaction of 100 creates: {rates['sdk']:,.0f} rows/s"
        ),
    ]


async def _empty(text: str) -> None:
    """Azurite slows with the rows of a table: halves at 100,000. So everyone starts with an empty one."""
    async with TableServiceClient.from_connection_string(text) as service:
        await service.delete_table(EVENTS)
        await service.create_table(EVENTS)


async def _ours(app: Application, count: int, turn: int) -> tuple[float, float]:
    """Send batches through `Ingest.batch`. Each round has a minute of its own, far ahead."""
    first = app.clock.now() + (24 + turn) * HOUR
    bodies = [batch_text(part) for part in chunks(spread(count, first - first % 60_000, 60_000, turn), BATCH)]

    async def send(body: bytes) -> None:
        results = await app.scheduler.ingest.batch(TENANT, body, lines=True)
        assert all(getattr(result, "new", False) for result in results), results[:1]

    return await flight([lambda body=body: send(body) for body in bodies], WIDTH)  # type: ignore[misc]


def rows(name: str, number: int) -> list[Op]:
    """Return a hundred rows with the properties and sizes of event rows."""
    now = int(time.time() * 1000)
    return [
        Insert(
            event_row(number * GROUP % 1000 + each),
            {
                "state": "scheduled",
                "due": now + HOUR + each,
                "created": now,
                "channel": "default",
                "size": 1000,
                "body": payload(each),
                "id": f"{name}.{number}.{each:03}",
            },
        )
        for each in range(GROUP)
    ]


async def _bare(text: str, count: int, turn: int) -> tuple[float, float]:
    """Send bodies that were built and signed before the clock starts. Only the parts of the answers are counted."""
    account = from_connection_string("table", text)
    batches = count // GROUP
    bodies = [wire.batch_body(account.base, EVENTS, f"bare-{turn}-{batch // 10}", rows("bare", batch)) for batch in range(batches)]
    url = URL(f"{account.base}/$batch", encoded=True)
    headers = {**wire.BATCH, "x-ms-version": VERSION}
    await account.credential.authorize("POST", f"{account.path}/$batch", {}, headers, 0)
    async with aiohttp.ClientSession() as session:

        async def send(body: bytes) -> None:
            async with session.post(url, data=body, headers=headers) as answer:
                assert (await answer.read()).count(b"HTTP/1.1 204") == GROUP

        return await flight([lambda body=body: send(body) for body in bodies], WIDTH)  # type: ignore[misc]


async def _sdk(text: str, count: int, turn: int) -> float:
    """Call `submit_transaction` with entities made beforehand."""
    batches = [
        [("create", _entity(f"sdk-{turn}-{batch // 10}", op)) for op in rows("sdk", batch) if isinstance(op, Insert)]
        for batch in range(count // GROUP)
    ]
    async with TableClient.from_connection_string(text, EVENTS) as client:
        return (await flight([lambda batch=batch: client.submit_transaction(batch) for batch in batches], WIDTH))[0]  # type: ignore[misc]


def _entity(pk: str, op: Insert) -> dict[str, object]:
    typed = {name: EntityProperty(value, EdmType.INT64) if isinstance(value, int) else value for name, value in op.props.items()}
    return {"PartitionKey": pk, "RowKey": op.rk, **typed}
