"""Data that a process has stored is read and served by another one, which knows nothing but the storage.

`tests/data/stored.json` holds every table and queue of an application in the middle of its work, and the answers that it gave: tenants,
keys and channels of every type, events in every state, schedules, fleets with servers of the library and of HTTP, manual controls, a resize
that goes on, turns, replicas, maintenance events, limits and totals. `python -m tests.integration.stored.record` records it anew. From the
first deployed version on, its recording stays, and every later version must serve it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from shared.core.clock import to_datetime
from shared.engine.stored_forms import STORED_FORMS
from shared.leases.protocol import membership, takeover
from shared.leases.protocol.membership import BeatApplied, Registered, ServerReport
from shared.leases.rows import fleet_key
from shared.leases.rules import ServerSession
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_QUEUES, ALL_TABLES, QUEUE_SWEEPS
from shared.storage.ports import Upsert
from shared.testing import Tocsin
from tests.paths import ROOT

DUMP: dict[str, Any] = json.loads((ROOT / "tests/data/stored.json").read_text())


@pytest.fixture
async def kit() -> AsyncIterator[Tocsin]:
    """An application on the recorded data, at the instant of the recording."""
    rows = sorted((stamp, table, pk, rk, props) for table, found in DUMP["tables"].items() for pk, rk, stamp, props in found)
    kit = Tocsin(start=to_datetime(rows[0][0]))
    tables, queues = cast(MemoryTables, kit._storage.tables), kit._storage.queues
    await tables.ensure(ALL_TABLES)
    await queues.ensure(ALL_QUEUES)
    for stamp, table, pk, rk, props in rows:
        await kit.clock.advance((stamp - kit.clock.now()) / 1000)
        await tables.write(table, pk, (Upsert(rk, props),))
    await kit.clock.advance((DUMP["now"] - kit.clock.now()) / 1000)
    assert kit.clock.now() == DUMP["now"]
    for queue, messages in DUMP["queues"].items():
        for text, visible in messages:
            await queues.send(queue, text, visible_in=max(0, visible - DUMP["now"]) / 1000)
    async with kit:
        yield kit


async def get(kit: Tocsin, path: str) -> Any:
    client = kit.admin if path.startswith("tenants") else kit.client
    return await client.call("GET", path)


def test_the_recording_holds_every_kind_of_row_and_state() -> None:
    assert DUMP["stored_forms"] <= STORED_FORMS
    assert DUMP["tables"].keys() == set(ALL_TABLES) and all(DUMP["tables"].values())
    assert DUMP["queues"].keys() == set(ALL_QUEUES) - {QUEUE_SWEEPS} and all(DUMP["queues"].values())
    events = DUMP["answers"][0]["body"]["items"]
    assert {each["state"] for each in events} == {"scheduled", "retrying", "delivered", "dead", "lapsed", "cancelled"}
    assert all(answer["body"].get("items", True) for answer in DUMP["answers"])


@pytest.mark.parametrize("recorded", DUMP["answers"], ids=lambda recorded: recorded["path"])
async def test_the_api_answers_as_it_did(kit: Tocsin, recorded: dict[str, Any]) -> None:
    assert await get(kit, recorded["path"]) == recorded["body"]


async def state_of(kit: Tocsin, event: str) -> str:
    return str((await get(kit, f"events/{event}"))["state"])


async def test_what_is_due_is_delivered_and_what_was_done_is_not_delivered_again(kit: Tocsin) -> None:
    await kit.advance(hours=2)
    delivered = [each.id for each in kit.receiver.received]
    batch, fast = DUMP["batch"], DUMP["fast"]
    expected = {"e-soon", "e-retrying", "e-moved", "e-edited", "e-window", "e-queue", "e-grid", "e-stream", "acme-1", *batch, *fast}
    expected |= {f"b-{number}" for number in range(12)}
    assert len(batch) == 30 and len(fast) == 2
    assert expected <= set(delivered)
    assert len(delivered) == len(set(delivered)), "each once"
    assert not set(delivered) & {"e-delivered", "e-dead", "e-dead-2", "e-cancelled", "e-lapsed", "e-held", "e-later"}
    assert sum(each.startswith("often:") for each in delivered) >= 110, "the schedule goes on, a minute at a time"
    for event in sorted(expected - {"acme-1"}):
        assert await state_of(kit, event) == "delivered"
    assert await state_of(kit, "e-cancelled") == "cancelled"


async def test_a_paused_channel_is_resumed_and_a_dead_event_goes_back(kit: Tocsin) -> None:
    await kit.admin.call("POST", "tenants/demo/channels/stopped/resume")
    await kit.client.call("POST", "events/e-dead/redrive")
    await kit.advance(minutes=2)
    assert {"e-held", "e-dead"} <= {each.id for each in kit.receiver.received}
    await kit.client.call("POST", "schedules/often/pause")
    await kit.advance(days=4)
    assert "e-later" in {each.id for each in kit.receiver.received}


async def beat(kit: Tocsin, fleet: str, node: str, seq: int) -> Any:
    incarnation = DUMP["nodes"][node][0]
    return await kit.client.call("POST", f"fleets/{fleet}/nodes/{node}/beat", {"incarnation": incarnation, "seq": seq})


async def test_servers_heartbeat_and_keep_what_they_hold(kit: Tocsin) -> None:
    owners = {each["partition"]: each["owner"] for each in (await get(kit, "fleets/web/leases"))["items"]}
    for turn in range(1, 6):
        for node in ("a", "b"):
            answer = await beat(kit, "web", node, DUMP["nodes"][node][1] + turn)
            assert answer["state"] == "live"
            assert {int(number) for number in answer["held"]} == {number for number, owner in owners.items() if owner == node} != set()
        await kit.advance(seconds=5)


async def test_a_silent_server_is_replaced_and_a_resize_ends(kit: Tocsin) -> None:
    seq = DUMP["nodes"]["r"][1]
    incarnation = DUMP["nodes"]["r"][0]
    for _ in range(40):
        seq += 1
        answer = await beat(kit, "resized", "r", seq)
        for number in answer["release"]:
            if epoch := answer["held"].get(str(number)):
                body = {"node": "r", "incarnation": incarnation, "epoch": epoch}
                await kit.client.call("POST", f"fleets/resized/leases/{number}/release", body)
        if answer["assign"]:
            claim = {"node": "r", "incarnation": incarnation, "partitions": answer["assign"], "generation": answer["generation"]}
            await kit.client.call("POST", "fleets/resized/leases/claim", claim)
        await kit.app.timers.run_once("lease_scan")
        await kit.advance(seconds=5)
    owners = [each["owner"] for each in (await get(kit, "fleets/resized/leases"))["items"]]
    assert owners == ["r"] * 8
    nodes = {each["node"]: each["beat"]["state"] for each in (await get(kit, "fleets/web/nodes"))["items"]}
    assert nodes["a"] == nodes["b"] == "dead"


async def test_a_new_process_of_the_library_takes_over(kit: Tocsin) -> None:
    before = {each["partition"]: each["epoch"] for each in (await get(kit, "fleets/lib/leases"))["items"]}
    for _ in range(3):
        await kit.app.timers.run_once("lease_scan")
        await kit.advance(seconds=30)
    session = ServerSession(fleet_key("demo", "lib"), "m", "m2")
    run = kit.app.runner.run
    assert await run(membership.register(session, ServerReport(), None, (), 18.0)) == Registered()
    claims = await run(takeover.scout(session, sorted(before)))
    assert isinstance(await run(membership.beat(session, ServerReport(), "live", claims)), BeatApplied)
    after = {each["partition"]: (each["owner"], each["epoch"]) for each in (await get(kit, "fleets/lib/leases"))["items"]}
    assert after == {number: ("m", epoch + 1) for number, epoch in before.items()} and len(after) == 5


async def report(kit: Tocsin, node: str, seq: int, since: float, **more: Any) -> Any:
    replica = DUMP["replicas"][node]
    mono = replica["mono"] + round((kit.clock.monotonic() - since) * 1000)
    taking = {"epoch": replica["taking"]} if replica["taking"] else None
    body = {"seq": seq, "role": replica["role"], "term": 7, "applied": 81231, "last_checkpoint": replica["last"], "taking": taking}
    return await kit.client.call("POST", f"fleets/db/replicas/{node}/report", body | {"mono_ms": mono} | more)


async def test_a_turn_that_goes_on_is_published_and_the_next_replica_gets_one(kit: Tocsin) -> None:
    since = kit.clock.monotonic()
    seqs = {node: replica["seq"] for node, replica in DUMP["replicas"].items()}
    [holder] = [node for node, replica in DUMP["replicas"].items() if replica["taking"]]
    epoch = DUMP["replicas"][holder]["taking"]
    done = {"node": holder, "sequence": 90_000, "location": "https://backups.example/90000", "bytes": 1}
    assert (await kit.client.call("POST", f"fleets/db/turns/{epoch}/publish", done))["latest"]
    assert (await get(kit, "fleets/db/checkpoints/latest"))["sequence"] == 90_000
    granted = set()
    for _ in range(80):
        await kit.advance(seconds=10)
        for node in seqs:
            seqs[node] += 1
            ended = {"taking": None, "last_checkpoint": 90_000} if node == holder else {}
            if (await report(kit, node, seqs[node], since, **ended))["turn"]:
                granted.add(node)
        if granted:
            break
    assert granted and not granted & {"a"}, "a secondary, never the primary"


async def test_agents_report_and_their_events_go_on(kit: Tocsin) -> None:
    for node, agent in DUMP["agents"].items():
        body = {"node": node, "seq": agent["seq"] + 1, "vm": f"vm_{node}", "scope": "set", "location": "westeurope", "boot_id": "boot-1"}
        body |= {"fault_domain": agent["domain"], "incarnation": 3, "disabled": agent["disabled"]}
        body["events"] = list(agent["entries"].values())
        assert (await kit.client.call("POST", "fleets/db/maintenance/reports", body))["settings"]["lead_ms"] == 30_000
    events = (await get(kit, "fleets/db/maintenance/events"))["items"]
    assert {each["status"] for each in events} == {"scheduled"} and len(events) == 2
