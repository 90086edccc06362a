"""Changes of many events by the command: count, sample, question, report."""

from __future__ import annotations

import pytest

from shared.cli.events import jobs
from shared.cli.exits import Exit
from tests.texts import assert_text

from ..conftest import Command


@pytest.fixture(autouse=True)
def waiting(tocsin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the command waits, the app works."""
    monkeypatch.setattr(jobs, "wait", lambda session: tocsin.kit.advance(seconds=1))


def create(tocsin: Command, label: str, count: int) -> list[str]:
    ids = [f"{label}-{number}" for number in range(count)]
    for id in ids:
        tocsin.ok("events", "create", "--due", "2028-06-01T10:00:00Z", "--id", id, "--label", f"order={label}")
    return ids


def states(tocsin: Command, label: str) -> set[str]:
    return {each["state"] for each in tocsin.ok("events", "list", "--label", f"order={label}", "--json").documents}


def test_events_are_cancelled_after_a_count_and_a_sample(tocsin: Command) -> None:
    ids = create(tocsin, "many", 12)
    asked = tocsin("events", "cancel", "--label", "order=many")
    assert asked.code == Exit.USAGE and "Cancel 12 events" in asked.err and "--yes" in asked.err
    assert states(tocsin, "many") == {"scheduled"}
    done = tocsin.ok("events", "cancel", "--label", "order=many", "--channel", "default", "--yes").out
    assert "12 events match (the first 10)" in done and sum(id in done for id in ids) >= 10
    assert_text("bulk.done", done.splitlines()[-1:], action="cancel", done=12, matched=12, skipped=0, failed=0)
    assert states(tocsin, "many") == {"cancelled"}
    assert tocsin.ok("events", "cancel", "--label", "order=many", "--yes").out == "no events match\n"


def test_events_are_moved_and_fired_and_the_report_is_json(tocsin: Command) -> None:
    create(tocsin, "moved", 2)
    [report] = tocsin.ok("events", "move", "--label", "order=moved", "--later", "PT1H", "--yes", "--json").documents
    assert (report["state"], report["done"], report["later"]) == ("done", 2, "PT1H")
    due = {each["due"] for each in tocsin.ok("events", "list", "--label", "order=moved", "--json").documents}
    assert due == {"2028-06-01T11:00:00.000Z"}
    tocsin.ok("events", "fire", "--label", "order=moved", "--yes")
    tocsin.kit.advance(seconds=90)
    assert states(tocsin, "moved") == {"delivered"}
    assert tocsin.ok("events", "redrive", "--id-prefix", "moved-", "--yes").out == "no events match\n"
    shown = tocsin.ok("jobs", "list").out
    assert "move" in shown and "done" in shown
    found = tocsin.ok("jobs", "get", report["id"], "--json").documents[0]
    assert found["done"] == 2
    assert_text("bulk.done", tocsin.ok("jobs", "cancel", report["id"]).lines, action="move", done=2, matched=2, skipped=0, failed=0)


FILTERS = (
    ("--from", "2031-01-01T00:00:00Z"),
    ("--to", "2001-01-01T00:00:00Z"),
    ("--channel", "nowhere"),
    ("--label", "order=nowhere"),
    ("--id-prefix", "nowhere-"),
    ("--error", "nowhere"),
)


@pytest.mark.parametrize("given", FILTERS, ids=[name for name, _ in FILTERS])
@pytest.mark.parametrize("action", ["cancel", "fire", "redrive"])
def test_each_filter_starts_a_job_of_each_action(tocsin: Command, action: str, given: tuple[str, str]) -> None:
    assert tocsin.ok("events", action, *given).out == "no events match\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("cancel",),
        ("cancel", "one", "--label", "order=1"),
        ("fire",),
        ("move", "--later", "PT1H"),
        ("move", "--label", "order=1"),
        ("move", "--label", "order=1", "--later", "PT1H", "--earlier", "PT1H"),
        ("redrive", "one", "--label", "order=1"),
    ],
)
def test_wrong_usage_changes_nothing(tocsin: Command, arguments: tuple[str, ...]) -> None:
    assert tocsin("events", *arguments).code == Exit.USAGE
