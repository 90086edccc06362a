"""Loads of fleets: servers by table and over HTTP, and replicas that take checkpoints in turns."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
import uuid
from typing import Any, Final, Literal

from shared.checkpoints.node.messages import Health
from shared.checkpoints.node.participant import CheckpointParticipant

from ..tools.stage import KEY, TENANT, child
from .measuring import Stage

SERVERS: Final = 64
PARTITIONS: Final = 1024
REPLICAS: Final = 5
TAKING: Final = 30.0
"""Seconds that a checkpoint takes."""
START: Final = 420.0
"""Seconds within which all partitions must have a server."""


async def by_table(found: Stage) -> None:
    """Servers with the library, in a process of their own."""
    await found.call("PUT", "/fleets/f", {"partitions": PARTITIONS})
    ready = asyncio.Event()

    async def go() -> None:
        environment = {**os.environ, "TABLES": found.azurite.connection_string}
        async with child("-m", "bench.cost.keepers", TENANT, "f", str(SERVERS), env=environment) as process:
            assert process.stdout is not None
            while line := await process.stdout.readline():
                if line == b"balanced\n":
                    ready.set()
            raise RuntimeError("the servers have ended")

    await _started(found, go(), ready)


async def over_http(found: Stage) -> None:
    """Servers that send heartbeats over HTTP."""
    await found.call("PUT", "/fleets/f", {"partitions": PARTITIONS})
    held: dict[str, int] = {}
    ready = asyncio.Event()

    async def server(name: str) -> None:
        incarnation, seq, wait = str(uuid.uuid4()), 0, 5.0
        # They do not all start at the same moment.
        await asyncio.sleep(wait * int(name[1:]) / SERVERS)
        while True:
            began, seq = time.monotonic(), seq + 1
            body: dict[str, Any] = {"incarnation": incarnation, "seq": seq, "fault_domain": f"d{int(name[1:]) % 3}"}
            answer = await found.call("POST", f"/fleets/f/nodes/{name}/beat", body, expect=(200, 409, 503))
            if "held" in answer:
                wait = answer["beat_ms"] / 1000
                held[name] = len(answer["held"])
                if sum(held.values()) == PARTITIONS:
                    ready.set()
                base = {"node": name, "incarnation": incarnation}
                if answer["assign"]:
                    claim = {**base, "partitions": answer["assign"][:99], "generation": answer["generation"]}
                    await found.call("POST", "/fleets/f/leases/claim", claim, expect=(200, 409, 503))
                for partition in answer["release"]:
                    release = {**base, "epoch": answer["held"][str(partition)]}
                    await found.call("POST", f"/fleets/f/leases/{partition}/release", release, expect=(204, 409, 503))
            await asyncio.sleep(max(0.0, began + wait - time.monotonic()))

    async def go() -> None:
        await asyncio.gather(*(server(f"s{number}") for number in range(SERVERS)))

    await _started(found, go(), ready)


async def turns(found: Stage) -> None:
    """Replicas that report over HTTP and take their checkpoints in turns, one always after the other."""
    await found.call("PUT", "/fleets/f", {"partitions": 1})
    ready = asyncio.Event()

    async def replica(number: int, folder: str) -> None:
        role: Literal["primary", "secondary"] = "primary" if number == 0 else "secondary"
        url, node = f"{found.host.url}", f"r{number}"
        async with CheckpointParticipant("f", node, url, KEY, health=lambda: Health(role=role, applied=120), folder=folder) as member:
            while number:
                async with member.turn() as turn:
                    await asyncio.sleep(TAKING)
                    turn.result(sequence=round(time.time()), location=f"/backup/{node}")
                ready.set()
            await asyncio.Event().wait()

    async def go() -> None:
        with tempfile.TemporaryDirectory() as folder:
            await asyncio.gather(*(replica(number, folder) for number in range(REPLICAS)))

    await _started(found, go(), ready)


async def _started(found: Stage, work: Any, ready: asyncio.Event) -> None:
    """Run the work beside the measurement; return when it is ready. Raises its error, or TimeoutError."""
    task = asyncio.create_task(work)
    found.tasks.append(task)
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({task, waiting}, timeout=START, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()
    if not ready.is_set():
        raise TimeoutError(f"the load was not ready after {START:g} s")
