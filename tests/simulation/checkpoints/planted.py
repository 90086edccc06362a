"""Known bugs, to be planted one at a time: a simulation that cannot find these proves nothing. Most are the model checker's mutants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shared.checkpoints import turns
from tests.model.checking.mutants import Patch, patched
from tests.model.turns import mutants

from .member import Member


def passed_over_is_forgotten() -> list[Patch]:
    """Debts are kept only for the replicas that can get the present turn."""
    plain = turns.choose

    def choose(candidates: Any, shares: Any, draw: float, resting: Any) -> Any:
        names = {each.node for each in candidates}
        return plain(candidates, [share for share in shares if share.node in names], draw)

    return [(turns, "choose", choose)]


def limit_forgotten() -> list[Patch]:
    """A member that does not stop at its limit."""
    return [(Member, "_limit", lambda self, body: None)]


PLANTED: dict[str, tuple[str, Callable[[], list[Patch]]]] = {
    "the next grant right after a revoke": ("trouble", mutants.granted_after_revoke),
    "a turn freed by a new process of its holder": ("trouble", mutants.freed_by_a_new_process),
    "latest replaced by an older one": ("health", mutants.latest_replaced),
    "the limit is forgotten": ("steps", limit_forgotten),
    "who is passed over is forgotten": ("calm", passed_over_is_forgotten),
    "always the first": ("calm", mutants.a_favourite),
    "turns have no end": ("trouble", mutants.never_timed_out),
}
"""By name: the style in which it shows, and the patches."""


@contextmanager
def planted(bug: str) -> Iterator[None]:
    """Run the simulated code with the bug, for as long as the context lasts."""
    with patched(PLANTED[bug][1]()):
        yield
