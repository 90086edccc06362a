"""Random lives of a node hold the three properties, and each planted mistake breaks one of them."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.maintenance.mutants import HOLES
from tests.unit.maintenance.agent.decisions.agent_life import WEIGHED, Broken, Life, Move, check

moves = st.lists(st.tuples(st.sampled_from(WEIGHED), st.integers(0, 7)), max_size=40)


@given(moves, st.integers(0, 3), st.booleans())
@settings(max_examples=200)
def test_random_lives_hold_the_properties(script: list[Move], which: int, drained: bool) -> None:
    check(script, which, drained=drained)


def random_script(seed: int) -> list[Move]:
    dice = random.Random(seed)
    return [(dice.choice(WEIGHED), dice.randrange(8)) for _ in range(dice.randrange(5, 60))]


def lives(number: int, *, first: int = 0, careless: bool = False) -> str:
    """Return the first property that breaks within this many lives, '' if none does."""
    for seed in range(first, first + number):
        try:
            check(random_script(seed), seed, drained=seed % 5 == 0, careless=careless)
        except Broken as broken:
            return str(broken)
    return ""


def test_many_more_lives_hold_the_properties() -> None:
    assert lives(100) == ""


@pytest.mark.long
def test_thousands_of_lives_hold_the_properties() -> None:
    assert lives(3000) == ""


def test_script_that_does_little_still_reaches_every_kind_of_hook_and_an_approval() -> None:
    reached: set[str] = set()
    begin, post = Life._begin, Life._judge_post

    def noted_begin(life: Life, effect: Any) -> None:
        reached.add(effect.kind)
        begin(life, effect)

    def noted_post(life: Life, effect: Any) -> None:
        reached.add("post of a prepared event" if effect.event_id in life.world.ready else "post")
        post(life, effect)

    with patch.object(Life, "_begin", noted_begin), patch.object(Life, "_judge_post", noted_post):
        assert lives(50) == ""
    assert reached == {"prepare", "emergency", "restore", "verify", "caught_up", "post", "post of a prepared event"}


# -- planted mistakes


@dataclass(frozen=True)
class Mistake:
    """A step that is left out or done out of order, and the property that this breaks. first: where the lives begin that are tried, for one
    that takes long to show."""

    breaks: str
    hole: str = ""
    careless: bool = False
    first: int = 0


MISTAKES = [
    Mistake("unprepared", "approved while it waits"),
    Mistake("unprepared", "approved after a failed prepare", first=270),
    Mistake("unprepared", "prepared before the boot is prepared", first=40),
    Mistake("unprepared", "nothing needs preparation"),
    Mistake("unprepared", "a lease is all it takes", first=60),
    Mistake("unprepared", "a stopped hook believed", first=70),
    Mistake("not restored", careless=True, first=850),
    Mistake("not restored", "taken out of service unmarked"),
    Mistake("not restored", "our mark not believed"),
    Mistake("not restored", "a failed restore taken for one"),
    Mistake("undone", "every lost state taken for our mark"),
    Mistake("garbage", "nonsense taken for no events"),
    Mistake("garbage", "parts taken for the whole"),
    Mistake("garbage", "a failed look forgotten", first=200),
    Mistake("garbage", "no look after a start"),
    Mistake("garbage", "put back beside another event"),
    Mistake("ended", "the end not heeded"),
    Mistake("unprepared", "what the fleet asks forgotten"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.hole or "saved after it is done")
def test_planted_mistake_breaks_its_property(mistake: Mistake) -> None:
    with patch.object(*HOLES[mistake.hole]) if mistake.hole else nullcontext():
        assert lives(3000, first=mistake.first, careless=mistake.careless).partition(":")[0] == mistake.breaks
