"""The devhost is ended, first politely and then with kill -9, while it delivers and takes in; then it is started again.

The groups of functions that scale apart on Azure run in processes of their own, so nothing here can depend on the memory of one process.

One story, played once: what each test looks at is what was written down on the way. After a kill the queue's lease hides messages for ten
minutes, so the next process looks for the orphans itself: it can prove that the one before it has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from devhost.azurite import Azurite

from ..conftest import ADMIN_KEY, Answer, Api, Host, System, Tenant, eventually, millis_of, now_ms, text_of
from ..receiver import Hit, Receiver, silent, status

GRACE = 8


@dataclass
class Story:
    """The record of the story."""

    exit_code: int = -1
    exit_seconds: float = 0.0
    polite: list[str] = field(default_factory=list)
    """Due around the SIGTERM."""
    stuck: list[str] = field(default_factory=list)
    """Being delivered, without end, at the SIGTERM."""
    killed: list[str] = field(default_factory=list)
    """Due around the SIGKILL."""
    posted: list[str] = field(default_factory=list)
    """Acknowledged, one by one, until the SIGKILL."""
    express: list[str] = field(default_factory=list)
    """The same, due so soon that the process that answered had to deliver them itself: the one that only answers requests."""
    killed_at: int = 0
    cancelled: list[str] = field(default_factory=list)
    cancel_unanswered: list[str] = field(default_factory=list)
    moved: dict[str, int] = field(default_factory=dict)
    """Acknowledged moves, with the new due time."""
    move_unanswered: dict[str, int] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    hits_at_kill: int = 0
    hits: dict[str, list[Hit]] = field(default_factory=dict)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    log: str = ""


async def spread(api: Api, count: int, first: int, last: int, **event: Any) -> dict[str, int]:
    """New events, due evenly from `first` to `last` (milliseconds from now); id -> due."""
    start = now_ms() + first
    due = [start + (last - first) * number // count for number in range(count)]
    ids = await api.batch([{"due": text_of(each), "payload": number, **event} for number, each in enumerate(due)])
    return dict(zip(ids, due, strict=True))


async def politely(story: Story, tenant: Tenant, host: Host) -> None:
    """SIGTERM in mid-fire, with some deliveries that would not end."""
    await tenant.channel("stuck", f"{tenant.path}/stuck", timeout="PT60S")
    tenant.receiver.script(f"{tenant.path}/stuck", silent)
    # The number of deliveries that go out at once to a receiver that has not answered yet.
    stuck = await spread(tenant.api, 4, 0, 100, channel="stuck")
    due = await spread(tenant.api, 600, 2_000, 8_000)
    story.stuck, story.polite = list(stuck), list(due)
    story.due |= due | stuck
    await eventually(lambda: len(tenant.hits) > 150 and len(tenant.receiver.at(f"{tenant.path}/stuck")) == 4, "deliveries under way")
    started = time.monotonic()
    story.exit_code = await asyncio.to_thread(host.terminate)
    story.exit_seconds = time.monotonic() - started
    tenant.receiver.script(f"{tenant.path}/stuck", status(204))


async def busily(story: Story, tenant: Tenant, far: list[str], stop: asyncio.Event) -> None:
    """Post, cancel and move until the other side is gone."""
    cancels, moves = iter(far[::2]), iter(far[1::2])

    async def attempt(call: Any) -> Answer | None:
        try:
            answer: Answer = await call
        except (aiohttp.ClientError, OSError):
            stop.set()
            return None
        if answer.status == 503:
            # Storage seems silent on a very slow machine: the change may have been made or not.
            return None
        assert answer.status < 500, answer
        return answer

    async def post(ahead: int, posted: list[str]) -> None:
        while not stop.is_set():
            due = now_ms() + ahead
            answer = await attempt(tenant.api.post("events", {"due": text_of(due), "payload": "posted"}))
            if answer is not None:
                event_id = answer.json()["id"]
                posted.append(event_id)
                story.due[event_id] = due

    async def cancel() -> None:
        for event_id in cancels:
            if stop.is_set():
                return
            answer = await attempt(tenant.api.call("DELETE", f"events/{event_id}"))
            (story.cancelled if answer is not None else story.cancel_unanswered).append(event_id)

    async def move() -> None:
        for event_id in moves:
            if stop.is_set():
                return
            due = now_ms() + 4_000
            answer = await attempt(tenant.api.call("PATCH", f"events/{event_id}", {"due": text_of(due)}))
            (story.moved if answer is not None else story.move_unanswered)[event_id] = due

    posts = [post(ahead, posted) for ahead, posted in ((3_000, story.posted), (1_500, story.express)) for _ in range(3)]
    await asyncio.gather(*posts, *(work() for work in (cancel, move) for _ in range(4)))


async def brutally(story: Story, tenant: Tenant, distant: Tenant, host: Host) -> None:
    """SIGKILL in mid-fire and in mid-ingest."""
    far = list(await spread(distant.api, 2_000, 3 * 3_600_000, 3 * 3_600_000 + 60_000))
    due = await spread(tenant.api, 900, 2_500, 9_000)
    story.killed = list(due)
    story.due |= due
    stop = asyncio.Event()
    async with Api(host.url, ADMIN_KEY) as api:
        caller = Tenant(distant.name, _ForTenant(api, distant.name), api, distant.receiver)
        working = asyncio.create_task(busily(story, caller, far, stop))
        await eventually(lambda: sum(event_id in due for event_id in tenant.by_id()) > 250, "deliveries under way")
        host.kill()
        story.killed_at = now_ms()
        story.hits_at_kill = len(tenant.hits)
        await working


class _ForTenant(Api):
    """Calls of an admin for a tenant, over the admin's connection."""

    def __init__(self, api: Api, tenant: str) -> None:
        self._api, self._tenant = api, tenant

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        return await self._api.call(method, f"{path}?tenant={self._tenant}", body, **headers)


async def play(system: System) -> Story:
    story, host = Story(), system.host
    async with system.tenant() as tenant, system.tenant() as distant:
        await politely(story, tenant, host)
        await asyncio.to_thread(host.start)
        await brutally(story, tenant, distant, host)
        await asyncio.to_thread(host.start)
        story.stats = await tenant.api.drained(deadline=300)
        wanted = [*story.posted, *story.express, *story.moved]

        async def ended() -> bool:
            return {"delivered"} >= {(await distant.api.event(event_id))["state"] for event_id in wanted[-20:]} and all(
                event_id in distant.by_id() for event_id in wanted
            )

        await eventually(ended, "everything posted and moved", 300, pause=0.5)
        await eventually(lambda: _none_open(distant, wanted), "final states", 300, pause=1)
        for each in (tenant, distant):
            story.events |= {event["id"]: event for event in await each.api.all("events?limit=1000")}
            story.hits |= each.by_id()
        story.hits |= tenant.receiver.by_id(f"{tenant.path}/stuck")
    story.log = host.text
    return story


async def _none_open(tenant: Tenant, wanted: list[str]) -> bool:
    found = {event["id"]: event["state"] for event in await tenant.api.all("events?limit=1000")}
    return all(found[event_id] == "delivered" for event_id in wanted)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Story]:
    with Azurite(memory=True) as azurite:
        system = System(tmp_path_factory.mktemp("devhost"), azurite, receiver, DEVHOST_GRACE=str(GRACE), SPLIT="1")
        try:
            system.host.start()
            yield asyncio.run(play(system))
        finally:
            system.host.end()


def test_sigterm_in_mid_fire_ends_cleanly_and_in_time(story: Story) -> None:
    # `Host.terminate` waits for the grace, and for settling and closing after it, and not for the deliveries that would not end.
    assert story.exit_code == 0


def test_sigterm_loses_nothing(story: Story) -> None:
    assert {story.events[event_id]["state"] for event_id in story.polite} == {"delivered"}
    assert story.polite and all(event_id in story.hits for event_id in story.polite)


def test_deliveries_under_way_at_sigterm_are_settled_and_not_repeated(story: Story) -> None:
    assert {event_id: len(story.hits[event_id]) for event_id in story.polite} == dict.fromkeys(story.polite, 1)


def test_delivery_that_outlasts_the_grace_is_made_again(story: Story) -> None:
    assert story.stuck
    for event_id in story.stuck:
        # A number is taken before the POST, so one whose process ended in between never arrives.
        first, again = (hit.attempt for hit in story.hits[event_id])
        assert first == 1 and again > first
        assert story.events[event_id]["state"] == "delivered"


def test_kill_came_in_mid_fire(story: Story) -> None:
    before = story.hits_at_kill - len(story.polite)
    assert 0 < before < len(story.killed) and story.posted and story.express and story.cancelled and story.moved


def test_kill_loses_nothing_that_was_acknowledged(story: Story) -> None:
    wanted = [*story.killed, *story.posted, *story.express, *story.moved]
    assert [event_id for event_id in wanted if event_id not in story.hits] == []
    assert [event_id for event_id in wanted if story.events[event_id]["state"] != "delivered"] == []


def test_no_event_is_left_without_a_final_state(story: Story) -> None:
    assert story.stats["open"] == story.stats["overdue"] == 0
    assert story.stats["delivered"] == len(story.polite) + len(story.stuck) + len(story.killed)
    unanswered = {*story.cancel_unanswered, *story.move_unanswered}
    touched = {*story.cancelled, *story.moved, *unanswered}
    states = {event_id: event["state"] for event_id, event in story.events.items() if event_id in touched - unanswered}
    assert states == {**dict.fromkeys(story.cancelled, "cancelled"), **dict.fromkeys(story.moved, "delivered")}


def test_acknowledged_cancel_holds_over_the_kill(story: Story) -> None:
    assert [event_id for event_id in story.cancelled if event_id in story.hits] == []


def test_move_without_an_answer_left_one_event_at_one_of_both_times(story: Story) -> None:
    for event_id, due in story.move_unanswered.items():
        event = story.events[event_id]
        hits = story.hits.get(event_id, [])
        assert len(hits) == (event["state"] == "delivered") or hits[-1].attempt == len(hits)
        assert millis_of(event["due"]) == due if hits else event["state"] == "scheduled"


def test_nothing_is_early_and_what_is_made_again_has_a_higher_attempt(story: Story) -> None:
    for event_id, hits in story.hits.items():
        attempts = [hit.attempt for hit in hits]
        assert attempts == sorted(set(attempts)), event_id
        assert all(hit.at >= millis_of(hit.due) for hit in hits)
    again = [hits for event_id, hits in story.hits.items() if len(hits) > 1 and event_id not in story.stuck]
    late = sorted(hits[-1].late_ms for hits in story.hits.values())
    orphans = [story.hits[each][-1].late_ms for each in story.express if story.due[each] > story.killed_at]
    print(f"\nexpress events that the killed process was to deliver: {len(orphans)}, latest {max(orphans, default=0)} ms late")
    print(f"delivered twice after the kill: {len(again)}; latest {late[-1]} ms late; SIGTERM took {story.exit_seconds:.1f} s")


def test_orphans_were_found_by_the_next_process_and_say_how_late_they_are(story: Story) -> None:
    # Those that waited for the next process to start. The first sweep that would find them comes 45 s later.
    orphans = [story.events[event_id] for event_id in story.killed if story.events[event_id]["late_ms"] > 500]
    assert orphans and "shards had lost their process" in story.log
    for event in orphans:
        assert event["late_ms"] == story.hits[event["id"]][-1].late_ms
