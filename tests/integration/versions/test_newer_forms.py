"""A host on storage whose stored forms are those of a newer version, as after a rollback that came too late."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from devhost.azurite import Azurite
from shared.engine.stored_forms import FORMS_ROW, STORED_FORMS, FormsRow
from shared.storage.azure.tables import AzureTables
from shared.storage.names import PK_TICKS, SWEEPS
from shared.storage.ports import Upsert
from tests.integration.scheduler.conftest import Api, Host, eventually, now_ms, text_of
from tests.integration.scheduler.receiver import Receiver

pytestmark = pytest.mark.long
"""A host that starts three times."""


async def test_the_host_serves_reads_until_its_version_may_work_again_and_then_delivers_what_waited(
    tmp_path: Path,
) -> None:
    receiver = Receiver().start()
    with Azurite(memory=True) as azurite:
        tables = AzureTables.from_connection_string(azurite.connection_string)

        async def store(number: int) -> None:
            await tables.write(SWEEPS, PK_TICKS, (Upsert(FORMS_ROW, FormsRow(number).props()),))

        host = Host(tmp_path, azurite.connection_string, receiver)
        try:
            await asyncio.to_thread(host.start)
            async with Api(host.url, "local-demo-key") as demo, httpx.AsyncClient(base_url=host.url) as anyone:
                due = now_ms() + 20_000
                waits = await demo.create(due=text_of(due), payload="waits")
                await store(STORED_FORMS + 1)

                async def refuses() -> bool:
                    ready = await anyone.get("/api/readyz")
                    return ready.status_code == 503 and ready.json()["type"].endswith("/newer-stored-forms")

                for _ in range(2):
                    await eventually(refuses, "readyz with newer-stored-forms", pause=0.5)
                    answer = await demo.post("events", {"delay": "PT1S", "payload": "refused"})
                    assert (answer.status, answer.json()["type"].rpartition("/")[2]) == (503, "newer-stored-forms")
                    assert (await demo.event(waits))["state"] == "scheduled"
                    # The same holds for a process that starts on such storage.
                    assert await asyncio.to_thread(host.terminate) == 0
                    await asyncio.to_thread(host.start)

                async def overdue() -> bool:
                    return now_ms() > due + 5_000

                await eventually(overdue, "the due time", pause=0.5)
                assert receiver.at("/demo") == [], "nothing is delivered"
                assert await asyncio.to_thread(host.terminate) == 0
                await store(STORED_FORMS)
                await asyncio.to_thread(host.start)

                async def delivered() -> bool:
                    return (await demo.event(waits))["state"] == "delivered"

                await eventually(delivered, "the event that waited", pause=0.5)
                assert [hit.id for hit in receiver.at("/demo")] == [waits]
        finally:
            await asyncio.to_thread(host.end)
            await tables.close()
            receiver.stop()
