"""Histories with a facet that the service does not have (`tests.added_facet`), and with processes that end at any step.

The plans, events and promises are those of the other histories. The journal keeps its own promises with each write of events; once all is
quiet, it calls each shard ended; when retention is over, nothing of it is left.
"""

from __future__ import annotations

from typing import Any

from shared.storage.names import EVENTS, SWEEPS
from shared.storage.ports import Applied, Row
from tests.added_facet import JOURNAL, Journal, added, broken, is_note, unfinished

from ..history import Report, World, quietly
from ..profile import FAULTS, Profile
from .instance import Instance


class AddedWorld(World):
    """One history with the journal in the table of facets."""

    def __init__(self, seed: int, style: str | None = None) -> None:
        super().__init__(seed, style)
        self._kept = True
        """True until retention begins, which removes rows one after the other."""

    def note(self, instance: Instance | None, what: str, subject: Any, result: Any = None) -> None:
        super().note(instance, what, subject, result)
        if self._kept and isinstance(result, Applied) and subject[0] == EVENTS and (sentence := broken(self.stored())):
            self.fail(sentence)

    def rows(self, table: str) -> list[Row]:
        # The checks of all histories take the rows of a shard for its gate and its events.
        return [row for row in super().rows(table) if table != EVENTS or not is_note(row.rk)]

    async def verdict(self, instance: Instance) -> None:
        stored = self.stored()
        if sentence := unfinished(stored):
            self.fail(sentence)
        self._kept = False
        self.counts["notes"] += sum(is_note(rk) for table, _, rk in stored if table == EVENTS)
        await super().verdict(instance)
        if self.profile.retention and (left := [key for key in self.stored() if is_note(key[2]) or key[:2] == (SWEEPS, JOURNAL)]):
            self.fail(f"retention leaves {left[:6]}")

    def stored(self) -> dict[tuple[str, str, str], Any]:
        """Return the rows of the tables in which the journal has some."""
        return {(table, row.pk, row.rk): row.props for table in (EVENTS, SWEEPS) for row in self.rows_of(self.tables, table)}


def simulate_added(seed: int, style: str | None = None) -> Report:
    """One history. The same seed gives the same one, to the last line of its trace."""
    return _played(AddedWorld(seed, style))


def simulate_killed(seed: int, step: int, kind: str) -> tuple[Report, bool]:
    """One history in which a process is killed once, at effect number `step`; and False if there are fewer effects.

    kind: `crash` before the effect, `crash-applied` after it.
    """
    world = AddedWorld(seed, "single")
    world.profile = _short(world.profile, step, kind)
    report = _played(world)
    return report, world._effects >= step


def _short(profile: Profile, step: int, kind: str) -> Profile:
    profile.at, profile.crashes = frozenset({step}), 1
    profile.weights = {effect: ([kind], [1]) for effect, faults in FAULTS.items() if kind in faults}
    profile.window, profile.horizon, profile.trouble = 10.0, 15.0, 60.0
    profile.latency = profile.drift = profile.impatient = profile.deploys = profile.message_trouble = 0.0
    profile.timer_silent = profile.timer_doubled = 0.0
    profile.events, profile.tenants, profile.skew = 4, 1, 0
    profile.events_per_second = profile.open_events = profile.page_rows = None
    profile.retention = True
    return profile


def _played(world: AddedWorld) -> Report:
    with added(Journal()), quietly(world.profile.group):
        return world.play()
