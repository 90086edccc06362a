"""Items in as few packs as their order allows: what one transaction, message or request takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


def packs[T](items: Iterable[T], weight: Callable[[T], int], room: int, most: int | None = None) -> Iterator[list[T]]:
    """Lists of consecutive items, each of at most `most` and weighing at most `room`. One that weighs more is alone."""
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
