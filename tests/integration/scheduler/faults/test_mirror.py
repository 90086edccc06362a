"""Two accounts, two emulators: the first is killed in mid-run, the second takes over, and the first comes back with what it had on disk.

Everything runs in one host, which polls the queues of both accounts. So it ends again and again while the first refuses connections, as the
Functions host does, and the clients repeat their calls.

One story, played once: what each test looks at is what was written down on the way.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import batched
from pathlib import Path
from typing import Any

import pytest

from devhost.azurite import Azurite

from ..conftest import Api, System, Tenant, eventually, now_ms, text_of
from ..receiver import Hit, Receiver

STOP, TAKE = 3.0, 4.0
"""Seconds; 30 and 45 outside the emulator."""
REFUSED = "ends=15,again=3,start=4,timers=8"
"""Rules of refused connections, in less time than the host's own. The calls between the kill and the failover come before the first end."""
ENDS, BEGINS = "Host is shutting down", "was started anew"
LAG = 6_000
"""Milliseconds by which settlements may be behind in the copy: what the API promises, and one claim ahead."""


@dataclass
class Story:
    """The record of the story. Times are milliseconds since 1970."""

    due: dict[str, int] = field(default_factory=dict)
    """Every event that was acknowledged and not cancelled."""
    cancelled: list[str] = field(default_factory=list)
    cancelled_there: list[str] = field(default_factory=list)
    killed: int = 0
    served: int = 0
    """Time at which the second side reported that it serves."""
    refused: set[int] = field(default_factory=set)
    """The answers to cancels between the kill and that moment."""
    mirror_states: list[dict[str, Any]] = field(default_factory=list)
    ends: int = 0
    """Ends of the host."""
    hits: dict[str, list[Hit]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    back: int = 0
    later: dict[str, int] = field(default_factory=dict)
    """Events of the second run, on the first again."""
    later_states: dict[str, str] = field(default_factory=dict)


async def spread(tenant: Tenant, count: int, first: int, last: int, **event: Any) -> dict[str, int]:
    """Mirrored events, evenly from `first` to `last` milliseconds from now: id -> due."""
    start = now_ms()
    due = [start + first + (last - first) * number // count for number in range(count)]
    events = [{"due": text_of(each), "payload": number, "durability": "mirrored", **event} for number, each in enumerate(due)]
    return dict(zip(await tenant.api.batch(events), due, strict=True))


async def cancel(tenant: Tenant, event_id: str) -> int:
    return (await tenant.api.call("DELETE", f"events/{event_id}")).status


async def cancel_all(tenant: Tenant, ids: Iterable[str]) -> list[str]:
    """Cancel events, and return those of which the answer said so. On a slow machine some have fired already."""
    answers = {event_id: await cancel(tenant, event_id) for event_id in ids}
    assert set(answers.values()) <= {204, 409}, answers
    return [event_id for event_id, status in answers.items() if status == 204]


async def mirror(admin: Api) -> dict[str, Any]:
    answer = await admin.get("storage")
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()["mirror"]
    return found


async def serving(admin: Api, side: str) -> dict[str, Any] | None:
    found = await mirror(admin)
    return found if (found["active"], found["state"]) == (side, "serving") else None


async def states(tenant: Tenant, ids: Iterable[str]) -> dict[str, str]:
    """One by one: a list needs every account, and one of them is away."""
    found: dict[str, str] = {}
    for some in batched(ids, 50, strict=False):
        found |= {event["id"]: event["state"] for event in await asyncio.gather(*map(tenant.api.event, some))}
    return found


def has_stored(data: Path) -> bool:
    """True once the emulator has written the stamp of the pair to its file, which it does every five seconds."""
    return re.search(r'"pair": ?"\w+"', (data / "__azurite_db_table__.json").read_text()) is not None


async def play(system: System, first: Azurite, again: Azurite, data: Path) -> Story:
    story = Story()
    async with system.tenant(patient=True) as tenant:
        admin = tenant.admin
        # An account that loses its tables is another story: the failback refuses it.
        await eventually(lambda: has_stored(data), "the first to have its tables on disk")
        doomed = await spread(tenant, 60, 15_000, 20_000)
        story.cancelled = await cancel_all(tenant, list(doomed)[:40])
        left = [event_id for event_id in doomed if event_id not in story.cancelled]
        story.due = await spread(tenant, 500, 2_500, 9_000)
        story.due |= await spread(tenant, 60, 10_000, 12_000)
        # The host ends twice in this time.
        story.due |= await spread(tenant, 120, 12_000, 50_000)
        await eventually(lambda: len(tenant.hits) > 120, "deliveries under way")
        process = first._process
        assert process is not None
        process.kill()
        story.killed = now_ms()
        assert (await admin.post("storage/failover", {})).status == 202
        story.mirror_states.append(await mirror(admin))
        story.refused.add(await cancel(tenant, left[0]))
        story.mirror_states.append(await eventually(lambda: serving(admin, "second"), "the second to serve"))
        story.served = now_ms()
        for event_id in left[-10:]:
            if await cancel(tenant, event_id) == 204:
                story.cancelled_there.append(event_id)
        story.due |= {event_id: doomed[event_id] for event_id in left if event_id not in story.cancelled_there}
        story.due |= await spread(tenant, 40, 1_500, 3_000)

        async def ended() -> bool:
            story.states = await states(tenant, (*story.due, *story.cancelled, *story.cancelled_there))
            return all(story.states[event_id] == "delivered" for event_id in story.due)

        await eventually(lambda: story.due.keys() <= tenant.by_id().keys(), "all to be delivered", 300)
        await eventually(ended, "all to be settled", 300, pause=0.5)
        story.hits = tenant.by_id()
        await eventually(lambda: system.host.text.count(ENDS) >= 2, "two ends of the host")
        await asyncio.to_thread(first.stop)
        await asyncio.to_thread(again.start)
        waiting = await spread(tenant, 20, 8_500, 9_000)

        async def accepted() -> bool:
            return (await admin.post("storage/failback", {})).status == 202

        await eventually(accepted, "the first to be found again", pause=0.5)
        story.mirror_states.append(await eventually(lambda: serving(admin, "first"), "the first to serve again"))
        story.back = now_ms()
        gone = await cancel_all(tenant, list(waiting)[:1])
        story.later = waiting | await spread(tenant, 60, 1_000, 2_500)
        for event_id in gone:
            del story.later[event_id]

        async def ended_again() -> bool:
            story.later_states = await states(tenant, (*story.later, *story.due))
            return all(story.later_states[event_id] == "delivered" for event_id in (*story.later, *story.due))

        await eventually(lambda: story.later.keys() <= tenant.by_id().keys(), "the second run to be delivered", 300)
        await eventually(ended_again, "the second run to be settled", 300, pause=0.5)
        story.cancelled += gone
        story.hits = tenant.by_id()
        await eventually(lambda: system.host.text.count(ENDS) == system.host.text.count(BEGINS), "a host for each that has ended")
        story.ends = system.host.text.count(ENDS)
    return story


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Story]:
    data = tmp_path_factory.mktemp("azurite")
    first = Azurite(location=data)
    again = Azurite(location=data, blob=first.blob, queue=first.queue, table=first.table)
    with ExitStack() as stack:
        second = stack.enter_context(Azurite(memory=True))
        more = {
            "TocsinMirror": second.connection_string,
            "TOCSIN_MIRROR_STOP_SECONDS": str(STOP),
            "TOCSIN_MIRROR_TAKE_SECONDS": str(TAKE),
            "DEVHOST_REFUSED": REFUSED,
        }
        system = System(tmp_path_factory.mktemp("devhost"), first, receiver, **more)
        stack.callback(first.stop)
        stack.callback(again.stop)
        stack.callback(system.host.end)
        first.start()
        system.host.start()
        yield asyncio.run(play(system, first, again, data))


def test_first_account_was_killed_in_mid_run(story: Story) -> None:
    before = sum(hits[0].at < story.killed for hits in story.hits.values())
    assert 100 < before < len(story.due) - 100


def test_the_host_ended_while_the_first_account_refused_connections_and_served_on(story: Story) -> None:
    assert story.ends >= 2
    assert max(hit.at for hits in story.hits.values() for hit in hits) > story.killed


def test_second_account_says_when_it_serves_and_refuses_until_then(story: Story) -> None:
    waiting, there, back = story.mirror_states
    assert (waiting["active"], waiting["state"]) == ("second", "waiting") and 0 < waiting["serves_in_s"] <= TAKE + 2
    assert story.served - story.killed >= TAKE * 1_000
    assert story.refused == {503}
    assert there["epoch"] == 1 and back["epoch"] == 3 and back["failback"]["failed"] == 0


def test_nothing_acknowledged_is_lost(story: Story) -> None:
    assert len(story.due) >= 500
    assert [event_id for event_id in story.due if event_id not in story.hits] == []
    assert {story.states[event_id] for event_id in story.due} == {"delivered"}


def test_nothing_cancelled_fires_on_either_side(story: Story) -> None:
    assert len(story.cancelled) > 10 and story.cancelled_there
    for event_id in (*story.cancelled, *story.cancelled_there):
        assert event_id not in story.hits and story.states.get(event_id, "cancelled") == "cancelled"


def test_only_what_was_delivered_within_the_lag_is_delivered_twice(story: Story) -> None:
    twice = {event_id: hits for event_id, hits in story.hits.items() if len(hits) > 1}
    early = {event_id: story.killed - hits[0].at for event_id, hits in twice.items() if hits[0].at < story.killed - LAG}
    assert early == {}
    # Each end of the host may repeat what it had delivered and not settled.
    assert all(len(hits) <= 2 + story.ends for hits in twice.values())
    print(f"\n{len(twice)} of {len(story.hits)} events twice; the second served {story.served - story.killed} ms after the kill")


def test_nothing_is_early(story: Story) -> None:
    assert story.due and story.later and story.hits
    for event_id, due in (story.due | story.later).items():
        assert all(hit.at >= due for hit in story.hits[event_id])


def test_first_account_serves_again_and_a_second_run_is_whole(story: Story) -> None:
    assert len(story.later) >= 79
    assert {story.later_states[event_id] for event_id in story.later} == {"delivered"}
    assert [event_id for event_id in story.later if len(story.hits.get(event_id, [])) != 1] == []
    assert {story.later_states[event_id] for event_id in story.due} == {"delivered"}
