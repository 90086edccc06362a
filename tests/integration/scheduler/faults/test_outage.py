"""Storage goes away in mid-fire and comes back: its endpoint refuses connections meanwhile. Nobody restarts anything.

As the Functions host does, the devhost ends each process that polls a queue of such an account, and starts it anew, until the account is
back. On Flex Consumption, requests have processes of their own, which live on; in one host, they end with the others.

The story is played once for all tests; each test looks at what was recorded on the way. The short outage lasts longer than a shard's gate
does without a renewal (45 s).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from devhost.azurite import Azurite

from ..conftest import Answer, Api, System, Tenant, eventually, millis_of, now_ms, text_of
from ..receiver import Hit, Receiver, status

SHORT, LONG = 50.0, 120.0
"""Seconds without storage."""
REFUSED = "ends=9,again=3,start=4,timers=8"
"""Rules of refused connections, in less time than the host's own: several ends of each process in the short outage."""
ENDS, BEGINS = "Host is shutting down", "was started anew"
LISTENERS = ("fire_shard", "fire_retry", "ingest_events", "sweep_soon")
"""Functions that poll the account; `sweep` has the timer, whose lease is there too."""
LEAD = 12_000
"""Milliseconds from the first event to the outage, about."""


@dataclass
class Story:
    """The record of the story. Times are milliseconds since 1970."""

    outage: float
    """Seconds without storage, at least."""
    split: bool
    """True if requests have processes of their own."""
    down: int = 0
    up: int = 0
    answering: int = 0
    """Time at which the API accepted an event again."""
    due: dict[str, int] = field(default_factory=dict)
    """Every event that was acknowledged."""
    retrying: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    refused: list[tuple[str, Answer]] = field(default_factory=list)
    """Calls while storage was away that had an answer."""
    unanswered: int = 0
    """Those whose connection was refused or cut."""
    slowest: float = 0.0
    alive: list[Answer] = field(default_factory=list)
    ready: list[Answer] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)
    """Client ids that were refused during the outage."""
    wanted_later: list[Answer] = field(default_factory=list)
    ready_after: dict[str, Any] = field(default_factory=dict)
    hits: dict[str, list[Hit]] = field(default_factory=dict)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    pids: set[int] = field(default_factory=set)
    log: str = ""


async def prepare(story: Story, tenant: Tenant) -> None:
    """Events due before, during and after the outage."""
    start = now_ms()

    async def spread(count: int, first: int, last: int, **event: Any) -> list[str]:
        due = [start + first + (last - first) * number // count for number in range(count)]
        ids = await tenant.api.batch([{"due": text_of(each), "payload": n, **event} for n, each in enumerate(due)])
        story.due |= dict(zip(ids, due, strict=True))
        return ids

    await tenant.channel("failing", f"{tenant.path}/failing")
    tenant.receiver.script(f"{tenant.path}/failing", status(500))
    again = {"attempts": 100, "first": "PT2S", "max": "PT5S"}
    story.retrying = await spread(10, 2_000, 4_000, channel="failing", retry=again)
    await spread(400, 4_000, 20_000)
    outage = round(story.outage * 1_000)
    await spread(200, 20_000, LEAD + outage)
    named = [{"id": f"named-{n}", "due": text_of(start + LEAD + 30_000 + n * 500), "payload": n} for n in range(20)]
    story.due |= {event_id: millis_of(event["due"]) for event_id, event in zip(await tenant.api.batch(named), named, strict=True)}
    await spread(30, LEAD + outage + 5_000, LEAD + outage + 10_000)
    for event_id in await spread(10, LEAD + outage // 2, LEAD + outage // 2 + 1):
        assert (await tenant.api.call("DELETE", f"events/{event_id}")).status == 204
        del story.due[event_id]
        story.cancelled.append(event_id)


async def besiege(story: Story, api: Api, host: Api, far: int, known: str) -> None:
    """Repeat every kind of call while storage is away. api, host: do not repeat a call themselves."""

    async def refused(name: str, call: Any) -> None:
        started = time.monotonic()
        if (answer := await answered(call)) is not None:
            story.refused.append((name, answer))
        story.slowest = max(story.slowest, time.monotonic() - started)

    async def answered(call: Any) -> Answer | None:
        try:
            answer: Answer = await call
            return answer
        except aiohttp.ClientConnectionError:
            story.unanswered += 1
            return None

    number = 0
    while now_ms() < story.down + story.outage * 1_000:
        number += 1
        story.wanted.append(f"wanted-{number}")
        body = {"due": text_of(far), "payload": "wanted"}
        await asyncio.gather(
            refused("create", api.post("events", body)),
            refused("create with an id", api.post("events", {**body, "id": story.wanted[-1]})),
            refused("get", api.get(f"events/{known}")),
            refused("list", api.get("events")),
            refused("cancel", api.call("DELETE", f"events/{known}")),
            refused("move", api.call("PATCH", f"events/{known}", {"delay": "PT1S"})),
            refused("fire", api.post(f"events/{known}/fire")),
            refused("stats", api.get("stats")),
        )
        for path, found in (("/healthz", story.alive), ("/readyz", story.ready)):
            if (answer := await answered(host.get(path))) is not None:
                found.append(answer)
        await asyncio.sleep(2)


async def play(system: System, back: Azurite, outage: float, *, split: bool) -> Story:
    story, host = Story(outage, split), system.host
    assert host.process is not None
    async with system.tenant(patient=not split) as tenant, Api(host.url, "any-key-will-do", patient=True) as anyone:
        started = now_ms()
        far = started // 60_000 * 60_000 + 7_200_000
        known = await tenant.api.create(due=text_of(far))
        await prepare(story, tenant)
        await eventually(lambda: len(tenant.hits) > 100 and now_ms() > started + LEAD, "deliveries under way")
        story.pids.add(host.process.pid)
        await asyncio.to_thread(system.azurite.stop)
        story.down = now_ms()
        async with Api(host.url, tenant.api.key) as api, Api(host.url, "any-key-will-do") as probe:
            await besiege(story, api, probe, far, known)
        await asyncio.to_thread(back.start)
        story.up = now_ms()
        tenant.receiver.script(f"{tenant.path}/failing", status(204))

        async def takes() -> bool:
            return (await tenant.api.post("events", {"due": text_of(far), "payload": 1})).status == 201

        await eventually(takes, "the API to take an event")
        story.answering = now_ms()
        for event_id in story.wanted:
            story.wanted_later.append(await tenant.api.post("events", {"id": event_id, "due": text_of(far), "payload": "wanted"}))

        async def ended() -> bool:
            story.events = {event["id"]: event for event in await tenant.api.all("events?limit=1000")}
            return all(story.events[event_id]["state"] not in ("scheduled", "firing", "retrying") for event_id in story.due)

        await eventually(ended, "final states", 300, pause=0.5)
        story.stats = await tenant.api.stats()
        story.ready_after = (await eventually(lambda: _ready(anyone), "readiness", 150)).json()
        story.hits = tenant.by_id() | tenant.receiver.by_id(f"{tenant.path}/failing")
        story.pids.add(host.process.pid)
        assert host.process.poll() is None
        await eventually(lambda: host.text.count(ENDS) == host.text.count(BEGINS), "a host for each that has ended")
        story.log = host.text
    return story


async def _ready(api: Api) -> Answer | None:
    """The app is ready, and its sweep has run since the outage or a little before."""
    answer = await api.get("/readyz")
    if answer.status != 200:
        return None
    # The age is null until the first sweep, which comes up to a minute after the start.
    age = answer.json()["timers"]["scheduler_scan"]["age_s"]
    return answer if age is not None and age < 100 else None


@pytest.fixture(
    scope="module",
    params=[
        (SHORT, True),
        pytest.param((SHORT, False), marks=pytest.mark.long),
        pytest.param((LONG, True), marks=pytest.mark.long),
    ],
    ids=["groups", "one host", "long"],
)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Story]:
    data = tmp_path_factory.mktemp("azurite")
    first = Azurite(location=data)
    back = Azurite(location=data, blob=first.blob, queue=first.queue, table=first.table)
    outage, split = request.param
    # The groups of functions that scale apart on Azure run in processes of their own.
    more = {"SPLIT": "1"} if split else {}
    system = System(tmp_path_factory.mktemp("devhost"), first, receiver, DEVHOST_REFUSED=REFUSED, **more)
    with ExitStack() as stack:
        stack.callback(first.stop)
        stack.callback(back.stop)
        stack.callback(system.host.end)
        first.start()
        system.host.start()
        yield asyncio.run(play(system, back, outage, split=split))


def test_outage_came_in_mid_fire(story: Story) -> None:
    assert story.up - story.down >= story.outage * 1_000
    before = sum(hits[0].at < story.down for hits in story.hits.values())
    assert 0 < before < len(story.due)


@pytest.mark.parametrize("name", ["create", "create with an id", "get", "list", "cancel", "move", "fire", "stats"])
def test_call_is_answered_503_with_retry_after_meanwhile(story: Story, name: str) -> None:
    answers = [answer for called, answer in story.refused if called == name]
    assert answers
    for answer in answers:
        assert (answer.status, answer.code) == (503, "storage-unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert "devstoreaccount" not in answer.body.decode() and "127.0.0.1" not in answer.body.decode()


def test_the_processes_that_poll_the_account_end_again_and_again_and_those_of_requests_do_not(story: Story) -> None:
    ends = {name: story.log.count(f"{ENDS} ({name})") for name in ("http", *(f"function:{name}" for name in LISTENERS))}
    if story.split:
        assert ends.pop("http") == 0 and story.unanswered == 0
        assert f"{ENDS} (function:sweep)" in story.log
        assert min(ends.values()) >= 2
    else:
        assert ends["http"] >= 2 and story.unanswered > 0
    assert story.log.count(BEGINS) == story.log.count(ENDS)


def test_process_is_alive_and_not_ready(story: Story) -> None:
    assert {answer.status for answer in story.alive} == {200} and len(story.pids) == 1
    # A look at storage is used again for a second.
    assert len(story.ready) > 1
    for answer in story.ready[1:]:
        assert answer.status == 503 and answer.code == "not-ready" and answer.json()["storage"] == {"reachable": False}


def test_nothing_acknowledged_is_lost(story: Story) -> None:
    assert {story.events[event_id]["state"] for event_id in story.due} == {"delivered"}
    assert [event_id for event_id in story.due if event_id not in story.hits] == []


def test_nothing_cancelled_before_is_delivered_after(story: Story) -> None:
    assert {story.events[event_id]["state"] for event_id in story.cancelled} == {"cancelled"}
    assert [event_id for event_id in story.cancelled if event_id in story.hits] == []


def test_events_due_meanwhile_are_delivered_late_and_show_it(story: Story) -> None:
    # Some that were claimed just before may still have been delivered on time: their owner needs no storage for that.
    missed = [event_id for event_id, due in story.due.items() if story.down + 30_000 < due < story.up]
    assert missed
    for event_id in missed:
        event, last = story.events[event_id], story.hits[event_id][-1]
        assert last.at >= story.up and event["late_ms"] == last.late_ms >= story.up - story.due[event_id] - 1_000
        assert millis_of(event["due"]) == story.due[event_id]


def test_nothing_is_early_and_a_repeated_delivery_has_a_higher_attempt(story: Story) -> None:
    for event_id, hits in story.hits.items():
        attempts = [hit.attempt for hit in hits]
        assert attempts == sorted(set(attempts)), event_id
        assert all(hit.at >= story.due[event_id] for hit in hits)
    again = sum(len(hits) > 1 for event_id, hits in story.hits.items() if event_id not in story.retrying)
    last = max(hits[-1].at for hits in story.hits.values())
    print(
        f"\nwithin {story.answering - story.up} ms events were taken again, within {last - story.up} ms all were delivered; "
        f"{again} twice; slowest refusal {story.slowest:.1f} s"
    )


def test_retries_go_on_afterwards(story: Story) -> None:
    statuses: list[int | None] = []
    for event_id in story.retrying:
        *failed, last = story.events[event_id]["attempts"]
        assert last["outcome"] == "delivered"
        statuses += [attempt.get("status") for attempt in failed]
    # The breaker spares some of them the first attempt, and an attempt without an answer has no status.
    assert 500 in statuses and set(statuses) <= {500, None}


def test_ids_and_minutes_that_were_refused_can_be_used_afterwards(story: Story) -> None:
    assert story.wanted
    assert {answer.status for answer in story.wanted_later} == {201}


def test_timers_come_back_by_themselves(story: Story) -> None:
    assert story.ready_after["timers"]["scheduler_scan"]["age_s"] < 100


@pytest.mark.devhost("it says when storage does not answer, and answers again")
def test_queues_come_back_by_themselves(story: Story) -> None:
    for queue in ("tocsin-shards", "tocsin-retries"):
        assert f"queue {queue}: storage does not answer" in story.log


def test_statistics_add_up_afterwards(story: Story) -> None:
    assert (story.stats["delivered"], story.stats["cancelled"], story.stats["dead"]) == (len(story.due), len(story.cancelled), 0)
