"""Storage neither answers nor refuses for a while: requests time out, and are carried out long after everybody has given them up.

This is what fences are for: a write whose answer was lost must not come to life behind the back of its successor.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ..conftest import FINAL, Answer, System, eventually, now_ms, text_of
from ..receiver import Hit

FREEZE = 14.0
"""Seconds; requests to storage are given up after ten."""


@dataclass
class Story:
    """The record of the story."""

    due: dict[str, int] = field(default_factory=dict)
    posts: dict[int, Answer] = field(default_factory=dict)
    """The answers to single posts, by the number in their payload."""
    cancels: dict[str, Answer] = field(default_factory=dict)
    frozen: int = 0
    thawed: int = 0
    hits: dict[str, list[Hit]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)


async def play(system: System) -> Story:
    story = Story()
    async with system.tenant() as tenant:
        api = tenant.api
        start = now_ms()
        due = [start + 2_000 + number * 50 for number in range(400)]
        ids = await api.batch([{"due": text_of(each), "payload": -1} for each in due])
        story.due = dict(zip(ids, due, strict=True))
        far = iter(await api.batch([{"due": text_of(start + 30_000), "payload": -1} for _ in range(2_000)]))
        stop = asyncio.Event()
        numbers = iter(range(1_000_000))

        async def post() -> None:
            while not stop.is_set():
                number = next(numbers)
                event = {"due": text_of(start + 28_000 + number % 1_000), "payload": number}
                story.posts[number] = await api.post("events", event | ({"id": f"n-{number}"} if number % 2 else {}))

        async def cancel() -> None:
            while not stop.is_set() and (event_id := next(far, None)) is not None:
                story.cancels[event_id] = await api.call("DELETE", f"events/{event_id}")

        working = asyncio.gather(*(work() for work in (post, cancel) for _ in range(4)))
        await eventually(lambda: len(tenant.hits) > 50 and story.posts and story.cancels, "everything under way")
        pid = system.azurite.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        story.frozen = now_ms()
        try:
            await asyncio.sleep(FREEZE)
        finally:
            os.kill(pid, signal.SIGCONT)
        story.thawed = now_ms()
        asked = len(story.posts)
        await eventually(lambda: len(story.posts) > asked + 20, "posts to be taken again")
        stop.set()
        await working
        await api.drained(deadline=300)
        story.events = await api.all("events?limit=1000")
        story.hits = tenant.by_id()
    return story


@pytest.fixture(scope="module")
def story(system: System) -> Iterator[Story]:
    yield asyncio.run(play(system))


def test_nothing_acknowledged_is_lost(story: Story) -> None:
    taken = [answer.json()["id"] for answer in story.posts.values() if answer.status == 201]
    states = {event["id"]: event["state"] for event in story.events}
    assert taken
    assert {states[event_id] for event_id in [*taken, *story.due]} == {"delivered"}
    assert all(event_id in story.hits for event_id in [*taken, *story.due])
    assert set(states.values()) <= FINAL


def test_no_post_became_two_events(story: Story) -> None:
    made = Counter(event["payload"] for event in story.events if event["payload"] != -1)
    assert set(made.values()) == {1}
    answered = {number: answer.json()["id"] for number, answer in story.posts.items() if answer.status == 201}
    assert answered.items() <= {event["payload"]: event["id"] for event in story.events if event["payload"] != -1}.items()
    # A refusal during the freeze may leave its event stored or not, and says that it does not know.
    for answer in story.posts.values():
        assert answer.status == 201 or (answer.status, answer.code) == (503, "storage-unavailable")


def test_acknowledged_cancel_holds(story: Story) -> None:
    done = [event_id for event_id, answer in story.cancels.items() if answer.status == 204]
    assert done and [event_id for event_id in done if event_id in story.hits] == []
    states = {event["id"]: event["state"] for event in story.events}
    assert {states[event_id] for event_id in done} == {"cancelled"}


def test_nothing_is_early_and_what_is_made_again_has_a_higher_attempt(story: Story) -> None:
    assert story.due.keys() & story.hits.keys()
    for event_id, hits in story.hits.items():
        attempts = [hit.attempt for hit in hits]
        assert attempts == sorted(set(attempts)), event_id
        assert event_id not in story.due or all(hit.at >= story.due[event_id] for hit in hits)
    again = sum(len(hits) > 1 for hits in story.hits.values())
    refused = sum(answer.status != 201 for answer in story.posts.values())
    meanwhile = sum(story.frozen < hits[0].at < story.thawed for hits in story.hits.values())
    print(f"\n{meanwhile} delivered during the freeze, {again} twice, {refused} of {len(story.posts)} posts refused")
