"""Measures writes and reads of rows by our adapter, the SDK, and bare aiohttp, against one Azurite in one run.

    .venv/bin/python bench/storage_raw.py [--rows 20000] [--flight 8]

Inserts go in transactions of 100 rows with 500 bytes of payload. `bare aiohttp` sends bodies that were built and signed
before the clock starts and only counts the parts of the answer: the emulator's own limit. CPU is this process's, per entity.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
from azure.data.tables import EdmType, EntityProperty
from azure.data.tables.aio import TableClient
from azure.storage.queue import TextBase64EncodePolicy
from azure.storage.queue.aio import QueueClient
from yarl import URL

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from devhost.azurite import Azurite
from shared.core.clock import SystemClock
from shared.storage.azure import wire
from shared.storage.azure.account import VERSION, from_connection_string
from shared.storage.azure.queues import AzureQueues
from shared.storage.azure.tables import AzureTables
from shared.storage.memory import MemoryTables
from shared.storage.ports import ANY, Insert, Merge, Op, RowQuery

PAYLOAD = "x" * 500
type Job = Callable[[int], Awaitable[object]]


async def flight(jobs: int, width: int, job: Job) -> tuple[float, float]:
    """Run `job(0..jobs-1)`, `width` at a time. Return the seconds of wall and of CPU time."""
    numbers = iter(range(jobs))

    async def lane() -> None:
        for number in numbers:
            await job(number)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(lane() for _ in range(width)))
    return time.perf_counter() - wall, time.process_time() - cpu


def ops(batch: int) -> list[Op]:
    return [Insert(f"{batch:06}-{i:03}", {"payload": PAYLOAD, "due": 1_800_000_000_000 + i, "state": "ready"}) for i in range(100)]


def sdk_entity(op: Op) -> dict[str, object]:
    assert isinstance(op, Insert)
    due = EntityProperty(op.props["due"], EdmType.INT64)
    return {"PartitionKey": "p", "RowKey": op.rk, **op.props, "due": due}


async def bare(connection: str, table: str, batches: int, width: int, pk: str) -> tuple[float, float]:
    account = from_connection_string("table", connection)
    bodies = [wire.batch_body(account.base, table, pk, ops(batch)) for batch in range(batches)]
    url = URL(f"{account.base}/$batch", encoded=True)
    headers = {**wire.BATCH, "x-ms-version": VERSION}
    await account.credential.authorize("POST", f"{account.path}/$batch", {}, headers, 0)
    async with aiohttp.ClientSession() as session:

        async def send(batch: int) -> None:
            async with session.post(url, data=bodies[batch], headers=headers) as answer:
                assert (await answer.read()).count(b"HTTP/1.1 204") == 100

        return await flight(batches, width, send)


async def run(rows: int, width: int, rounds: int) -> dict[str, object]:
    batches = rows // 100
    found: dict[str, list[tuple[float, float]]] = {}
    single: dict[str, tuple[float, float]] = {}
    with Azurite(memory=True) as azurite:
        text = azurite.connection_string
        tables, queues = AzureTables.from_connection_string(text), AzureQueues.from_connection_string(text)
        sdk_table = TableClient.from_connection_string(text, "Bench")
        sdk_queue = QueueClient.from_connection_string(text, "bench", message_encode_policy=TextBase64EncodePolicy())
        await queues.ensure(["bench"])
        for turn in range(rounds):
            # A new table each time: Azurite slows with the rows of one.
            for way in ("bare", "ours", "sdk"):
                table = f"Bench{way}{turn}"
                await tables.ensure([table])
                count = batches if way != "sdk" else max(1, batches // 4)
                if way == "bare":
                    wall, cpu = await bare(text, table, count, width, "p")
                elif way == "ours":
                    wall, cpu = await flight(count, width, lambda batch, table=table: tables.write(table, "p", ops(batch)))  # type: ignore[misc]
                else:
                    client = TableClient.from_connection_string(text, table)

                    def send(batch: int, client: TableClient = client) -> Awaitable[object]:
                        return client.submit_transaction([("create", sdk_entity(op)) for op in ops(batch)])

                    wall, cpu = await flight(count, width, send)
                    await client.close()
                found.setdefault(f"insert {way}", []).append((count * 100 / wall, cpu / count / 100 * 1e6))
            # Pages of what was just written.
            pages = 20
            wall, cpu = await flight(pages, 4, lambda _, turn=turn: tables.query(RowQuery(f"Benchours{turn}", "p")))  # type: ignore[misc]
            found.setdefault("read ours", []).append((pages * 1000 / wall, cpu / pages / 1000 * 1e6))
            client = TableClient.from_connection_string(text, f"Benchours{turn}")

            async def page(_: int, client: TableClient = client) -> None:
                async for one in client.query_entities("PartitionKey eq 'p'").by_page():
                    assert len([entity async for entity in one]) == 1000
                    return

            wall, cpu = await flight(pages, 4, page)
            found.setdefault("read sdk", []).append((pages * 1000 / wall, cpu / pages / 1000 * 1e6))
            await client.close()
        count = 1000
        small, entity = "Bench", {"PartitionKey": "p", "RowKey": "r", "v": 1}
        await tables.ensure([small])
        await tables.write(small, "p", [Insert("r", {"v": 1})])
        calls: dict[str, Job] = {
            "get ours": lambda _: tables.get(small, "p", "r"),
            "get sdk": lambda _: sdk_table.get_entity("p", "r"),
            "merge ours": lambda i: tables.write(small, "p", [Merge("r", {"v": i}, ANY)]),
            "merge sdk": lambda _: sdk_table.update_entity(entity),
            "send ours": lambda _: queues.send("bench", PAYLOAD),
            "send sdk": lambda _: sdk_queue.send_message(PAYLOAD, time_to_live=-1),
        }
        for name, job in calls.items():
            wall, cpu = await flight(count, 8, job)
            single[name] = (count / wall, cpu / count * 1e6)
        for closing in (tables, queues, sdk_table, sdk_queue):
            await closing.close()
    twin = MemoryTables(SystemClock())
    await twin.ensure(["Bench"])
    wall, cpu = await flight(batches, 1, lambda batch: twin.write("Bench", f"{batch}", ops(batch)))
    single["insert twin"] = (rows / wall, cpu / rows * 1e6)
    best = {name: tuple(statistics.median(column) for column in zip(*runs, strict=True)) for name, runs in found.items()}
    return {name: {"per_second": round(rate), "cpu_us": round(cpu, 1)} for name, (rate, cpu) in {**best, **single}.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--flight", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore", ResourceWarning)
    results = asyncio.run(run(given.rows, given.flight, given.rounds))
    if given.json:
        print(json.dumps(results))
        return
    for name, figures in results.items():
        assert isinstance(figures, dict)
        print(f"{name:14} {figures['per_second']:>9,} /s   CPU {figures['cpu_us']:>7} us")


if __name__ == "__main__":
    main()
