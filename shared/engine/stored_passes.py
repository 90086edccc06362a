"""Passes over the rows of several partitions in turn, page by page, whose position is stored between pages. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..storage.ports import Page


class PassPlace(NamedTuple):
    """The next row to read: its partition, and the first possible key."""

    partition: str
    key: str


def following(left: Sequence[str], key: str, page: Page) -> PassPlace | None:
    """Return where the pass goes on after a page of the partition `left[0]` from `key` on; None at the end of the last partition."""
    if page.next is not None:
        return PassPlace(left[0], page.rows[-1].rk + "!" if page.rows else key)
    return PassPlace(left[1], "") if len(left) > 1 else None
