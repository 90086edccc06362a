"""`tocsin agent`: its options, what it says of a file of settings, its exit codes and its log."""

from __future__ import annotations

import io
import json
import logging
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.cli.main import main
from shared.maintenance.agent.config.config import load
from shared.maintenance.agent.decisions.event_rules import choose
from shared.maintenance.agent.model import EVENT_TYPES, ScheduledEvent
from shared.maintenance.agent.observability.logs import JsonLines, TextLines, set_up
from tests.paths import ROOT
from tests.texts import assert_text

GOOD = """
[hooks.prepare]
command = ["/no/such/program"]
deadline_seconds = 45
[hooks.restore]
command = ["true"]
[[rules]]
type = "Freeze"
source = "Platform"
max_seconds = 5
resources = ["vm_1"]
action = "approve"
"""


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["agent", *words])
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out, printed.err


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(f'state = "{tmp_path}/state"\n{GOOD}')
    return path


def test_check_says_what_a_file_amounts_to_and_what_may_not_be_meant(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "--config", str(file), "--check")
    assert code == 0
    assert_text("agent.check", out, file=file, state=file.parent / "state", program="/no/such/program", longest=45, lead=30)
    assert not (file.parent / "state").exists()


def test_check_has_no_doubts_about_the_plainest_file_with_hooks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = tmp_path / "agent.toml"
    hooks = [f'hooks.{kind}.command = ["true"]' for kind in ("prepare", "restore", "verify")]
    plain.write_text("\n".join([f'state = "{tmp_path}/state"', *hooks]))
    code, out, _ = command(capsys, "--config", str(plain), "--check")
    assert code == 0 and "  doubts: " not in out


def test_check_can_be_read_by_programs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "--config", str(file), "--check", "--json")
    found = json.loads(out)
    assert (code, found["file"], found["mode"], len(found["doubts"])) == (0, str(file), "alone, without an app", 3)


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_check_names_the_events_of_users_that_are_not_approved_at_once(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "agent.toml"
    empty.write_text(f'state = "{tmp_path}/state"\n')
    _, out, _ = command(capsys, "--config", str(empty), "--check", "--json")
    rule = next(rule for rule in json.loads(out)["rules"] if rule.startswith("events of users"))
    assert (kind in rule) == (choose(ScheduledEvent("e1", "E1", kind, "Scheduled", source="User"), load(empty).settings) == "prepare")


def test_wrong_file_ends_with_2_and_names_each_fault(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("polls = 1\n[imds]\npoll_seconds = 0\n")
    code, out, err = command(capsys, "--config", str(file), "--check")
    assert (code, out) == (2, "")
    assert_text("agent.file-not-valid", err, seconds="imds.poll_seconds", unknown="polls", file=file)


def test_no_file_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys, "--once")[0] == 2


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore afterwards what a command sets for its whole process."""
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("process")
def test_agent_that_cannot_begin_ends_with_1_and_says_why(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "state").write_text("a file")
    code, _, err = command(capsys, "--config", str(file), "--once", "--log", "text")
    assert code == 1 and "cannot be used" in err and "do: Nothing was done." in err


def test_unit_runs_this_program_with_the_named_file(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "--unit", "--config", "/etc/mine.toml")
    assert code == 0 and re.search(r"^ExecStart=/\S*python\S* -m shared\.cli agent --config /etc/mine\.toml$", out, re.MULTILINE)
    assert "@" not in out and "KillMode=mixed" in out and "Type=notify" in out and "WatchdogSec=" in out and "Restart=always" in out


def test_unit_names_the_whole_path_of_a_file_that_is_named_from_where_one_stands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = command(capsys, "--unit", "--config", "agent.toml")
    assert code == 0 and f" agent --config {tmp_path}/agent.toml\n" in out


@pytest.fixture
def logger(process: None) -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    set_up("json", stream)
    return logging.getLogger("shared.test"), stream


def test_line_of_the_log_is_json_with_action_and_event(logger: tuple[logging.Logger, io.StringIO]) -> None:
    log, stream = logger
    log.warning("it is %s", "late", extra={"action": "agent_event_late", "event_id": "e1", "fields": {"phase": "WAITING", "level": 9}})
    line = json.loads(stream.getvalue())
    assert line == {
        "at": line["at"],
        "level": "warning",
        "action": "agent_event_late",
        "event_id": "e1",
        "text": "it is late",
        "phase": "WAITING",
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["at"])


def test_line_of_the_log_carries_a_trace_and_stays_one_line(logger: tuple[logging.Logger, io.StringIO]) -> None:
    log, stream = logger
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("broken")
    [line] = stream.getvalue().splitlines()
    assert "ValueError: two\nlines" in json.loads(line)["trace"] and json.loads(line)["action"] == ""


def test_texts_are_for_people() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "prepared", (), None)
    record.__dict__ |= {"event_id": "e1", "fields": {"ms": 7}}
    assert TextLines().format(record)[12:] == " I prepared [e1] (ms=7)"
    assert isinstance(JsonLines(), logging.Formatter)


@pytest.mark.parametrize("name", ["alone.toml", "app.toml", "cassandra.toml", "systemd.yaml"])
def test_example_of_the_docs_can_be_used(name: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "examples" / "agent" / name).read_text()
    # The key that it names is on no other machine.
    (tmp_path / name).write_text(re.sub("(?m)^.*key_file.*$", "", text))
    config = load(tmp_path / name, {"TOCSIN_KEY": "an-agents-own-key"})
    assert {"prepare", "restore"} <= set(config.hooks)
