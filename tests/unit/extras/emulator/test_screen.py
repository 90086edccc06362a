"""The table on the terminal."""

from __future__ import annotations

import io

from rich.console import Console

from shared.extras.emulator.model import World
from shared.extras.emulator.screen import clock, line, screen
from tests.texts import assert_text
from tests.unit.extras.emulator.worlds import do, event, on, pass_to, post, world


def painted(there: World, height: int = 50) -> str:
    urls = {name: f"http://127.0.0.1:{8901 + index}" for index, name in enumerate(there.vms)}
    console = Console(file=io.StringIO(), width=200, height=height)
    console.print(screen(there, urls, "http://127.0.0.1:8900", there.log, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def row(picture: str, name: str) -> str:
    return next(text for text in picture.splitlines() if text.split()[:1] == [name])


def test_machines_and_events_are_shown_with_what_comes_next() -> None:
    there = on(do(world("n1", "n2"), event={"name": "update", "vms": ["n1"], "others": "never"}))
    there, _ = post(pass_to(there, 60), event(there, "update").shown.id, vm="n2")
    picture = painted(there)
    assert "http://127.0.0.1:8901" in row(picture, "n1") and "1:00 ago" in row(picture, "n1")
    assert row(picture, "update").split() == ["update", "Freeze", "Platform", "Scheduled", "n1", "n2", "starts", "in", "14:00"]
    there = pass_to(there, 901)
    assert row(painted(there), "update").split()[-3:] == ["ends", "in", "9:59"]
    assert "completed" in row(painted(pass_to(there, 3600)), "update")


def test_machines_that_something_happens_to_come_first_and_the_rest_are_counted() -> None:
    there = do(world(*(f"n{number:03d}" for number in range(150))), event={"name": "update", "vms": ["n149"]})
    picture = painted(there, 30)
    assert row(picture, "n149") and "and 145 more" in picture and "n140" not in picture


def test_the_last_lines_of_the_log_are_shown_as_sentences() -> None:
    there = on(do(world(), event={"name": "update", "vms": ["n1"]}))
    assert line(there.log[0]) == f"08:00:00.000 scheduled update {event(there, 'update').shown.id}"
    read = line(there.log[-1])
    assert_text("emulator.read", read, time="08:00:00.000", machine="n1")
    assert read.removeprefix("08:00:00.000 ") in painted(there)


def test_spans_are_shown_as_people_read_them() -> None:
    assert [clock(span) for span in (0, 59_999, 61_000, 3_723_000, -30_000)] == ["0:00", "0:59", "1:01", "1:02:03", "-0:30"]
