"""Rows that somebody has edited by hand so that they cannot be read. They stop nothing else, and what they are about is never free.

A partition whose row cannot be read stays as it is, and so does one whose owner's row cannot be: whether that one lives nobody can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, cast

from ..core.errors import Rejected
from ..storage.ports import Row
from .rows import INTENTS, NO_PARTITION, PARTITIONS, SERVERS, Intent, Verb, parse_intent

BLOCKING_VERBS: Final[frozenset[str]] = frozenset({"offline", "prohibit", "drain", "maintain"})
"""Words that keep partitions from being served, and whose keys say all that matters."""


def parse_rows[R](rows: Iterable[Row], parse: Callable[[Row], R]) -> tuple[list[tuple[Row, R]], list[str]]:
    """What the rows mean, and the keys of those that cannot be read."""
    found, unreadable = list[tuple[Row, R]](), list[str]()
    for row in rows:
        try:
            found.append((row, parse(row)))
        except (KeyError, TypeError, ValueError, OverflowError):
            unreadable.append(row.rk)
    return found, unreadable


def parse_required[R](row: Row, parse: Callable[[Row], R]) -> R:
    """What a row means that nothing can be done without: the asker's own, say. Raises `Rejected`, so that the asker tries again later and
    goes on once it is mended."""
    found, _ = parse_rows([row], parse)
    if not found:
        raise Rejected(f"the row {row.rk} of {row.pk} was edited so that it cannot be read; mend it in the table")
    return found[0][1]


def parse_intents(rows: Iterable[Row]) -> tuple[list[Intent], list[str]]:
    """Operators' words among `rows`, and the keys of those that cannot be read: what such a word keeps from being served it keeps so."""
    found, unreadable = parse_rows((row for row in rows if INTENTS[0] <= row.rk < INTENTS[1]), lambda row: parse_intent(row.props))
    readable = [word for word in map(_of_key, unreadable) if word is not None]
    return [*(word for _, word in found), *readable], unreadable


def _of_key(rk: str) -> Intent | None:
    verb, _, rest = rk.removeprefix(INTENTS[0]).partition(":")
    number, _, server = rest.partition(":")
    if verb not in BLOCKING_VERBS or (number and not number.isdecimal()):
        return None
    return Intent(cast(Verb, verb), int(number) if number else NO_PARTITION, server, note="its row cannot be read")


def unreadable_servers(unreadable: Iterable[str]) -> set[str]:
    """Names of the servers whose rows cannot be read."""
    return {rk.removeprefix(SERVERS[0]) for rk in unreadable if rk.startswith(SERVERS[0])}


def undecidable_partitions(unreadable: Collection[str], owners: Iterable[tuple[int, str]]) -> set[int]:
    """The partitions that stay as they are: who has them cannot be read, or whether that one lives. owners: of those that can be read."""
    if not unreadable:
        return set()
    gone = unreadable_servers(unreadable)
    numbers = (rk.removeprefix(PARTITIONS[0]) for rk in unreadable if rk.startswith(PARTITIONS[0]))
    return {int(number) for number in numbers if number.isdecimal()} | {number for number, owner in owners if owner in gone}
