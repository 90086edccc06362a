"""The judgement of a receiver, from observations that are hard to bring about; and the table as people see it.

GOLDEN=write overwrites the table in `screen.txt`; read the difference.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shared.cli.findings import Line, draw_lines
from shared.cli.receiver.plan import Check, CheckPlan
from shared.cli.receiver.rules import judge
from shared.cli.receiver.seen import Certificate, IdleConnection, Observed, ReceiverSeen, Step, duplicate_of
from shared.cli.terminal import output
from shared.cli.terminal.output import Screen

PICTURE = Path(__file__).with_name("screen.txt")
PLAN = CheckPlan()
OK = Observed(200, outcome="delivered", ms=20.0, says_kept=True)
NEW, KNOWN = OK._replace(duplicate=False), OK._replace(duplicate=True)
REFUSED = Observed(401, ms=5.0, says_kept=True)
LOST = Observed(failure="the connection was closed before an answer", ms=5.0)
TIMEOUT = Observed(failure="no answer within 30 s", ms=30_000.0, timed_out=True)
GOOD: dict[str, list[Observed]] = {
    "delivery": [NEW],
    "second": [NEW._replace(used=True)],
    "duplicate": [KNOWN],
    "parallel": [NEW, *[KNOWN] * 4],
    "other ce-id": [REFUSED],
    **{name: [REFUSED] for name in ("forged", "unsigned", "changed", "old", "future", "empty")},
    **{name: [NEW] for name in ("after forged", "right last", "right first", "newer scheme", "spaced", "text", "null", "large")},
    **{name: [NEW] for name in ("longest id", "large header", "slow", "idle")},
    "late": [KNOWN],
}


def seen(changes: dict[str, list[Observed] | None] | None = None, **others: Any) -> ReceiverSeen:
    """Return the observations of a good run with some steps changed; None: the run did not come to it."""
    found = {name: Step(answers) for name, answers in {**GOOD, **(changes or {})}.items() if answers is not None}
    made = ReceiverSeen(owner="it is on this machine", steps=found, sizes={"large": 262_144}, idle=IdleConnection(waited=14.0))
    made.offset.low, made.offset.high = -0.4, 0.5
    for name, value in others.items():
        setattr(made, name, value)
    return made


def lines(found: ReceiverSeen, plan: CheckPlan = PLAN) -> dict[str, Line]:
    judged = judge(found, plan, tuple(Check))
    assert len({line.check for line in judged}) == len(judged)
    assert all(bool(line.means and line.do) == (line.result != "ok") for line in judged)
    return {line.check: line for line in judged}


def results(found: ReceiverSeen, plan: CheckPlan = PLAN) -> dict[str, str]:
    """Return the results that are not ok."""
    return {name: line.result for name, line in lines(found, plan).items() if line.result != "ok"}


def test_good_run_is_ok_in_all_lines() -> None:
    assert results(seen()) == {}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"second": [TIMEOUT._replace(used=True)], "second again": [NEW]}, {"connections": "bad"}),
        ({"second": [LOST._replace(used=True)], "second again": [NEW]}, {"connections": "bad"}),
        ({"delivery": [NEW._replace(says_kept=False, unread=True)], "second": [NEW]}, {"answer body": "look", "connections": "look"}),
        ({"idle": [TIMEOUT._replace(used=True)]}, {"idle": "bad"}),
        ({"idle": [LOST._replace(used=True)]}, {"idle": "look"}),
        ({"idle": [REFUSED._replace(used=True)]}, {"idle": "look"}),
        ({"slow": [LOST]}, {"slow": "bad"}),
        ({"slow": [Observed(408)]}, {"slow": "bad"}),
        ({"slow": [NEW._replace(early=True)]}, {"slow": "bad"}),
        ({"parallel": [REFUSED] * 5}, {"parallel": "bad"}),
        ({"parallel": [NEW, KNOWN, *[Observed(500)] * 3]}, {"parallel": "look"}),
        ({"parallel": [NEW, *[Observed(409)] * 4]}, {}),
        ({"parallel": [NEW, OK, *[KNOWN] * 3]}, {"parallel": "unseen"}),
        ({"parallel": [KNOWN] * 5}, {}),
        ({"late": [Observed(410, outcome="final")]}, {"late": "bad"}),
        ({"late": [Observed(503, retry_after=False)]}, {"late": "bad", "retry-after": "look"}),
        ({"other ce-id": [NEW]}, {"ce-id": "bad"}),
        ({"other ce-id": [KNOWN]}, {}),
        ({"after forged": [REFUSED]}, {"signature": "bad"}),
        ({"after forged": [KNOWN]}, {"signature": "bad"}),
        ({"forged": [OK]}, {"signature": "bad"}),
        ({"changed": [OK]}, {"signature": "bad"}),
        ({"old": [Observed(500)]}, {"timestamp": "look"}),
        ({"future": [OK]}, {"timestamp": "bad"}),
        ({"newer scheme": [REFUSED]}, {"rotation": "bad"}),
        ({"text": [Observed(422, outcome="final")]}, {}),
        ({"text": [REFUSED]}, {"text": "bad"}),
        ({"spaced": [REFUSED], "text": [REFUSED]}, {"bytes": "bad", "text": "unseen"}),
        ({"null": [LOST]}, {"empty": "bad"}),
        ({"large": [Observed(413, outcome="final")]}, {"large": "bad"}),
        ({"large": [LOST]}, {"large": "bad"}),
        ({"delivery": [NEW._replace(ms=8_000.0)]}, {"answer time": "look"}),
        ({"delivery": [NEW._replace(ms=15_000.0)]}, {"answer time": "bad"}),
        ({"delivery": [KNOWN]}, {"delivery": "look"}),
        ({"text": None, "large": None}, {"text": "unseen", "large": "unseen"}),
    ],
)
def test_one_observation_changes_its_own_line(changes: dict[str, list[Observed] | None], expected: dict[str, str]) -> None:
    assert results(seen(changes)) == expected


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (Observed(400, outcome="final"), "--payload"),
        (REFUSED, "TOCSIN_SECRET"),
        (Observed(403), "--header"),
        (Observed(404), "path"),
        (Observed(405, outcome="final"), "--method"),
        (Observed(410, outcome="final"), "no more"),
        (Observed(422, outcome="final"), "--payload"),
        (Observed(307), "redirect"),
        (Observed(500), "log"),
        (LOST, "log"),
        (TIMEOUT, "15 s"),
    ],
)
def test_delivery_that_is_not_accepted_is_the_only_line_and_says_what_to_do(answer: Observed, word: str) -> None:
    found = ReceiverSeen(steps={"delivery": Step([answer])}, stopped="a valid delivery was not accepted")
    [line] = judge(found, PLAN, tuple(Check))
    assert line.result == "bad" and word in line.do


@pytest.mark.parametrize(("low", "high", "result"), [(0.1, 1.1, "ok"), (-9.0, -8.0, "look"), (59.5, 60.4, "look"), (70.0, 71.0, "bad")])
def test_clock_is_wrong_only_by_what_is_certain(low: float, high: float, result: str) -> None:
    found = seen()
    found.offset.low, found.offset.high = low, high
    assert lines(found)["clock"].result == result


def test_clock_is_unseen_without_a_date() -> None:
    found = seen()
    found.offset.low, found.offset.high = float("-inf"), float("inf")
    assert lines(found)["clock"].result == "unseen"


def test_certificate_that_is_refused_is_the_only_line() -> None:
    found = ReceiverSeen(certificate=Certificate("certificate has expired"), stopped="certificate has expired")
    assert [(line.check, line.result) for line in judge(found, PLAN, tuple(Check))] == [("certificate", "bad")]


def test_run_that_was_interrupted_before_its_first_answer_is_no_success() -> None:
    assert [line.result for line in judge(ReceiverSeen(stopped="interrupted"), PLAN, tuple(Check))] == ["bad"]


def test_closed_connection_says_after_which_time() -> None:
    found = seen({"idle": None}, idle=IdleConnection(5.04, 14.0))
    assert results(found) == {} and lines(found)["idle"].figures == {"closed_after_s": 5.0}


@pytest.mark.parametrize(("count", "expected"), [(0, {"effect": "bad"}), (None, {"delivery": "look"})])
def test_receiver_whose_events_have_no_effect_is_not_called_one_that_knows_duplicates(count: int | None, expected: dict[str, str]) -> None:
    names = ("delivery", "second", "duplicate", "parallel", "late")
    found = seen({name: [(OK if count == 0 else KNOWN)._replace(used=name == "second")] * len(GOOD[name]) for name in names})
    for name in names:
        found.steps[name].done = found.steps[name].prompt = count
    assert results(found) == {**expected, **dict.fromkeys(("duplicates", "parallel", "late"), "unseen")}


@pytest.mark.parametrize(
    ("status", "header", "expected"),
    [(200, "yes", True), (200, " NO ", False), (200, "perhaps", None), (208, None, True), (204, None, None), (208, "no", False)],
)
def test_header_and_status_say_what_an_answer_knows(status: int, header: str | None, expected: bool | None) -> None:
    assert duplicate_of(status, {} if header is None else {"tocsin-duplicate": header}) is expected


def test_table_is_as_it_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    plain: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "color_system": None, "force_terminal": False}
    faulty = seen(
        {
            "parallel": [NEW, NEW, KNOWN, KNOWN, KNOWN],
            "old": [NEW],
            "large": [Observed(413, outcome="final", ms=9.0)],
            "late": [OK],
        },
        certificate=Certificate(days=9.4),
    )
    drawn = []
    for width in (120, 60):
        monkeypatch.setattr(output, "console", lambda error=False, width=width: Console(file=sys.stdout, width=width, **plain))
        for found in (faulty, seen(certificate=Certificate(days=81.0))):
            screen = Screen()
            draw_lines(screen, list(lines(found).values()), 18.4, "https://app.example:443, 31 requests, seed 7c1f09aa")
            drawn.append(screen.text())
            assert max(map(len, drawn[-1].splitlines())) <= width
    text = "\n".join(drawn)
    if os.environ.get("GOLDEN") == "write":
        PICTURE.write_text(text, "utf-8")
    assert text == PICTURE.read_text("utf-8"), "GOLDEN=write overwrites the file"


def test_plan_waits_longer_than_the_time_limit_for_an_answer_and_not_for_ever() -> None:
    assert [replace(PLAN, timeout=each).patience for each in (0.1, 15.0, 60.0)] == [5.1, 30.0, 75.0]
