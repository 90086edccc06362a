"""Rows that were edited by hand and cannot be read. They block nothing else, and their subjects never count as free.

A partition stays as it is if its row or its owner's row cannot be read: the owner may be live.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, cast

from ..core.errors import Rejected
from ..storage.ports import Row
from .rows import INTENTS, NO_PARTITION, PARTITIONS, SERVERS, Intent, Verb, parse_intent

BLOCKING_VERBS: Final[frozenset[str]] = frozenset({"offline", "prohibit", "drain", "maintain"})
"""Verbs that keep partitions from being served, and whose row keys contain all that matters."""


def parse_rows[R](rows: Iterable[Row], parse: Callable[[Row], R]) -> tuple[list[tuple[Row, R]], list[str]]:
    """Return the parsed rows, and the keys of rows that cannot be read."""
    found, unreadable = list[tuple[Row, R]](), list[str]()
    for row in rows:
        try:
            found.append((row, parse(row)))
        except (KeyError, TypeError, ValueError, OverflowError):
            unreadable.append(row.rk)
    return found, unreadable


def parse_required[R](row: Row, parse: Callable[[Row], R]) -> R:
    """Parse a row that is indispensable, such as the caller's own. Raises `Rejected`: the caller tries again and continues after a
    repair."""
    found, _ = parse_rows([row], parse)
    if not found:
        raise Rejected(f"the row {row.rk} of {row.pk} was edited and cannot be read; repair it in the table")
    return found[0][1]


def parse_intents(rows: Iterable[Row]) -> tuple[list[Intent], list[str]]:
    """Return the intents among `rows`, and the keys of unreadable ones. An unreadable intent with a blocking verb stays in force."""
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
    """Return the names of servers with unreadable rows."""
    return {rk.removeprefix(SERVERS[0]) for rk in unreadable if rk.startswith(SERVERS[0])}


def undecidable_partitions(unreadable: Collection[str], owners: Iterable[tuple[int, str]]) -> set[int]:
    """Return the partitions that must stay as they are: their row or their owner's row cannot be read. owners: of readable partitions."""
    if not unreadable:
        return set()
    gone = unreadable_servers(unreadable)
    numbers = (rk.removeprefix(PARTITIONS[0]) for rk in unreadable if rk.startswith(PARTITIONS[0]))
    return {int(number) for number in numbers if number.isdecimal()} | {number for number, owner in owners if owner in gone}
