"""Ways: a known way is followed instead of a hunt, and what is stored is what hunts find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from tests.model.__main__ import PROTOCOLS
from tests.model.checking import ways
from tests.model.checking.checker import Report, Violation, explore
from tests.model.checking.mutants import Mutant

STORED = [(protocol, mutant) for protocol in ways.FOLLOWED for mutant in PROTOCOLS[protocol].mutants]


class Stairs:
    """A number grows by one or two; it must not become 5, nor by a step of two 8."""

    def initial(self) -> int:
        return 0

    def successors(self, state: int) -> Iterator[tuple[str, Callable[[], int]]]:
        for step in (1, 2):
            # As copies of a request: another number each time.
            yield f"up {step} #{state}", lambda step=step: self.up(state, step)

    def up(self, state: int, step: int) -> int:
        if (state, step) == (6, 2):
            raise Violation("8 by two")
        return state + step

    def key(self, state: int) -> int:
        return state

    def check(self, state: int) -> None:
        if state == 5:
            raise Violation("5", ["(from here without faults)", "in vain"])


def way(*labels: str) -> list[str]:
    return [ways.mark(label) for label in labels]


def test_way_leads_to_the_violation_that_a_hunt_finds() -> None:
    found = explore(Stairs())
    followed = ways.follow(Stairs(), ways.marks(found).split())
    assert (found.violation, found.steps) == (followed.violation, followed.steps) == ("5", 3)
    assert followed.trace[: followed.steps] == found.trace[: found.steps]
    assert followed.states == 4


def test_way_leads_to_a_step_that_breaks_a_rule() -> None:
    followed = ways.follow(Stairs(), way("up 2 #1", "up 2 #2", "up 2 #3", "up 2 #4"))
    assert (followed.violation, followed.steps) == ("8 by two", 4)


@pytest.mark.parametrize("stored", [None, ways.mark("up 1 #0"), ways.mark("down")], ids=["none", "too short", "no such step"])
def test_mutant_is_hunted_where_no_way_leads_to_a_violation(stored: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "WAYS", {} if stored is None else {"stairs: steep": stored})
    hunted: list[str] = []

    def hunt(mutant: SimpleNamespace, *, explore: Callable[..., Report] = explore) -> Report:
        hunted.append(mutant.name)
        return explore(Stairs(), limit=100)

    assert ways.catch("stairs", SimpleNamespace(name="steep"), hunt).violation == "5"
    assert hunted == ["steep"] * (1 if stored is None else 2)


def test_every_mutant_has_a_way() -> None:
    assert set(ways.WAYS) == {f"{protocol}: {mutant.name}" for protocol, mutant in STORED}


@pytest.mark.long
@pytest.mark.parametrize(("protocol", "mutant"), STORED, ids=lambda each: getattr(each, "name", each))
def test_no_way_to_a_violation_is_shorter(protocol: str, mutant: Mutant) -> None:
    report = PROTOCOLS[protocol].hunt(mutant)
    assert report.violation is not None
    assert report.steps == len(ways.WAYS[f"{protocol}: {mutant.name}"].split())
