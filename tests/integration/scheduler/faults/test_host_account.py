"""The host's own account (`AzureWebJobsStorage`) refuses connections for a while; the accounts with the events answer.

As the Functions host does, the devhost ends the process that holds the lease of the timers. The next start takes long and has no timers
until the account is back. Everything runs in one host, so its requests end with it, and the clients repeat them.

The story is played once for all tests; each test looks at what was recorded on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from devhost.azurite import Azurite

from ..conftest import Api, System, Tenant, eventually, millis_of, now_ms, text_of
from ..receiver import Hit, Receiver

SHORT, LONG = 60.0, 300.0
"""Seconds without the host's account. In the long outage, the second clock of the sweep has to take over."""
REFUSED = "ends=5,again=1,start=6,timers=8"
"""Rules of refused connections, in a fifth of the host's own time."""
ENDS, BEGINS = "Host is shutting down", "was started anew"
EVERY = 10
"""Seconds between two occurrences of the schedule."""


@dataclass
class Story:
    """The record of the story. Times are milliseconds since 1970."""

    outage: float
    down: int = 0
    up: int = 0
    due: dict[str, int] = field(default_factory=dict)
    """Every event that was acknowledged."""
    late: list[str] = field(default_factory=list)
    """Those that were due before the account came back."""
    hits: dict[str, list[Hit]] = field(default_factory=dict)
    hits_before: set[str] = field(default_factory=set)
    """Events that were delivered before the account came back."""
    occurrences: list[int] = field(default_factory=list)
    """Due times of the schedule's deliveries before the account came back."""
    clocks: list[str] = field(default_factory=list)
    """The clocks that made sweeps, in the long outage before the account came back, and afterwards."""
    states: set[str] = field(default_factory=set)
    log: str = ""


async def spread(story: Story, tenant: Tenant, count: int, first: float, last: float) -> None:
    start = now_ms()
    due = [start + round(1_000 * (first + (last - first) * number / count)) for number in range(count)]
    events = [{"due": text_of(each), "payload": number} for number, each in enumerate(due)]
    story.due |= dict(zip(await tenant.api.batch(events), due, strict=True))


async def sweeps(anyone: Api, clock: str, since: int) -> bool:
    """Return True once this clock, `timer` or `message`, has begun a sweep since then."""
    clocks = (await anyone.get("/readyz")).json().get("clocks") or {}
    age = clocks.get(f"{clock}_age_s")
    return age is not None and now_ms() - 1_000 * age >= since


async def play(system: System, account: Azurite, back: Azurite, outage: float) -> Story:
    story, host = Story(outage), system.host
    async with system.tenant(patient=True) as tenant, Api(host.url, "any-key-will-do", patient=True) as anyone:
        await tenant.channel("times", f"{tenant.path}/times")
        schedule = {"every": f"PT{EVERY}S", "payload": 1, "channel": "times"}
        assert (await tenant.api.call("PUT", "schedules/each", schedule)).status == 201
        await spread(story, tenant, 200, 2.0, outage + 20.0)
        await eventually(lambda: len(tenant.hits) > 5, "deliveries under way")
        await asyncio.to_thread(account.stop)
        story.down = now_ms()
        await eventually(lambda: ENDS in host.text, "the end of the host")
        await eventually(lambda: BEGINS in host.text, "the next host")
        while now_ms() < story.down + outage * 1_000:
            # Further ahead than a writer sends messages, too: a look has to send them, and no timer makes it.
            await spread(story, tenant, 2, 3.0, 45.0)
            await asyncio.sleep(2)
        if outage == LONG:
            await eventually(lambda: sweeps(anyone, "message", story.down), "a sweep for a message")
            story.clocks.append("message")
        story.late = [event_id for event_id, due in story.due.items() if due < now_ms()]
        await eventually(lambda: set(story.late) <= tenant.by_id().keys(), "all to be delivered that are due, without the account")
        story.hits_before = set(tenant.by_id())
        times = tenant.receiver.by_id(f"{tenant.path}/times")
        story.occurrences = sorted(millis_of(hits[0].due) for hits in times.values())
        await asyncio.to_thread(back.start)
        story.up = now_ms()
        await eventually(lambda: sweeps(anyone, "timer", story.up), "a sweep of the timer")
        story.clocks.append("timer")
        await eventually(lambda: story.due.keys() <= tenant.by_id().keys(), "all to be delivered", 300)

        async def ended() -> bool:
            found = {event["id"]: event["state"] for event in await tenant.api.all("events?limit=1000")}
            story.states = {found[event_id] for event_id in story.due}
            return not story.states & {"scheduled", "firing", "retrying"}

        await eventually(ended, "final states", pause=0.5)
        story.hits, story.log = tenant.by_id(), host.text
    return story


@pytest.fixture(scope="module", params=[SHORT, pytest.param(LONG, marks=pytest.mark.long)])
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Story]:
    account = Azurite(memory=True)
    back = Azurite(memory=True, blob=account.blob, queue=account.queue, table=account.table)
    with ExitStack() as stack:
        storage = stack.enter_context(Azurite(memory=True))
        more = {"AzureWebJobsStorage": account.connection_string, "DEVHOST_REFUSED": REFUSED}
        system = System(tmp_path_factory.mktemp("devhost"), storage, receiver, **more)
        stack.callback(account.stop)
        stack.callback(back.stop)
        stack.callback(system.host.end)
        account.start()
        system.host.start()
        yield asyncio.run(play(system, account, back, request.param))


def test_the_host_ended_once_and_began_again_without_a_hand(story: Story) -> None:
    assert story.up - story.down >= story.outage * 1_000
    assert f"{ENDS} (http): the lease of the timers" in story.log
    assert (story.log.count(ENDS), story.log.count(BEGINS)) == (1, 1)


def test_nothing_acknowledged_is_lost(story: Story) -> None:
    assert story.states == {"delivered"}
    assert story.due.keys() <= story.hits.keys()


def test_what_is_due_meanwhile_does_not_wait_for_the_account(story: Story) -> None:
    assert len(story.late) > 100
    assert set(story.late) <= story.hits_before


def test_schedules_go_on_meanwhile(story: Story) -> None:
    # From the first occurrence on, each has come, up to the last that was due before the account came back.
    pauses = {later - earlier for earlier, later in zip(story.occurrences, story.occurrences[1:], strict=False)}
    assert len(story.occurrences) >= story.outage / EVERY - 1 and pauses == {EVERY * 1_000}


def test_nothing_is_early_and_a_repeated_delivery_has_a_higher_attempt(story: Story) -> None:
    for event_id, due in story.due.items():
        attempts = [hit.attempt for hit in story.hits[event_id]]
        assert attempts == sorted(set(attempts)) and all(hit.at >= due for hit in story.hits[event_id])


def test_another_clock_makes_the_sweeps_in_a_long_outage_and_the_timer_does_when_the_account_is_back(story: Story) -> None:
    assert story.clocks == (["message", "timer"] if story.outage == LONG else ["timer"])
