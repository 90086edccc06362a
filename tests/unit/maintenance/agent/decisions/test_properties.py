"""Random lives of a node hold the three properties. `prove_properties` tries thousands, and each planted mistake."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

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
