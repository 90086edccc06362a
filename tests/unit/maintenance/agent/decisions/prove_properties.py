"""Thousands of random lives of a node hold the three properties, and each planted mistake breaks one of them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from tests.model.maintenance.mutants import HOLES
from tests.proofs.facts import note

from . import test_properties

LIVES = 3000


def test_thousands_of_lives_hold_the_properties() -> None:
    assert test_properties.lives(LIVES) == ""
    note(seeds=f"0 to {LIVES - 1}")


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
        broken = test_properties.lives(LIVES, first=mistake.first, careless=mistake.careless).partition(":")[0]
    assert broken == mistake.breaks
    note(verdict="caught", by=broken, seeds=f"from {mistake.first}")
