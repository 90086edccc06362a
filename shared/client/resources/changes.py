"""Changes named fields of a stored definition, and keeps all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ..errors import Changed, Unreadable
from ..exchange import ApiCall, CallSteps, RetrySettings, exchange

TRIES: Final = 5
"""Attempts of a change, if other calls change the same resource in between."""


class Stored(NamedTuple):
    """A stored definition and its entity tag."""

    definition: dict[str, Any]
    etag: str | None


def change_stored[T](
    read: ApiCall[Stored],
    write: Callable[[Mapping[str, Any], str], ApiCall[T]],
    change: Callable[[dict[str, Any]], Mapping[str, Any]],
    retry_settings: RetrySettings,
    chance: Callable[[], float],
) -> CallSteps[T]:
    """Read the definition, change it and store it; begin again if another call has changed it in between.

    write: the call that stores a definition if the entity tag is still the stored one. It may be repeatable: a try whose answer was lost
    changes the tag, and the next attempt changes the same fields again. Raises `NotFound` if there is nothing to change, `Changed` after
    `TRIES` attempts, and `Unreadable` for an answer without an entity tag.
    """
    for tries in range(1, TRIES + 1):
        stored = yield from exchange(read, retry_settings, chance)
        if not stored.etag:
            raise Unreadable(f"the answer to {read.method} {read.path} has no ETag header, so that a change could undo another one")
        try:
            return (yield from exchange(write(change(stored.definition), stored.etag), retry_settings, chance))
        except Changed:
            if tries == TRIES:
                raise
    raise AssertionError("unreachable")
