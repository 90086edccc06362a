"""Grouping of items into the fewest lists that fit into one transaction, message or request each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


def packs[T](items: Iterable[T], weight: Callable[[T], int], room: int, most: int | None = None) -> Iterator[list[T]]:
    """Yield lists of consecutive items: at most `most` items with a total weight of at most `room`. A heavier item is alone in its list."""
    pack: list[T] = []
    filled = 0
    for item in items:
        more = weight(item)
        if pack and (len(pack) == most or filled + more > room):
            yield pack
            pack, filled = [], 0
        pack.append(item)
        filled += more
    if pack:
        yield pack
