"""`--watch`: what ends it, what does not end it, and what is printed on a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from shared.cli import main as frame
from shared.cli import session
from shared.cli.exits import Exit
from shared.client.blocking import Client

from . import stage

GONE = httpx.ConnectError("Connection refused")
NO = httpx.Response(403, json={"type": "x/forbidden", "title": "Forbidden", "detail": "no"})
BUSY = httpx.Response(503, json={"type": "x/no", "title": "Unavailable", "detail": "storage is away"})
PAGE = httpx.Response(502, text="<html>")


class App:
    """Answers as the stage does, except where `says` has something else for the next look."""

    def __init__(self, *says: Any) -> None:
        self._says, self.looks = iter(says), 0
        self.patience: dict[str, float] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.looks += 1
        self.patience = request.extensions["timeout"]
        said = next(self._says, None)
        if isinstance(said, Exception):
            raise said
        return said or stage.answer(request)


class Watch:
    """Runs the command against such an app, without waiting."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self.patch = capsys, monkeypatch
        self.waited: list[float] = []
        self.terminal = False
        monkeypatch.setenv("TOCSIN_URL", "https://app.test")
        monkeypatch.setenv("TOCSIN_KEY", "a-very-secret-key")
        monkeypatch.setenv("TOCSIN_PROFILES", "/nonexistent")
        monkeypatch.setattr("time.sleep", self.waited.append)

    def __call__(self, app: App, *arguments: str) -> tuple[int, str, str]:
        self.patch.setattr(session, "open_client", lambda to, **how: Client(to.url, to.key, **how, transport=httpx.MockTransport(app)))
        with pytest.raises(SystemExit) as ended, self.patch.context() as patch:
            patch.setattr(sys.stdout, "isatty", lambda: self.terminal)
            frame.main(arguments)
        said = self._capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err


@pytest.fixture
def watch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    yield Watch(capsys, monkeypatch)


@pytest.mark.parametrize("away", [GONE, BUSY, PAGE], ids=["gone", "busy", "page"])
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("schedules", "list", "--watch", "5"), "nightly"),
        (("events", "tail", "--every", "5"), "order-17"),
        (("maintenance", "watch", "web", "--every", "5"), "Freeze scheduled"),
    ],
)
def test_app_that_is_away_for_a_while_ends_no_watch(watch: Watch, away: Any, arguments: tuple[str, ...], shown: str) -> None:
    code, out, err = watch(App(away, away, None, away, None), *arguments, "--times", "5")
    assert code == 0 and shown in out and err.count("tocsin: ") == 3 and watch.waited == [5.0] * 4


def test_reports_are_not_repeated_when_the_app_is_back(watch: Watch) -> None:
    _, out, _ = watch(App(None, GONE, None), "maintenance", "watch", "web", "--times", "3")
    assert out.count("Freeze scheduled") == 1


def test_watch_whose_last_look_failed_ends_with_that(watch: Watch) -> None:
    assert watch(App(None, GONE), "schedules", "list", "--watch", "1", "--times", "2")[0] == Exit.UNREACHABLE
    assert watch(App(BUSY), "schedules", "list", "--watch", "1", "--times", "1")[0] == Exit.REFUSED


def test_refusal_ends_a_watch_at_once(watch: Watch) -> None:
    app = App(None, NO)
    code, out, err = watch(app, "schedules", "list", "--watch", "1")
    assert code == Exit.REFUSED and app.looks == 2 and "nightly" in out and "Forbidden" in err


def test_check_ends_a_watch_as_soon_as_something_needs_a_person(watch: Watch) -> None:
    code, out, _ = watch(App(), "status", "--check", "--watch", "1")
    assert code == Exit.FAILED and "events overdue: 3" in out and watch.waited == []


def test_times_without_watch_is_wrong_usage(watch: Watch) -> None:
    code, _, err = watch(App(), "schedules", "list", "--times", "3")
    assert code == Exit.USAGE and "--times needs --watch" in err


def test_interrupt_between_two_looks_is_130(watch: Watch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    watch.patch.setattr("time.sleep", interrupted)
    code, out, err = watch(App(), "schedules", "list", "--watch", "1")
    assert code == 130 and "nightly" in out and "Traceback" not in err


@pytest.fixture
def terminal(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is one of 80 columns and 12 lines."""
    watch.terminal = True
    for name, value in (("COLUMNS", "80"), ("LINES", "12"), ("TERM", "xterm"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)


SEEN = re.compile(r"seen \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def painted(out: str) -> list[list[str]]:
    """The lines of each screen."""
    return [each.removesuffix("\x1b[J").replace("\x1b[K", "").splitlines() for each in out.split("\x1b[H")[1:]]


def test_hanging_app_holds_no_look_up_for_longer_than_seconds(watch: Watch) -> None:
    app = App(httpx.ReadTimeout("timed out"), None)
    code, out, err = watch(app, "schedules", "list", "--watch", "5", "--times", "2")
    assert code == 0 and "nightly" in out and "no answer in time" in err and watch.waited == [5.0]
    assert app.looks == 2, "the next look is the retry"
    assert app.patience["read"] == session.REFRESH_TIMEOUT and session.REFRESH_TIMEOUT <= 10


@pytest.mark.parametrize("seconds", ["inf", "1e300", "nan", "0", "-1"])
@pytest.mark.parametrize("arguments", ["schedules list --watch", "events tail --every", "maintenance watch web --every"])
def test_time_between_looks_that_nobody_can_wait_is_wrong_usage(watch: Watch, arguments: str, seconds: str) -> None:
    app = App()
    code, _, err = watch(app, *arguments.split(), seconds)
    assert code == Exit.USAGE and "Traceback" not in err and app.looks == 0


@pytest.mark.usefixtures("terminal")
def test_terminal_is_cleared_once_and_then_written_over(watch: Watch) -> None:
    _, out, _ = watch(App(), "schedules", "list", "--watch", "1", "--times", "3")
    screens = painted(out)
    assert out.startswith("\x1b[2J\x1b[H") and out.count("\x1b[2J") == 1 and len(screens) == 3 and out.endswith("\x1b[J")
    assert screens[0][1:] == screens[1][1:] == screens[2][1:] and any(line.startswith("nightly") for line in screens[0])
    assert all(SEEN.fullmatch(screen[0]) and screen[1] == "" for screen in screens), "how old it is, whatever holds the next one up"


@pytest.mark.usefixtures("terminal")
def test_line_as_wide_as_the_terminal_keeps_its_last_sign(watch: Watch) -> None:
    # After a full line the cursor still stands on its last sign, which what clears the rest of a line would take.
    _, out, _ = watch(App(), "status", "--watch", "1", "--times", "2")
    lines = out.split("\x1b[H")[-1].removesuffix("\x1b[J").removesuffix("\n").split("\n")
    assert len(lines) == 11 and all(line.startswith("\x1b[K") and line.count("\x1b[K") == 1 for line in lines)


@pytest.mark.usefixtures("terminal")
def test_terminal_keeps_the_last_screen_under_what_keeps_the_app_away(watch: Watch) -> None:
    _, out, _ = watch(App(None, GONE, None), "schedules", "list", "--watch", "1", "--times", "3")
    before, away, after = painted(out)
    assert away[0].startswith("tocsin: The app does not answer") and before[1:] == after[1:] and away[-len(before) :] == before


@pytest.mark.usefixtures("terminal")
def test_what_keeps_the_app_away_is_folded_so_that_no_screen_scrolls(watch: Watch) -> None:
    long = httpx.Response(503, json={"type": "x/no", "title": "Unavailable", "detail": "away " * 120})
    _, out, _ = watch(App(None, long), "schedules", "list", "--watch", "1", "--times", "3")
    away = painted(out)[1]
    assert len(away) == 11 and max(map(len, away)) <= 80


@pytest.mark.usefixtures("terminal")
def test_screen_with_more_lines_than_the_terminal_is_cut(watch: Watch) -> None:
    _, out, _ = watch(App(), "status", "--watch", "1", "--times", "2")
    screens = painted(out)
    assert len(screens) == 2 and all(len(each) == 11 and each[-1].startswith("... and ") for each in screens)


@pytest.mark.usefixtures("terminal")
def test_json_and_dumb_terminals_get_no_cursor_movements(watch: Watch) -> None:
    _, out, _ = watch(App(), "schedules", "list", "--watch", "1", "--times", "2", "--json")
    assert "\x1b" not in out and len(out.splitlines()) == 4
    watch.patch.setenv("TERM", "dumb")
    _, out, _ = watch(App(), "schedules", "list", "--watch", "1", "--times", "2")
    assert "\x1b[H" not in out and out.count("nightly") == 2


REHEARSED = httpx.Response(202, json={"event_id": "rehearsal-1"})


def rehearsal(status: str, verdict: str = "", *passed: str, alarms: tuple[str, ...] = ()) -> httpx.Response:
    probe = {"probe": stage.REBOOT["probe"] | {"verdict": verdict, "passed": list(passed)}} if verdict else {"probe": None}
    return httpx.Response(200, json=stage.REBOOT | {"status": status, "alarms": list(alarms)} | probe)


@pytest.mark.parametrize(
    ("last", "code", "why"),
    [
        (rehearsal("completed", "within"), Exit.OK, ""),
        (rehearsal("completed"), Exit.OK, ""),
        (
            rehearsal("completed", "passed", "while a fault domain catches up: p99 is 410 ms, and the bound 250 ms"),
            Exit.FAILED,
            "while a fault domain catches up: p99 is 410 ms, and the bound 250 ms",
        ),
        (rehearsal("completed", "not-measured"), Exit.FAILED, "measured nothing while a node caught up"),
        (rehearsal("vanished"), Exit.FAILED, "its status is vanished"),
        (rehearsal("completed", "within", alarms=("restore-failed", "callers-affected")), Exit.FAILED, "alarm restore-failed\n"),
    ],
)
def test_a_rehearsal_that_is_waited_for_fails_with_its_reason(watch: Watch, last: httpx.Response, code: int, why: str) -> None:
    under_way = (rehearsal("scheduled", "pending"), BUSY, rehearsal("completed", "pending", "while a node is out: 1 of 2 probes failed"))
    # The event of a fleet without a probe is over when its nodes are.
    says = (REHEARSED, *(under_way if last.json()["probe"] else ()), last)
    ended, out, err = watch(App(*says), "maintenance", "rehearse", "web", "--node", "s1", "--wait")
    assert (ended, why in err, "failed" in err) == (code, True, code != Exit.OK)
    assert ("one node catches up" in out) is (last.json()["probe"] is not None) and "time to catch up" in out
