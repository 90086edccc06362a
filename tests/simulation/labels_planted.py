"""Known bugs of label rows, to be planted one at a time: histories that cannot find these prove nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shared.engine.effects import Steps, write
from shared.scheduler.changes import verbs as changes
from shared.scheduler.facets import FACETS
from shared.scheduler.facets.finding import Labels
from shared.scheduler.points import Facets
from shared.scheduler.protocol import changing
from shared.scheduler.queries import label_index, lookup
from shared.storage.names import SWEEPS
from shared.storage.ports import Delete, Row
from tests.model.checking.mutants import patched


async def not_labelled(self: changes.Changes, tenant: str, row: Row) -> None:
    """A change that moves an event without a mark, and files nothing for it."""


def not_repaired(*_: Any) -> Steps[None]:
    """Owners that file nothing for events without a mark."""
    return
    yield


def nothing_filed(*_: Any) -> Steps[None]:
    """Moved and redriven events that get no label rows at their new places."""
    return
    yield


def removed_at_once(row: Row) -> Steps[bool]:
    """A list that removes each row which leads to nothing yet."""
    yield from write(SWEEPS, row.pk, Delete(row.rk, row.etag))
    return True


def begins_at_once(progress: label_index.LabelProgress, marker: Row | None) -> int:
    """A pass that does not wait until all processes know of the declaration."""
    return 0


type Place = tuple[object, str]
WITHOUT_LABELS = Facets(tuple(each for each in FACETS.each if not isinstance(each, Labels)))
LABELS_PLANTED: dict[str, tuple[int, list[tuple[Place, Any]]]] = {
    "moved events without a mark are filed by nobody": (
        0,
        [((changes.Changes, "_label"), not_labelled), ((Labels, "before_release"), not_repaired)],
    ),
    "moved events are not filed": (0, [((Labels, "on_move"), nothing_filed), ((changing, "FACETS"), WITHOUT_LABELS)]),
    "rows that lead to nothing are removed at once": (120, [((lookup, "remove_stale"), removed_at_once)]),
    "a pass begins at once": (80, [((label_index, "_earliest"), begins_at_once)]),
}
"""By bug: the first seed to play, shortly before one that shows the bug, and what to patch."""


@contextmanager
def labels_planted(name: str) -> Iterator[int]:
    """Plant the bug `name` in the app; yield the first seed to play."""
    first, places = LABELS_PLANTED[name]
    with patched((where, attribute, bug) for (where, attribute), bug in places):
        yield first
