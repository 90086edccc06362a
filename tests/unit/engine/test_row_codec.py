"""The row codec: fields that are left out, that have a stored form of None, and that take several properties."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from shared.engine.row_codec import Format, RowCodec, Spread
from shared.storage.ports import Props


class Plain(NamedTuple):
    name: str
    count: int = 0
    at: int | None = None
    note: str | None = None
    words: tuple[str, ...] = ()


def spread(words: tuple[str, ...]) -> Props:
    return {"words": len(words), **{f"word{number}": word for number, word in enumerate(words)}}


def gather(props: Props) -> tuple[str, ...]:
    return tuple(str(props[f"word{number}"]) for number in range(int(props["words"])))


CODEC = RowCodec(
    Plain,
    formats={
        "at": Format(lambda at: -1 if at is None else at, lambda at: None if at < 0 else at, takes_none=True),
        "words": Spread(spread, gather),
    },
    sparse=("count",),
    given=("name",),
)


@pytest.mark.parametrize(
    ("value", "props"),
    [
        (Plain("a"), {"at": -1, "words": 0}),
        (Plain("a", 3, 7, "why", ("x", "y")), {"count": 3, "at": 7, "note": "why", "words": 2, "word0": "x", "word1": "y"}),
    ],
)
def test_a_value_and_its_row(value: Plain, props: Props) -> None:
    assert CODEC.encode(value) == props
    assert CODEC.decode({**props, "unknown": 1}, "a") == value


@pytest.mark.parametrize("props", [{"words": 0}, {"at": -1}, {"at": -1, "words": 1}, {"at": -1, "words": 0, "count": "x"}])
def test_a_row_that_lacks_a_property_or_has_another_type_cannot_be_read(props: Props) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        CODEC.decode(props, "a")


@pytest.mark.parametrize("options", [{"sparse": ("missing",)}, {"added": ("name",)}, {"formats": {}}])
def test_a_codec_that_cannot_work_is_refused_when_it_is_declared(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        RowCodec(Plain, **options)
