"""A throttled account: a fifth of all transactions of tables is answered with 503 and `Retry-After`, and half of those were applied."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bench.tools.throttle import Throttling, start
from devhost.azurite import Azurite

from ..conftest import System, Tenant, eventually, now_ms, text_of
from ..receiver import Receiver

EVENTS, BATCH = 300, 30


@dataclass
class Behind:
    """Storage as the app sees it."""

    connection_string: str


@asynccontextmanager
async def behind(azurite: Azurite, throttling: Throttling) -> AsyncIterator[Azurite]:
    """The same storage with a proxy before its tables."""
    found = re.search(r"TableEndpoint=http://127\.0\.0\.1:(\d+)/", azurite.connection_string)
    assert found is not None
    runner, port = await start(int(found[1]), throttling, 7)
    try:
        yield cast(Azurite, Behind(azurite.connection_string.replace(f":{found[1]}/", f":{port}/")))
    finally:
        await runner.cleanup()


async def acknowledged(tenant: Tenant, events: list[dict[str, Any]]) -> int:
    """Post events with ids until each is acknowledged, as a client does; return the number of calls."""
    calls, left = 0, events
    while left:
        calls += 1
        assert calls < 50, "the API takes events while storage is throttled"
        answer = await tenant.api.post("events/batch", left)
        if answer.status == 503:
            continue
        assert answer.status == 200, answer
        lines = answer.json()["results"]
        assert {line["status"] for line in lines} <= {200, 201, 503}, lines
        left = [event for event, line in zip(left, lines, strict=True) if line["status"] == 503]
    return calls


async def test_with_a_fifth_of_all_batches_throttled_no_acknowledged_event_is_lost_and_each_is_delivered_once(
    tmp_path: Path, receiver: Receiver
) -> None:
    throttling = Throttling(0.0, batches=True, retry_after=1)
    with Azurite(memory=True) as azurite:
        async with behind(azurite, throttling) as storage:
            system = System(tmp_path, storage, receiver)
            await asyncio.to_thread(system.host.start)
            try:
                async with system.tenant() as tenant:
                    throttling.share = 0.2
                    first = now_ms() + 10_000
                    events = [{"id": f"event-{n}", "due": text_of(first + 30 * n), "payload": n} for n in range(EVENTS)]
                    batches = [events[at : at + BATCH] for at in range(0, EVENTS, BATCH)]
                    await asyncio.gather(*(acknowledged(tenant, batch) for batch in batches))
                    ids = {event["id"] for event in events}
                    await eventually(lambda: tenant.by_id().keys() >= ids, "every event to be delivered", 300)

                    async def settled() -> bool:
                        return Counter(event["state"] for event in await tenant.api.all("events?limit=1000")) == {"delivered": EVENTS}

                    await eventually(settled, "every event to be settled", 300, pause=0.5)
                    assert {event_id: len(hits) for event_id, hits in tenant.by_id().items()} == dict.fromkeys(ids, 1)
                    assert throttling.refused > 0.1 * throttling.passed, "storage was throttled"
                    stats = await tenant.api.stats()
                    assert (stats["delivered"], stats["dead"]) == (EVENTS, 0), stats
            finally:
                throttling.share = 0.0
                await asyncio.to_thread(system.host.end)
