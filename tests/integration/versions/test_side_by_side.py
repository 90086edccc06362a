"""Two versions work on one storage side by side, as during a rolling update, and after a rollback.

While no version is deployed, both are the present one. Once one is, `FORMER` names its commit: it is unpacked from the history of this
repository and run by its own devhost. The two hosts have different names of instances, so neither can prove that the other has ended.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from devhost.azurite import Azurite
from tests.integration.scheduler.conftest import ADMIN_KEY, Api, Host, eventually, now_ms, text_of
from tests.integration.scheduler.receiver import Receiver, status
from tests.paths import ROOT

pytestmark = pytest.mark.long
"""Two hosts and a minute; and a clone without history has no former version."""

FORMER = ""
"""Commit or tag of the version that works beside the present one, such as "v0.2.0"; '' for the present one itself."""
PROFILE = {"beat": "PT1S", "validity": "PT3S", "takeover": "PT4.5S"}


@pytest.fixture(scope="module")
def former_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the former version."""
    if not FORMER:
        return ROOT
    packed = subprocess.run(["git", "archive", FORMER], cwd=ROOT, capture_output=True, check=False)
    assert packed.returncode == 0, (
        f"These tests need commit {FORMER}, which this clone does not have: fetch the whole history (git fetch --unshallow). "
        f"git says: {packed.stderr.decode().strip()}"
    )
    folder = tmp_path_factory.mktemp("former")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@dataclass
class Pair:
    """Both versions on one storage, and a receiver."""

    former: Host
    present: Host
    receiver: Receiver


@pytest.fixture(scope="module")
def pair(former_sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    receiver = Receiver().start()
    with Azurite(memory=True) as azurite, ThreadPoolExecutor() as pool:
        former = Host(tmp_path_factory.mktemp("a"), azurite.connection_string, receiver, former_sources, CONTAINER_NAME="former")
        present = Host(tmp_path_factory.mktemp("b"), azurite.connection_string, receiver, CONTAINER_NAME="present")
        try:
            list(pool.map(Host.start, (former, present)))
            yield Pair(former, present, receiver)
        finally:
            list(pool.map(Host.end, (former, present)))
            receiver.stop()


@dataclass
class Tenant:
    """A tenant of the test's own, which both versions serve."""

    name: str
    former: Api
    present: Api
    receiver: Receiver

    @property
    def both(self) -> tuple[Api, Api]:
        return self.former, self.present

    def hits(self, channel: str = "default") -> Counter[str]:
        """Return the number of deliveries of each event to a channel."""
        return Counter(hit.id for hit in self.receiver.at(f"/{self.name}/{channel}"))


@pytest.fixture
async def tenant(pair: Pair) -> AsyncIterator[Tenant]:
    """The former version makes tenant and key, the present one the channels."""
    name = f"t{uuid.uuid4().hex[:8]}"
    async with Api(pair.former.url, ADMIN_KEY) as admin, Api(pair.present.url, ADMIN_KEY) as other:
        assert (await admin.call("PUT", f"tenants/{name}", {})).status == 201
        made = await admin.post(f"tenants/{name}/keys", {"scopes": ["events", "fleets"]})
        assert made.status == 201, made
        for channel in ("default", "flaky", "ticks"):
            spec = {"type": "http", "url": pair.receiver.url(f"/{name}/{channel}")}
            answer = await other.call("PUT", f"tenants/{name}/channels/{channel}", spec)
            assert answer.status == 201, answer
    key = made.json()["key"]
    async with Api(pair.former.url, key) as former, Api(pair.present.url, key) as present:
        yield Tenant(name, former, present, pair.receiver)


async def states(api: Api) -> dict[str, str]:
    """The state of every event of the tenant."""
    return {event["id"]: event["state"] for event in await api.all("events?limit=500")}


async def test_events_of_both_versions_are_each_delivered_once(tenant: Tenant) -> None:
    tenant.receiver.script(f"/{tenant.name}/flaky", *[status(503)] * 4, status(204))
    first, far = now_ms() + 3_000, text_of(now_ms() + 3_600_000)
    delivered: list[str] = []
    # All of a minute or two: both versions write into the same buckets, and either may serve a shard of them.
    for number in range(30):
        due = [text_of(first + 200 * number + 50 * more) for more in range(4)]
        delivered += await tenant.both[number % 2].batch([{"due": each, "payload": number} for each in due[:3]])
        delivered.append(await tenant.both[number % 2].create(due=due[3], payload=number))
    cancelled = []
    for one, other in (tenant.both, tenant.both[::-1]):
        cancelled.append(await one.create(due=far))
        assert (await other.call("DELETE", f"events/{cancelled[-1]}")).status == 204
        delivered.append(await one.create(due=far))
        assert (await other.call("PATCH", f"events/{delivered[-1]}", {"due": text_of(first + 4_000)})).status == 200
    retried = [await api.create(due=text_of(first), channel="flaky", retry={"attempts": 6, "first": "PT1S"}) for api in tenant.both]
    wanted = dict.fromkeys([*delivered, *retried], "delivered") | dict.fromkeys(cancelled, "cancelled")
    for api in tenant.both:

        async def ended(api: Api = api) -> bool:
            return await states(api) == wanted

        await eventually(ended, "the final states of all events", pause=0.5)
    assert tenant.hits() == Counter(delivered)
    assert sorted(tenant.hits("flaky")) == sorted(retried)


async def test_dead_events_of_both_versions_are_in_the_lists_of_both_once(tenant: Tenant) -> None:
    tenant.receiver.script(f"/{tenant.name}/flaky", *[status(400)] * 12, status(204))
    due = text_of(now_ms() + 3_000)
    dead = [await tenant.both[number % 2].create(due=due, channel="flaky") for number in range(12)]

    async def listed(api: Api, path: str) -> list[str]:
        return [each["id"] for each in await api.all(path)]

    for api in tenant.both:
        for path in ("events?state=dead&limit=5", "dead-letters?limit=5"):

            async def complete(api: Api = api, path: str = path) -> bool:
                return sorted(await listed(api, path)) == sorted(dead)

            await eventually(complete, f"{path} of all dead events", pause=0.5)
    assert (await tenant.former.post(f"events/{dead[0]}/redrive", {})).status == 202

    async def delivered() -> bool:
        return (await states(tenant.present))[dead[0]] == "delivered"

    await eventually(delivered, "the redriven event", pause=0.5)
    assert sorted(await listed(tenant.present, "dead-letters")) == sorted(dead[1:])


async def test_a_schedule_of_one_version_is_served_and_changed_by_the_other(tenant: Tenant) -> None:
    async def ticked(payload: str) -> bool:
        return sum(hit.json() == payload for hit in tenant.receiver.at(f"/{tenant.name}/ticks")) >= 2

    async def play(name: str, one: Api, other: Api) -> None:
        spec = {"every": "PT1S", "channel": "ticks"}
        assert (await one.call("PUT", f"schedules/{name}", {**spec, "payload": f"{name} made"})).status == 201
        await eventually(lambda: ticked(f"{name} made"), "two occurrences")
        assert (await other.call("PUT", f"schedules/{name}", {**spec, "payload": f"{name} changed"})).json()["revision"] == 2
        await eventually(lambda: ticked(f"{name} changed"), "two occurrences after the change")
        assert (await one.call("DELETE", f"schedules/{name}")).status == 204

    await asyncio.gather(play("s1", *tenant.both), play("s2", *tenant.both[::-1]))
    assert set(tenant.hits("ticks").values()) == {1}


@pytest.mark.parametrize("overlap", ["queue", "skip"])
async def test_each_occurrence_of_a_schedule_that_does_not_overlap_ends(tenant: Tenant, overlap: str) -> None:
    start = now_ms() // 1000 * 1000 + 5_000
    spec = {"every": "PT1S", "start": text_of(start), "end": text_of(start + 9_000), "channel": "ticks", "payload": 1, "overlap": overlap}
    assert (await tenant.present.call("PUT", "schedules/often", spec)).status == 201

    async def ended() -> list[str]:
        found = [state for event, state in (await states(tenant.present)).items() if event.startswith("often:")]
        return found if len(found) == 9 and set(found) <= {"delivered", "lapsed"} else []

    found = await eventually(ended, "the end of each occurrence", pause=0.5)
    assert overlap == "skip" or set(found) == {"delivered"}
    assert sum(tenant.hits("ticks").values()) == found.count("delivered")
    assert (await tenant.present.get("schedules/often")).json()["overlap"] == overlap


@dataclass
class Server:
    """A server of a fleet that speaks HTTP, to one version at a time."""

    name: str
    api: Api
    incarnation: str = field(default_factory=lambda: str(uuid.uuid4()))
    seq: int = 0
    held: dict[int, int] = field(default_factory=dict)
    """Partition -> epoch."""

    async def beat(self, grants: list[tuple[int, int]]) -> None:
        """Send a heartbeat and follow the orders of its answer; `grants` notes each partition and epoch that was claimed."""
        self.seq += 1
        answer = await self.api.post(f"fleets/db/nodes/{self.name}/beat", {"incarnation": self.incarnation, "seq": self.seq})
        assert answer.status == 200, answer
        body = answer.json()
        me = {"node": self.name, "incarnation": self.incarnation}
        for partition in body["release"]:
            epoch = self.held.pop(partition)
            released = await self.api.post(f"fleets/db/leases/{partition}/release", {**me, "epoch": epoch})
            assert released.status == 200, released
        if wanted := [partition for partition in body["assign"] if partition not in self.held]:
            claimed = (await self.api.post("fleets/db/leases/claim", {**me, "partitions": wanted})).json()["claimed"]
            self.held |= {each["partition"]: each["epoch"] for each in claimed}
            grants += [(each["partition"], each["epoch"]) for each in claimed]


async def test_servers_that_change_versions_keep_their_partitions_and_share_those_of_a_dead_one(tenant: Tenant) -> None:
    assert (await tenant.former.call("PUT", "fleets/db", {"partitions": 12, "profile": PROFILE})).status == 201
    servers = [Server(name, tenant.both[number % 2]) for number, name in enumerate("abcd")]
    grants: list[tuple[int, int]] = []

    async def shared(among: list[Server], most: int) -> bool:
        """Send a heartbeat of each; True if they serve all partitions, in fair shares."""
        await asyncio.gather(*(server.beat(grants) for server in among))
        return sorted(p for server in among for p in server.held) == list(range(12)) and all(len(each.held) <= most for each in among)

    await eventually(lambda: shared(servers, 3), "fair shares for four", pause=0.5)
    before = {server.name: dict(server.held) for server in servers}
    for server in servers:
        server.api = tenant.former if server.api is tenant.present else tenant.present
    # For as long as a server keeps partitions without a heartbeat that is answered.
    for _ in range(7):
        assert await shared(servers, 3)
        await asyncio.sleep(0.5)
    assert {server.name: server.held for server in servers} == before, "nothing moves because a server asks another version"
    rest = servers[1:]
    await eventually(lambda: shared(rest, 4), "the partitions of the dead server", pause=0.5)
    assert len(set(grants)) == len(grants), "no epoch is granted twice"
    for api in tenant.both:
        routes = (await api.get("fleets/db/routes")).json()
        assert routes["unowned"] == [] and {name: sorted(held) for name, held in routes["owners"].items()} == {
            server.name: sorted(server.held) for server in rest
        }


async def test_replicas_of_both_versions_take_turns_one_at_a_time(tenant: Tenant) -> None:
    made = await tenant.present.call(
        "PUT", "fleets/db", {"partitions": 1, "checkpoints": {"timeout": {"initial": "PT10M", "min": "PT1M", "max": "PT1H"}}}
    )
    assert made.status == 201, made
    seq: Counter[str] = Counter()

    async def report(node: str, api: Api, taking: int = 0, done: int = 0) -> dict[str, Any]:
        seq[node] += 1
        role = "primary" if node == "p" else "secondary"
        body = {
            "seq": seq[node],
            "role": role,
            "term": 1,
            "applied": 100,
            "last_checkpoint": done,
            "mono_ms": time.monotonic_ns() // 1_000_000,
        }
        answer = await api.post(f"fleets/db/replicas/{node}/report", {**body, "taking": {"epoch": taking} if taking else None})
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    nodes = {"p": tenant.former, "a": tenant.former, "b": tenant.present}
    holders: list[str] = []

    async def granted() -> tuple[str, int] | None:
        turns = {node: (await report(node, api))["turn"] for node, api in nodes.items()}
        found = [(node, turn["epoch"]) for node, turn in turns.items() if turn]
        assert len(found) <= 1, found
        return found[0] if found else None

    for epoch in (1, 2, 3):
        holder, turn = await eventually(granted, "a turn", pause=0.3)
        assert turn == epoch and holder != "p"
        holders.append(holder)
        # The other version hears of the turn, and takes its checkpoint.
        other = tenant.present if nodes[holder] is tenant.former else tenant.former
        await report(holder, other, taking=turn)
        body = {"node": holder, "sequence": 100 + epoch, "location": f"https://backups.example/{epoch}", "bytes": 1}
        published = await other.post(f"fleets/db/turns/{turn}/publish", body)
        assert (published.status, published.json()) == (200, {"latest": True}), published
        await report(holder, other, done=100 + epoch)
        for api in tenant.both:
            assert (await api.get("fleets/db/checkpoints/latest")).json()["sequence"] == 100 + epoch
    assert set(holders) == {"a", "b"}


async def test_an_event_of_azure_that_agents_report_to_both_versions_is_approved_once(tenant: Tenant) -> None:
    assert (await tenant.former.call("PUT", "fleets/db", {"partitions": 1})).status == 201
    event_id, not_before = str(uuid.uuid4()), text_of(now_ms() + 900_000)
    seq: Counter[str] = Counter()

    async def report(node: str, api: Api, phase: str, **more: Any) -> dict[str, Any]:
        """Report as one of two nodes that see an event of node `a`."""
        seq[node] += 1
        seen = {"event_id": event_id, "type": "Freeze", "status": "Scheduled", "not_before": not_before, "source": "Platform"}
        body = {"node": node, "seq": seq[node], "vm": f"vm_{node}", "scope": "set", "location": "westeurope", "fault_domain": node}
        body |= {"boot_id": "boot-1", "incarnation": 3, "disabled": False}
        body["events"] = [{**seen, "duration_s": 9, "resources": ["vm_a"], "phase": phase, **more}]
        answer = await api.post("fleets/db/maintenance/reports", body)
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    await report("a", tenant.former, "WAITING")
    await report("b", tenant.present, "FOREIGN")
    granted = [(await api.post(f"fleets/db/maintenance/events/{event_id}/approve", {"reason": "now"})) for api in tenant.both]
    assert {each.status for each in granted} == {202} and len({each.json()["id"] for each in granted}) == 1
    assert [each["do"] for each in (await report("a", tenant.present, "WAITING"))["commands"]] == ["prepare"]

    async def leased() -> str | None:
        found = (await report("a", tenant.former, "PREPARED"))["approvals"]
        return found[0]["id"] if found else None

    approval = await eventually(leased, "the approval", pause=0.5)
    assert approval == granted[0].json()["id"]
    assert (await report("b", tenant.present, "FOREIGN"))["approvals"] == []
    posted = await tenant.present.post(f"fleets/db/maintenance/approvals/{approval}/result", {"node": "a", "outcome": "posted"})
    assert posted.status == 204, posted
    await report("a", tenant.former, "STARTED", status="Started", not_before=None)
    for api in tenant.both:
        found = (await api.get(f"fleets/db/maintenance/events/{event_id}")).json()
        assert (found["status"], found["approval"]["state"]) == ("started", "closed"), found


async def test_after_an_update_and_after_a_rollback_the_remaining_version_finishes_what_the_other_began(pair: Pair, tenant: Tenant) -> None:
    """Last of this module: the hosts end one after the other."""
    spec = {"every": "PT2S", "channel": "ticks", "payload": "tick"}

    async def begin(api: Api) -> list[str]:
        """Accept events that are due after their version has ended."""
        due = text_of(now_ms() + 12_000)
        return [*await api.batch([{"due": due, "payload": number} for number in range(20)]), await api.create(due=due, payload="single")]

    for leaving, going, staying in ((pair.former, tenant.former, tenant.present), (pair.present, tenant.present, tenant.former)):
        if leaving is pair.present:
            await asyncio.to_thread(pair.former.start)
        assert (await going.call("PUT", "schedules/tick", spec)).status in (200, 201)
        events = await begin(going)
        assert await asyncio.to_thread(leaving.terminate) == 0
        for event in events:
            assert (await staying.event(event))["state"] in ("scheduled", "delivered")
        await eventually(lambda events=events: set(events) <= set(tenant.hits()), "the deliveries of the other version")
        seen = len(tenant.hits("ticks"))
        await eventually(lambda seen=seen: len(tenant.hits("ticks")) >= seen + 2, "occurrences of the other version's schedule")
    assert set(tenant.hits().values()) == {1} and set(tenant.hits("ticks").values()) == {1}
