"""Groups of functions that go to zero, as on Flex Consumption: no process runs between events, and hidden messages wake none.

The story is played once for both ways in which the controller treats the timer; each test looks at what was recorded on the way.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from devhost.azurite import Azurite

from ..conftest import System, eventually, now_ms, text_of
from ..receiver import Hit, Receiver

RULES = "idle=8,cold=2,poll=3"
"""Rules of Flex in less time; the rest are the platform's."""
TIMES = (1, 30, 60)
"""Seconds from the start to the events. The groups go to zero in between."""


@dataclass
class Story:
    """The record of the story. due: times of the events, in milliseconds since 1970."""

    ticks: str
    due: dict[str, int] = field(default_factory=dict)
    hits: dict[str, list[Hit]] = field(default_factory=dict)
    states: set[str] = field(default_factory=set)
    log: str = ""


async def play(system: System, ticks: str) -> Story:
    story = Story(ticks)
    async with system.tenant() as tenant:
        start = now_ms()
        for seconds in TIMES:
            due = start + 1_000 * seconds
            story.due[await tenant.api.create(due=text_of(due))] = due
        await eventually(lambda: story.due.keys() <= tenant.by_id().keys(), "all to be delivered", 300)

        async def ended() -> bool:
            story.states = {(await tenant.api.event(event_id))["state"] for event_id in story.due}
            return story.states == {"delivered"}

        await eventually(ended, "final states")
        story.hits, story.log = tenant.by_id(), system.host.text
    return story


@pytest.fixture(scope="module", params=["ahead", "never"])
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Story]:
    with ExitStack() as stack:
        storage = stack.enter_context(Azurite(memory=True))
        rules = f"{RULES},ticks={request.param}"
        system = System(tmp_path_factory.mktemp("devhost"), storage, receiver, DEVHOST_FLEX=rules, LOG_LEVEL="INFO")
        stack.callback(system.host.end)
        system.host.start()
        yield asyncio.run(play(system, request.param))


def test_every_event_is_delivered_once_and_not_early(story: Story) -> None:
    assert story.states == {"delivered"}
    for event_id, due in story.due.items():
        assert [hit.at >= due for hit in story.hits[event_id]] == [True]


def test_the_group_that_delivers_went_to_zero_in_between(story: Story) -> None:
    assert len(re.findall(r"an instance of function:fire_shard goes away", story.log)) >= 1
    assert len(re.findall(r"an instance of function:fire_shard has started", story.log)) >= 2


def test_the_timer_has_a_process_only_if_the_controller_starts_it(story: Story) -> None:
    started = "an instance of function:sweep has started" in story.log
    assert started == (story.ticks == "ahead")
