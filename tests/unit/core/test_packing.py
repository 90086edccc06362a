"""Packs keep order, lose nothing, and are as full as they may be."""

from __future__ import annotations

from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from shared.core.packing import packs


@given(st.lists(st.integers(0, 12)), st.integers(1, 10), st.none() | st.integers(1, 4))
def test_packs_hold_all_items_in_order_and_none_is_over_its_bounds_or_emptier_than_need_be(
    weights: list[int], room: int, most: int | None
) -> None:
    found = list(packs(weights, lambda weight: weight, room, most))
    assert list(chain(*found)) == weights
    assert all(pack and (len(pack) == 1 or sum(pack) <= room) and (most is None or len(pack) <= most) for pack in found)
    assert all(len(pack) == most or sum(pack) + after[0] > room for pack, after in pairwise(found))
