"""Labels of a filter as one text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.label_text import labels_text, parse_labels

NAMES = st.text("abc.-_9", min_size=1, max_size=5)
VALUES = st.text(st.characters(codec="utf-8", min_codepoint=32, exclude_characters="\x7f"), max_size=8) | st.text(",\\=a", max_size=6)


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4))
def test_text_of_labels_is_read_back(labels: dict[str, str]) -> None:
    assert dict(parse_labels(labels_text(labels))) == labels


@pytest.mark.parametrize("text", ["", "a", "=1", "a=1,", ",a=1", "a=1,a=2", "a=1\\", "a=1\\x", "a b=1", "a=\n"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="label"):
        parse_labels(text)
