"""Times and durations as people type them."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
import typer

from shared.cli.terminal.times import duration, time_at
from shared.core.durations import parse_duration, parse_time

from ..conftest import Command

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 20, 21, 0)
"""A Friday."""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("1.5s", 1.5), ("5m", 300), ("5min", 300), ("2h30m", 9000), ("2h 30m", 9000), ("1w2d3s", 777_603), ("PT5S", 5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(duration(text)) == seconds * 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("21:30", "2026-11-20T21:30:00+01:00"),
        ("9:00", "2026-11-21T09:00:00+01:00"),
        ("21:00", "2026-11-21T21:00:00+01:00"),
        ("today 23:59:59", "2026-11-20T23:59:59+01:00"),
        ("tomorrow 9:00", "2026-11-21T09:00:00+01:00"),
        ("Friday 22:00", "2026-11-20T22:00:00+01:00"),
        ("friday 20:00", "2026-11-27T20:00:00+01:00"),
        ("2027-07-01 8:00", "2027-07-01T08:00:00+02:00"),
        ("2027-07-01T08:00", "2027-07-01T08:00:00+02:00"),
        ("2026-11-21T10:21:55.250Z", "2026-11-21T10:21:55.250Z"),
        ("now", "2026-11-20T21:00:00+01:00"),
    ],
)
def test_times(text: str, expected: str) -> None:
    assert time_at(text, NOW, BERLIN) == expected
    parse_time(expected)


@pytest.mark.parametrize("text", ["", "soon", "25:00", "today 20:00", "someday 9:00", "2026-02-30 9:00", "9", "tomorrow", "1:2:3:4"])
def test_other_texts_are_refused_with_examples(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        time_at(text, NOW, BERLIN)


@pytest.mark.parametrize("text", ["", "5", "5 parsecs", "m5", "5s2m", "-5s"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="2h30m"):
        duration(text)


def test_options_take_them(tocsin: Command) -> None:
    made = tocsin.ok("events", "create", "--delay", "2h", "--expires", "1d", "--payload", "1")
    assert "is scheduled" in made.out
    tocsin.ok("events", "create", "--due", "tomorrow 9:00", "--payload", "1")
    tocsin.ok("events", "list", "--from", "now", "--to", "2099-01-01 0:00")
    wrong = tocsin("events", "create", "--delay", "soon", "--payload", "1")
    assert wrong.code == 2 and "2h30m" in wrong.err
