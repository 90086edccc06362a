"""Labels of a filter as one text: `order=17,team=blue`. A comma or backslash in a value stands behind a backslash."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PAIR = r"([A-Za-z0-9_.-]{1,64})=((?:[^,\\\x00-\x1f\x7f]|\\[,\\])*)"
_ONE = re.compile(_PAIR + r"(?:,|$)")
_ALL = re.compile(f"{_PAIR}(?:,{_PAIR})*")
_SPECIAL = re.compile(r"([,\\])")


def parse_labels(text: str) -> tuple[tuple[str, str], ...]:
    """Return the labels, sorted by name. Raises ValueError for another text, and for a name that is given twice."""
    if not _ALL.fullmatch(text):
        raise ValueError("is not a list of labels such as order=17,team=blue")
    pairs = [(found[1], re.sub(r"\\(.)", r"\1", found[2])) for found in _ONE.finditer(text)]
    if len(dict(pairs)) != len(pairs):
        raise ValueError("names a label twice")
    return tuple(sorted(pairs))


def labels_text(labels: Mapping[str, str]) -> str:
    """Return the text of labels: the inverse of `parse_labels`."""
    return ",".join(f"{name}={_SPECIAL.sub(r'\\\1', value)}" for name, value in labels.items())
