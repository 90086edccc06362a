"""`tocsin checkpoint run`, with real programs, against an app that hands turns out as the test says."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from shared.checkpoints import Health
from shared.cli.connections import Connection
from shared.cli.exits import Exit
from shared.cli.failures import CommandFailed
from shared.cli.node import checkpoint_run
from shared.cli.node.checkpoint_run import CheckpointRun, ReplicaStatus, _run
from tests.paths import ROOT
from tests.unit.checkpoints.participants import KEY
from tests.waiting import eventually, within

from .fake import Served

STATUS = '{"role": "secondary", "term": 3, "applied": 100}'


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with Served() as running:
        yield running


async def until(look: Callable[[], object], what: str) -> None:
    await eventually(look, what, pause=0.02)


def gone(pids: Path) -> bool:
    """Return whether none of those that wrote their number runs."""
    for pid in pids.read_text().split():
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in ("Z", "X"):
            return False
    return True


def plan(served: Served, tmp_path: Path, script: str, **more: Any) -> CheckpointRun:
    status = tmp_path / "status"
    if not status.exists():
        status.write_text(STATUS)
    given = {"status": f"cat {shlex.quote(str(status))}", "grace": 0.5, "every": 0.1, "wait": 60.0, **more}
    return CheckpointRun(Connection(served.url, KEY), "search", "s7", ("sh", "-c", script), **given)


def turn(seconds: float = 600, epoch: int = 5) -> dict[str, Any]:
    return {"epoch": epoch, "limit_ms": int(seconds * 1000)}


SLEEP = "sleep 600 & echo $$ $! > {pids}; wait"


async def test_program_that_succeeds_publishes_what_it_wrote_or_what_was_applied(served: Served, tmp_path: Path) -> None:
    served.app.turn = turn(epoch=5)
    (tmp_path / "result").write_text('{"sequence": 90, "location": "blob/90", "bytes": 7}')
    assert await _run(plan(served, tmp_path, f'cp {tmp_path}/result "$TOCSIN_RESULT"')) == 0
    served.app.turn = turn(epoch=6)
    assert await _run(plan(served, tmp_path, "true")) == 0
    assert served.app.published == [
        (5, {"node": "s7", "sequence": 90, "location": "blob/90", "bytes": 7}),
        (6, {"node": "s7", "sequence": 100, "location": "node:s7", "bytes": 0}),
    ]
    assert served.app.reports[-1]["taking"] is None and not served.app.reports[-1]["ready"]


async def test_program_without_a_status_or_a_result_publishes_its_turns_epoch(served: Served, tmp_path: Path) -> None:
    served.app.turn = turn(epoch=5)
    assert await _run(plan(served, tmp_path, "true", status=None)) == 0
    assert served.app.published == [(5, {"node": "s7", "sequence": 5, "location": "node:s7", "bytes": 0})]


async def test_program_sees_its_turn_and_not_the_key(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_KEY", KEY)
    served.app.turn = turn(600)
    assert await _run(plan(served, tmp_path, f"env > {tmp_path}/env")) == 0
    text = (tmp_path / "env").read_text()
    seen = dict(line.split("=", 1) for line in text.splitlines() if line.startswith("TOCSIN_"))
    assert (seen["TOCSIN_FLEET"], seen["TOCSIN_NODE"], seen["TOCSIN_EPOCH"]) == ("search", "s7", "5") and KEY not in text
    assert 0 < int(seen["TOCSIN_LIMIT"]) <= 600 and not Path(seen["TOCSIN_RESULT"]).parent.exists()


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 7", 7), ("kill -9 $$", 137), ("echo no > $TOCSIN_RESULT", Exit.NOT_PUBLISHED), ('echo "{}" > $TOCSIN_RESULT; exit 3', 3)],
)
async def test_program_that_fails_or_says_nonsense_publishes_nothing(served: Served, tmp_path: Path, script: str, code: int) -> None:
    served.app.turn = turn()
    assert await _run(plan(served, tmp_path, script)) == code
    assert served.app.published == [] and served.app.reports[-1]["failures"] == 1 and served.app.reports[-1]["taking"] is None


async def test_limit_ends_the_program(served: Served, tmp_path: Path) -> None:
    code: int = Exit.NO_TURN
    # A machine that is too busy to begin so short a turn gets a longer one.
    for epoch, seconds in enumerate((3, 12, 48)):
        if code == Exit.NO_TURN:
            served.app.turn = turn(seconds, epoch + 5)
            code = await _run(plan(served, tmp_path, "sleep 600", wait=6.0))
    assert code == Exit.LIMIT and served.app.published == []


async def test_revoked_turn_ends_the_program(served: Served, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    served.app.turn = turn()
    task = asyncio.create_task(_run(plan(served, tmp_path, SLEEP.format(pids=pids))))
    await until(lambda: pids.exists() and pids.read_text().strip(), "the program")
    served.app.revoked = [5]
    assert await task == Exit.REVOKED and gone(pids)


async def test_promoted_replica_kills_its_program_without_grace(served: Served, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    served.app.turn = turn()
    script = f"trap 'touch {tmp_path}/asked' TERM; {SLEEP.format(pids=pids)}; wait"
    task = asyncio.create_task(_run(plan(served, tmp_path, script, grace=30.0)))
    await until(lambda: pids.exists() and pids.read_text().strip(), "the program")
    (tmp_path / "new").write_text('{"role": "primary", "term": 4, "applied": 100}')
    (tmp_path / "new").replace(tmp_path / "status")
    assert await task == Exit.PROMOTED and gone(pids) and not (tmp_path / "asked").exists()
    assert served.app.reports[-1]["role"] == "primary" and served.app.reports[-1]["taking"] is None


async def test_late_checkpoint_is_not_published(served: Served, tmp_path: Path) -> None:
    served.app.turn, served.app.fence = turn(), 6
    assert await _run(plan(served, tmp_path, "true")) == Exit.NOT_PUBLISHED


async def test_no_turn_in_time_starts_nothing(served: Served, tmp_path: Path) -> None:
    assert await _run(plan(served, tmp_path, f"touch {tmp_path}/started", wait=0.5)) == Exit.NO_TURN
    assert not (tmp_path / "started").exists() and not served.app.reports[-1]["ready"]


async def test_program_that_is_not_there_ends_a_loop_too(served: Served, tmp_path: Path) -> None:
    served.app.turn = turn()
    lacking = CheckpointRun(Connection(served.url, KEY), "search", "s7", ("/nowhere/at-all",), wait=60.0, loop=True)
    assert await _run(lacking) == Exit.NOT_FOUND


@pytest.mark.parametrize("script", ["exit 127", "exit 125"])
async def test_loop_outlives_a_program_that_ends_with_a_code_of_tocsins_own(served: Served, tmp_path: Path, script: str) -> None:
    served.app.turn = turn(epoch=5)
    task = asyncio.create_task(_run(plan(served, tmp_path, f"[ $TOCSIN_EPOCH = 5 ] && {script}; true", loop=True)))
    await until(lambda: any(report["failures"] for report in served.app.reports), "the first turn's end")
    served.app.turn = turn(epoch=6)
    await until(lambda: served.app.published or task.done(), "the second turn")
    assert [epoch for epoch, _ in served.app.published] == [6]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_loop_rests_longer_and_longer_after_failures(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    codes = iter([3, 3, 0, 3, *[3] * 8])

    async def one(*_: Any) -> int:
        return next(codes, 0)

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 12:
            raise asyncio.CancelledError

    monkeypatch.setattr(checkpoint_run, "_take_one_turn", one)
    monkeypatch.setattr(checkpoint_run.asyncio, "sleep", rest)
    with pytest.raises(asyncio.CancelledError):
        await checkpoint_run._loop(plan(served, tmp_path, "true", loop=True), None, None)
    assert rests == [1, 2, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize("content", ["[" * 60_000, STATUS + " " * 70_000], ids=["too deep", "too much"])
async def test_unreadable_status_fails_and_may_recover(content: str, tmp_path: Path) -> None:
    path = tmp_path / "status"
    path.write_text(content)
    status = ReplicaStatus(CheckpointRun(Connection("http://127.0.0.1:1", KEY), "search", "s7", ("true",), f"cat {shlex.quote(str(path))}"))
    with pytest.raises(CommandFailed, match="status command"):
        await status.read()
    with pytest.raises(CommandFailed):
        status()
    path.write_text(STATUS)
    await status.read()
    assert status() == Health("secondary", 3, 100)


async def test_promotion_is_seen_after_a_status_that_could_not_be_started(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    served.app.turn = turn()
    task = asyncio.create_task(_run(plan(served, tmp_path, SLEEP.format(pids=pids))))
    await until(lambda: pids.exists() and pids.read_text().strip(), "the program")
    start, failed = asyncio.create_subprocess_shell, asyncio.Event()

    async def full(*_: Any, **__: Any) -> Any:
        failed.set()
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_shell", full)
    await within(failed.wait(), "a status that cannot be read")
    (tmp_path / "new").write_text('{"role": "primary", "term": 4, "applied": 100}')
    (tmp_path / "new").replace(tmp_path / "status")
    monkeypatch.setattr(asyncio, "create_subprocess_shell", start)
    assert await within(task, "the end of the command") == Exit.PROMOTED and gone(pids)


class Command:
    """The command as a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, served: Served, *arguments: str, key: str = KEY) -> Command:
        environment = {**os.environ, "TOCSIN_URL": served.url, "TOCSIN_KEY": key}
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "shared.cli", "checkpoint", "run", "--fleet", "search", "--node", "s7", *arguments),
                cwd=ROOT,
                env=environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        )

    async def ended(self) -> tuple[int, str, list[str]]:
        """Code, standard output, lines of standard error."""
        out, err = await within(self.process.communicate(), "the end of the command")
        assert self.process.returncode is not None
        return self.process.returncode, out.decode(), err.decode().splitlines()


async def test_loop_takes_turn_after_turn_until_sigterm_ends_it_and_its_program(served: Served, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    served.app.turn = turn(epoch=5)
    (tmp_path / "result").write_text('{"sequence": 9}')
    script = f"echo turn $TOCSIN_EPOCH; [ $TOCSIN_EPOCH = 5 ] && cp {tmp_path}/result $TOCSIN_RESULT || {{ {SLEEP.format(pids=pids)}; }}"
    command = await Command.start(served, "--folder", str(tmp_path), "--json", "--loop", "--", "sh", "-c", script)
    await until(lambda: served.app.published, "the first checkpoint")
    served.app.turn = turn(epoch=6)
    await until(lambda: pids.exists() and pids.read_text().strip(), "the second turn")
    command.process.send_signal(signal.SIGTERM)
    code, out, err = await command.ended()
    assert (code, out) == (128 + signal.SIGTERM, "turn 5\nturn 6\n") and gone(pids)
    events = [json.loads(line) for line in err]
    waits = "waiting for a turn"
    assert [each["event"] for each in events] == [waits, "turn begun", "checkpoint published", waits, "turn begun", "ended"]
    assert events[2] == {"event": "checkpoint published", "epoch": 5, "sequence": 9, "latest": True}
    assert served.app.reports[-1]["taking"] is None and served.app.reports[-1]["last_checkpoint"] == 9


async def test_refused_key_is_explained_and_not_shown(served: Served) -> None:
    served.app.faults.extend([(401, "unauthenticated")])
    code, out, err = await (await Command.start(served, "--", "true")).ended()
    assert code == Exit.BROKEN and any(line.startswith("  do: Set TOCSIN_KEY") for line in err), err
    assert KEY not in out + "".join(err)


async def test_status_that_says_nonsense_is_explained(served: Served) -> None:
    code, _, err = await (await Command.start(served, "--status", 'echo \'{"role": "boss"}\'', "--", "true")).ended()
    assert code == Exit.BROKEN and "where: --status" in "".join(err) and "primary or secondary" in err[0]
    assert served.app.reports == []


async def test_status_program_that_writes_without_end_is_stopped_and_explained(served: Served) -> None:
    code, _, err = await (await Command.start(served, "--status", "yes", "--", "true")).ended()
    assert code == Exit.BROKEN and "prints more than 65536 bytes" in err[0]
    assert not any("Traceback" in line for line in err), err
