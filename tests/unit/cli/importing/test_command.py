"""`tocsin events import`: requests, progress and output, against an app that answers as the test says."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import httpx
import pytest

from shared.cli import main as frame
from shared.cli.exits import Exit
from shared.cli.importing import command, progress, sending
from shared.cli.importing.reading import FilePart
from shared.cli.importing.sending import Importer, send_all
from shared.client.exchange import RetrySettings
from shared.client.model import BatchLine
from shared.leases.node.state_file import lock
from tests.paths import ROOT
from tests.texts import assert_text

Answer = Callable[[list[dict[str, Any]]], httpx.Response]


class App:
    """Takes batches; `answers` say what to do with the next ones, then all is taken."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.batches: list[int] = []
        self.answers: list[Answer] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        events = [json.loads(line) for line in request.content.split(b"\n")]
        self.batches.append(len(events))
        if self.answers:
            return self.answers.pop(0)(events)
        return self.take(events)

    def take(self, events: list[dict[str, Any]]) -> httpx.Response:
        results: list[dict[str, Any]] = []
        for index, event in enumerate(events):
            if event["payload"] == "bad":
                problem = {"title": "Invalid content", "detail": "/payload: no", "errors": [{"pointer": "/payload", "detail": "no"}]}
                results.append({"index": index, "status": 422, "problem": problem})
                continue
            id = event.get("id") or f"made-{len(self.events)}"
            results.append({"index": index, "status": 200 if id in self.events else 201, "id": id})
            self.events[id] = event
        return httpx.Response(200, json={"results": results})


def refused(status: int) -> Answer:
    return lambda events: httpx.Response(status, json={"title": "No", "detail": "not now", "type": "x/no"})


def refuse_lines(status: int) -> Answer:
    lines = {"status": status, "problem": {"title": "No", "detail": "full"}}
    return lambda events: httpx.Response(200, json={"results": [{"index": index, **lines} for index in range(len(events))]})


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    served = App()

    def importer(url: str, key: str, **more: Any) -> sending.Importer:
        return sending.Importer(url, key, transport=httpx.MockTransport(served), **more)

    monkeypatch.setattr(command, "Importer", importer)
    monkeypatch.setattr(sending, "IMPORT_RETRIES", RetrySettings(retries=2, first=0.0, longest=0.0))
    monkeypatch.setenv("TOCSIN_URL", "https://app.test")
    monkeypatch.setenv("TOCSIN_KEY", "a-very-secret-key")
    monkeypatch.setenv("TOCSIN_PROFILES", "/nonexistent")
    yield served


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        frame.main(["events", "import", *map(str, arguments)])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def written(folder: Path, *payloads: Any) -> Path:
    file = folder / "events.ndjson"
    file.write_text("".join(json.dumps({"delay": "PT1H", "payload": each}) + "\n" for each in payloads))
    return file


def test_file_is_imported_and_nothing_is_left_beside_it(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, *range(25))
    code, out, _ = run(capsys, file, "--batch", 10)
    assert code == 0
    assert_text("import.counts", out, scheduled=25, known=0, rejected=0)
    assert sorted(event["payload"] for event in app.events.values()) == list(range(25)) and sorted(app.batches) == [5, 10, 10]
    assert [each.name for each in tmp_path.iterdir()] == [file.name]
    assert_text("import.counts", run(capsys, file)[1], scheduled=0, known=25, rejected=0)


def test_bad_lines_are_reported_with_their_numbers_and_end_it_with_1(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, 0, "bad", 2)
    file.write_text(file.read_text() + "[1]\n{\n")
    code, out, _ = run(capsys, file, "--json")
    summary = json.loads(out)
    assert code == Exit.FAILED and summary == {"lines": 5, "accepted": 2, "known": 0, "rejected": 3, "rejects": f"{file}.rejects"}
    rejects = [json.loads(line) for line in Path(summary["rejects"]).read_text().splitlines()]
    assert [each["line"] for each in rejects] == [2, 4, 5]
    assert rejects[0]["why"] == "Invalid content: /payload: no" and json.loads(rejects[0]["text"])["payload"] == "bad"
    assert rejects[1]["why"] == "not an object" and rejects[1]["text"] == "[1]"
    app.events.clear()
    assert run(capsys, written(tmp_path, 1))[0] == 0 and not Path(summary["rejects"]).exists(), "old rejects are not those of this run"


@pytest.mark.parametrize("failure", [refused(401), refused(503), refuse_lines(429), refuse_lines(503)])
def test_stopped_import_goes_on_where_it_was_stopped(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str], failure: Answer) -> None:
    file = written(tmp_path, "bad", *range(1, 8), "bad", 9)
    # The third batch is refused for longer than the command waits.
    app.answers = [app.take, app.take, *[failure] * 9]
    code, _, err = run(capsys, file, "--batch", 3, "--in-flight", 1)
    assert code == Exit.REFUSED and "same command again to resume" in err and "a-very-secret-key" not in err
    kept = json.loads(Path(f"{file}.progress").read_text())
    assert (kept["offset"], kept["line"]) == (len("".join(file.read_text().splitlines(True)[:6])), 6)
    # As if it had been killed after it had written rejects, and before it kept how far it was.
    with Path(f"{file}.rejects").open("a") as rejects:
        rejects.write('{"line": 9, "half')
    app.answers.clear()
    app.batches.clear()
    code, out, _ = run(capsys, file, "--batch", 3, "--json")
    summary = json.loads(out)
    assert code == Exit.FAILED and summary["lines"] == 10 and (summary["accepted"], summary["known"], summary["rejected"]) == (8, 0, 2)
    assert sorted(app.batches) == [1, 3] and len(app.events) == 8 and not Path(f"{file}.progress").exists()
    assert [json.loads(line)["line"] for line in Path(f"{file}.rejects").read_text().splitlines()] == [1, 9]


def test_lost_answers_double_nothing(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def lost(events: list[dict[str, Any]]) -> httpx.Response:
        app.take(events)
        raise httpx.ReadError("the connection broke")

    app.answers = [lost, lost]
    assert run(capsys, written(tmp_path, *range(6)), "--batch", 3)[0] == 0
    assert len(app.events) == 6


def test_progress_of_something_else_is_refused_and_restart_starts_over(
    app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, *range(6))
    app.answers = [app.take, *[refused(401)] * 9]
    assert run(capsys, file, "--batch", 3, "--in-flight", 1)[0] == Exit.REFUSED
    app.answers.clear()
    monkeypatch.setenv("TOCSIN_URL", "https://other.test")
    code, _, err = run(capsys, file)
    assert code == Exit.USAGE and f"where: {file}.progress" in err and "--restart" in err
    monkeypatch.setenv("TOCSIN_URL", "https://app.test")
    before = file.read_text()
    file.write_text("{}" + before)
    assert run(capsys, file)[0] == Exit.USAGE, "another file of the same name"
    file.write_text(before[:60])
    assert run(capsys, file)[0] == Exit.USAGE, "a file that is shorter now"
    file.write_text(before + before)
    assert run(capsys, file, "--json")[0] == 0, "a file that has grown is the same"
    Path(f"{file}.progress").write_text("[]")
    assert run(capsys, file)[0] == Exit.USAGE
    assert run(capsys, file, "--restart")[0] == 0


async def test_no_more_is_read_or_sent_than_may_be_under_way_and_parts_are_settled_in_order() -> None:
    read, sent, settled, most = 0, 0, list[int](), 0

    class Slow:
        async def send_part(self, part: FilePart) -> tuple[BatchLine, ...]:
            nonlocal sent, most
            sent += 1
            most = max(most, sent)
            # The earlier, the longer: they are done in the wrong order.
            for _ in range(200 - part.number):
                await asyncio.sleep(0)
            sent -= 1
            return ()

    def source() -> Iterator[FilePart]:
        nonlocal read
        for number in range(100):
            read += 1
            assert read - len(settled) <= 6
            yield FilePart([], [], 0, number)

    importer = cast(Importer, Slow())
    await send_all(importer, source(), lambda part, _: settled.append(part.number), note_sending=lambda part, sending: None, in_flight=3)
    assert settled == list(range(100)) and most == 3


def test_check_reads_and_sends_nothing(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, *range(3))
    file.write_text(file.read_text() + "nonsense\n")
    code, out, _ = run(capsys, file, "--check")
    assert code == Exit.FAILED and not app.batches
    assert_text("import.checked", out, lines=4, events=3, file=file)


def test_standard_input_is_imported(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "in").open("w+b") as piped:
        piped.write(b"delay,payload\nPT1H,1\n")
        piped.seek(0)
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": piped}))
        assert run(capsys, "-", "--format", "csv")[0] == 0
    assert len(app.events) == 1 and [each.name for each in tmp_path.iterdir()] == ["in"]


def test_file_that_is_not_there_or_names_no_columns_is_wrong_usage(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, tmp_path / "nothing.ndjson")
    assert code == Exit.USAGE and f"where: {tmp_path / 'nothing.ndjson'}" in err
    (tmp_path / "x.csv").write_text("a,b\n")
    code, _, err = run(capsys, tmp_path / "x.csv")
    assert code == Exit.USAGE and "'a'" in err and not app.batches
    (tmp_path / "x.csv").write_text("delay,payload\nPT1S,1\n")
    assert run(capsys, tmp_path / "x.csv")[0] == 0, "a header that was mended is no other file"


def test_progress_that_cannot_be_kept_is_reported_before_anything_is_sent(
    app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, written(tmp_path, 1), "--progress", tmp_path / "nowhere" / "progress")
    assert code == Exit.USAGE and "nowhere" in err and not app.batches


def test_rejects_that_cannot_be_written_stop_it_and_the_same_command_goes_on(
    app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = written(tmp_path, 1, "bad"), tmp_path / "nowhere"
    arguments = (file, "--batch", 1, "--in-flight", 1, "--rejects", folder / "rejects", "--json")
    code, _, err = run(capsys, *arguments)
    assert code == Exit.FAILED and "nowhere" in err
    folder.mkdir()
    code, out, _ = run(capsys, *arguments)
    assert code == Exit.FAILED and (json.loads(out)["accepted"], json.loads(out)["rejected"]) == (1, 1)


def stopped(app: App, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An import that has done two parts of three lines."""
    app.answers = [app.take, app.take, *[refused(401)] * 9]
    assert run(capsys, file, "--batch", 3, "--in-flight", 1)[0] == Exit.REFUSED
    app.answers.clear()


@pytest.mark.parametrize("line", [1, 3, 5])
def test_file_that_was_changed_before_the_place_it_goes_on_from_is_another(
    app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: int
) -> None:
    # The beginning by which a file is known is that of the first two lines.
    file = written(tmp_path, *(f"{number}{'x' * 40_000}" for number in range(9)))
    stopped(app, file, capsys)
    lines = file.read_text().splitlines(True)
    file.write_text("".join([*lines[:line], "\n", *lines[line:]]))
    code, _, err = run(capsys, file, "--batch", 3)
    assert code == Exit.USAGE and "another file, app" in err and "--restart" in err
    file.write_text("".join([*lines, '{"delay": "PT1H", "payload": 9}\n']))
    assert run(capsys, file)[0] == 0 and len(app.events) == 10, "one that has grown is the same"


def test_two_imports_of_one_file_at_once_are_refused_and_neither_spoils_the_other(
    app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, second = written(tmp_path, *range(9)), list[tuple[int, str, str]]()

    def meanwhile(events: list[dict[str, Any]]) -> httpx.Response:
        arguments = ("-m", "shared.cli", "events", "import", str(file), "--restart", "--url", "http://127.0.0.1:9", "--key", "another-key")
        done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120)
        second.append((done.returncode, done.stdout, done.stderr))
        return app.take(events)

    app.answers = [app.take, meanwhile]
    code, out, _ = run(capsys, file, "--batch", 3, "--in-flight", 1)
    assert code == 0 and out.startswith("9 events scheduled")
    [(code, _, err)] = second
    assert code == Exit.USAGE
    assert_text("import.progress-file-in-use", err, file=f"{file}.progress")
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_lock_that_a_killed_import_left_keeps_nobody_out(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, 1)
    Path(f"{file}.progress.lock").touch()
    assert run(capsys, file)[0] == 0 and [each.name for each in tmp_path.iterdir()] == [file.name]


def test_lock_on_a_file_that_was_taken_away_meanwhile_counts_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, tries = tmp_path / "x.lock", 0

    def first_ends(file: IO[str]) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            # Between the opening and the lock the one before has ended, and another has begun or not.
            beside.unlink()
        lock(file)

    monkeypatch.setattr(progress, "lock", first_ends)
    with progress.exclusive_progress(tmp_path / "x"), beside.open("a") as other:
        assert tries == 2
        with pytest.raises(OSError):
            lock(other)
    assert not beside.exists()


def test_check_leaves_the_rejects_of_an_import_that_was_stopped(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "bad", *range(1, 9))
    stopped(app, file, capsys)
    file.write_text(file.read_text() + "nonsense\n")
    assert run(capsys, file, "--check")[0] == Exit.FAILED
    assert json.loads(Path(f"{file}.faults").read_text())["line"] == 10
    assert run(capsys, file)[0] == Exit.FAILED
    assert [json.loads(line)["line"] for line in Path(f"{file}.rejects").read_text().splitlines()] == [1, 10]


def test_rejects_that_are_no_file_are_not_taken_away(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = tmp_path / "null"
    nowhere.symlink_to("/dev/null")
    assert run(capsys, written(tmp_path, 1, "bad"), "--rejects", nowhere)[0] == Exit.FAILED
    assert nowhere.is_symlink()


def test_interrupted_import_says_where_it_goes_on(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(events: list[dict[str, Any]]) -> httpx.Response:
        raise KeyboardInterrupt

    app.answers = [app.take, app.take, interrupted]
    file = written(tmp_path, *range(9))
    code, _, err = run(capsys, file, "--batch", 3, "--in-flight", 1)
    assert code == 130
    assert_text("import.stopped", err, line=6)
    assert run(capsys, file)[0] == 0 and len(app.events) == 9


def test_pipe_under_a_name_is_refused_with_the_way_to_do_it(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read, write = os.pipe()
    try:
        code, _, err = run(capsys, f"/dev/fd/{read}")
    finally:
        os.close(read)
        os.close(write)
    assert code == Exit.USAGE and "this is a pipe" in err and "--format ndjson - <" in err and not app.batches


def without_ids(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str], last: Answer) -> Path:
    """An import of nine events without ids that ends at its third batch of three."""
    app.answers = [app.take, app.take, last]
    file = written(tmp_path, *range(9))
    run(capsys, file, "--ids", "none", "--batch", 3, "--in-flight", 1)
    assert len(app.events) >= 6
    return file


def lost(app: App) -> Answer:
    def answer(events: list[dict[str, Any]]) -> httpx.Response:
        app.take(events)
        raise httpx.ReadError("the connection broke")

    return answer


def test_events_without_ids_are_not_sent_again_before_someone_decides(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = without_ids(app, tmp_path, capsys, lost(app))
    for _ in range(2):
        code, _, err = run(capsys, file, "--ids", "none")
        assert code == Exit.USAGE and "lines 7 to 9 were being sent" in err and "up to 3 events may be stored twice" in err
    assert len(app.batches) == 3
    assert run(capsys, file, "--ids", "none", "--unknown", "send")[0] == 0
    assert sorted(event["payload"] for event in app.events.values()) == [*range(6), 6, 6, 7, 7, 8, 8]


def test_events_without_ids_that_may_be_stored_can_be_left_out(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = without_ids(app, tmp_path, capsys, lost(app))
    with file.open("a") as more:
        more.write('{"delay": "PT1M", "payload": 9}\n')
    assert run(capsys, file, "--ids", "none", "--unknown", "skip")[0] == Exit.FAILED
    assert sorted(event["payload"] for event in app.events.values()) == list(range(10))
    rejects = [json.loads(line) for line in Path(f"{file}.rejects").read_text().splitlines()]
    assert [each["line"] for each in rejects] == [7, 8, 9]
    assert_text("import.unknown", rejects[0]["why"])


def test_events_without_ids_that_the_app_did_not_take_are_sent_again(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = without_ids(app, tmp_path, capsys, refused(401))
    assert run(capsys, file, "--ids", "none")[0] == 0
    assert sorted(event["payload"] for event in app.events.values()) == list(range(9))
