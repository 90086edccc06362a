"""Cursors come back as they went out, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import Problem
from shared.web.paging import MAX_CURSOR, decode_cursor, encode_cursor

_POSITIONS = st.text(max_size=50) | st.lists(st.text(max_size=10) | st.integers(-(2**53), 2**53), max_size=4)


@given(_POSITIONS)
def test_a_cursor_comes_back_as_it_went_out(position: str | list[str | int]) -> None:
    text = encode_cursor("things", position)
    assert text.isascii()
    assert "=" not in text
    assert decode_cursor("things", text, type(position)) == position


@given(_POSITIONS, st.integers(min_value=0), st.characters(codec="ascii"))
def test_a_cursor_that_was_changed_is_422(position: str | list[str | int], where: int, by: str) -> None:
    text = encode_cursor("things", position)
    at = where % len(text)
    mangled = text[:at] + by + text[at + 1 :]
    if mangled != text:
        with pytest.raises(Problem) as caught:
            decode_cursor("things", mangled, type(position))
        assert (caught.value.status, caught.value.errors[0]["pointer"]) == (422, "?cursor")


def test_a_cursor_of_another_list_is_422() -> None:
    with pytest.raises(Problem):
        decode_cursor("keys:acme", encode_cursor("keys:demo", "x"), str)


def test_a_position_of_another_shape_is_422() -> None:
    with pytest.raises(Problem):
        decode_cursor("things", encode_cursor("things", ["x"]), str)


@given(st.text(max_size=60))
def test_no_text_makes_it_stumble(text: str) -> None:
    with pytest.raises(Problem):
        decode_cursor("things", text, str)


def test_an_endless_cursor_is_422() -> None:
    with pytest.raises(Problem):
        decode_cursor("things", encode_cursor("things", "x" * MAX_CURSOR), str)
