"""Programs within a turn, as real processes: whatever happens, nothing of them outlives it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from shared.checkpoints.node import command
from shared.checkpoints.node.command import BadResult, CommandOutcome, NotRunnable, read_result, run_in
from shared.checkpoints.node.rules import HeldTurn
from shared.checkpoints.node.turn import Turn, TurnLost
from shared.core.clock import steady
from shared.core.errors import TocsinError
from tests.paths import ROOT
from tests.waiting import eventually

LONG = 600.0
CHILD = "sh -c 'echo $$ >> {pids}; {trap} exec sleep 600'"
FAMILY = f"echo $$ >> {{pids}}; ({CHILD}) & (setsid {CHILD}) & {{trap}} wait"
"""A program with a child in its group and one that has left it."""
LADDER = (2.0, 8.0, 32.0)
"""Seconds of a turn that ends while its program runs: the first in which this machine gets it started."""


def turn_of(seconds: float) -> Turn:
    return Turn(HeldTurn(5, steady() + seconds), steady)


def environment() -> dict[str, str]:
    return dict(os.environ)


async def until(look: Callable[[], object], what: str) -> None:
    ends = time.monotonic() + 60
    while not look():
        assert time.monotonic() < ends, what
        await asyncio.sleep(0.02)


def family(tmp_path: Path, *, stubborn: bool = False) -> list[str]:
    trap = 'trap "" TERM;' if stubborn else ""
    return ["sh", "-c", FAMILY.format(pids=shlex.quote(str(tmp_path / "pids")), trap=trap)]


def members(tmp_path: Path) -> list[int]:
    path = tmp_path / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def alive(pid: int) -> bool:
    """Return true if the process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(tmp_path: Path) -> bool:
    return not any(alive(pid) for pid in members(tmp_path))


@pytest.mark.parametrize(
    ("script", "ended"), [("exit 0", CommandOutcome(0, None)), ("exit 3", CommandOutcome(3, None)), ("kill -9 $$", CommandOutcome(None, 9))]
)
async def test_program_ends_as_it_ends(script: str, ended: CommandOutcome) -> None:
    assert await run_in(turn_of(LONG), ["sh", "-c", script], grace=1, environment=environment()) == ended
    assert ended.code == (ended.status if ended.status is not None else 128 + (ended.signal or 0))


async def test_missing_program_and_one_that_cannot_be_run_have_different_errors(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program")
    for program, missing in (("/nowhere/at-all", True), ("", True), (str(tmp_path / "plain"), False)):
        with pytest.raises(NotRunnable, match=re.escape(f"{program}: ")) as raised:
            await run_in(turn_of(LONG), [program], grace=1, environment=environment())
        assert raised.value.missing is missing


async def test_limit_ends_the_whole_family(tmp_path: Path) -> None:
    for seconds in LADDER:
        (tmp_path / "pids").unlink(missing_ok=True)
        with pytest.raises(TurnLost, match="time is over"):
            await run_in(turn_of(seconds), family(tmp_path, stubborn=True), grace=0.5, environment=environment())
        assert gone(tmp_path)
        if len(members(tmp_path)) == 3:
            return
    raise AssertionError("the family never started in time")


async def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    script = f"{family(tmp_path)[2].removesuffix('wait')} sleep 0.3; exit 0"
    assert (await run_in(turn_of(LONG), ["sh", "-c", script], grace=1, environment=environment())).status == 0
    assert len(members(tmp_path)) == 3 and gone(tmp_path)


@pytest.mark.parametrize(("reason", "stubborn"), [("revoked", False), ("revoked", True), ("promoted", True)])
async def test_cancelled_it_returns_when_nothing_runs_any_more(
    tmp_path: Path, reason: Literal["revoked", "promoted"], stubborn: bool
) -> None:
    turn = turn_of(LONG)
    # A promotion does not wait for a grace.
    grace = LONG / 2 if reason == "promoted" else 0.5
    task = asyncio.create_task(run_in(turn, family(tmp_path, stubborn=stubborn), grace=grace, environment=environment()))
    await until(lambda: len(members(tmp_path)) == 3, "the family")
    turn.lost = reason
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone(tmp_path)


async def test_cancelled_while_it_starts_it_returns_when_nothing_runs_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, starting = asyncio.create_subprocess_exec, asyncio.Event()

    async def slow(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await start(*arguments, **options)
        await until(lambda: len(members(tmp_path)) == 3, "the family")
        starting.set()
        await until(task.cancelling, "the cancel")
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    task = asyncio.create_task(run_in(turn_of(LONG), family(tmp_path), grace=1, environment=environment()))
    await starting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone(tmp_path)


async def test_cancelled_while_it_starts_in_vain_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    starting = asyncio.Event()

    async def refused(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        starting.set()
        await until(task.cancelling, "the cancel")
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refused)
    task = asyncio.create_task(run_in(turn_of(LONG), ["true"], grace=1, environment=environment()))
    await starting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_program_may_use_its_grace_to_tidy_up(tmp_path: Path) -> None:
    script = f"trap 'echo tidy > {tmp_path}/tidy; exit 0' TERM; echo $$ >> {tmp_path}/pids; while :; do sleep 0.05; done"
    task = asyncio.create_task(run_in(turn_of(LONG), ["sh", "-c", script], grace=60, environment=environment()))
    await until(lambda: members(tmp_path), "the program")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "tidy").read_text() == "tidy\n" and gone(tmp_path)


def guard_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_killed_guard_takes_its_program_with_it(tmp_path: Path) -> None:
    script = f"echo $$ >> {tmp_path}/pids; (echo $$; exec sleep 600) & exec sleep 600"
    task = asyncio.create_task(run_in(turn_of(LONG), ["sh", "-c", script], grace=1, environment=environment()))
    await until(lambda: members(tmp_path), "the program")
    os.kill(guard_of(members(tmp_path)[0]), signal.SIGKILL)
    with pytest.raises(TocsinError, match="guard"):
        await task
    await until(lambda: gone(tmp_path), "its end")


async def test_killed_guard_takes_processes_that_left_its_programs_group_with_it(tmp_path: Path) -> None:
    ours = subprocess.Popen(["sleep", "600"])
    try:
        task = asyncio.create_task(run_in(turn_of(LONG), family(tmp_path, stubborn=True), grace=1, environment=environment()))
        await until(lambda: len(members(tmp_path)) == 3, "the family")
        os.kill(guard_of(members(tmp_path)[0]), signal.SIGKILL)
        with pytest.raises(TocsinError, match="guard"):
            await task
        assert gone(tmp_path) and alive(ours.pid)
    finally:
        ours.kill()
        ours.wait()


async def test_stopped_guard_is_replaced_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "GUARD_OVERTIME", 0.2)
    script = f"sleep 600 & echo $$ $! >> {tmp_path}/pids; wait"
    for seconds in LADDER:
        (tmp_path / "pids").unlink(missing_ok=True)
        task = asyncio.create_task(run_in(turn_of(seconds), ["sh", "-c", script], grace=0.5, environment=environment()))
        await until(lambda: members(tmp_path) or task.done(), "the program")  # noqa: B023
        if not task.done():
            # It may end at the limit just now.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                os.kill(guard_of(members(tmp_path)[0]), signal.SIGSTOP)
        with pytest.raises(TocsinError, match=r"guard|time is over") as ended:
            await task
        await until(lambda: gone(tmp_path), "its end")
        if not isinstance(ended.value, TurnLost):
            return
    raise AssertionError("the program never started in time")


PARENT = """
import asyncio, os, sys
from shared.checkpoints.node.command import run_in
from shared.checkpoints.node.rules import HeldTurn
from shared.checkpoints.node.turn import Turn
from shared.core.clock import steady
turn = Turn(HeldTurn(5, steady() + float(sys.argv[1])), steady)
asyncio.run(run_in(turn, sys.argv[2:], grace=0.5, environment=dict(os.environ)))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_killed_or_stopped_parent_does_not_let_its_program_go_on(tmp_path: Path, how: signal.Signals) -> None:
    for seconds in LADDER if how == signal.SIGSTOP else (LONG,):
        (tmp_path / "pids").unlink(missing_ok=True)
        command = (sys.executable, "-c", PARENT, str(seconds), *family(tmp_path, stubborn=True))
        parent = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        try:
            await until(lambda: len(members(tmp_path)) == 3 or parent.poll() is not None, "the family")  # noqa: B023
            in_time = parent.poll() is None
            parent.send_signal(how)
            await until(lambda: gone(tmp_path), "its end")
        finally:
            parent.kill()
            parent.wait()
        if in_time:
            return
    raise AssertionError("the family never started in time")


async def test_program_ends_with_its_guard_even_while_the_parent_is_stopped(tmp_path: Path) -> None:
    command = (sys.executable, "-c", PARENT, str(LONG), "sh", "-c", f"echo $$ > {tmp_path}/pids; exec sleep 600")
    parent = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        await until(lambda: members(tmp_path), "the program")
        parent.send_signal(signal.SIGSTOP)
        os.kill(guard_of(members(tmp_path)[0]), signal.SIGKILL)
        await until(lambda: gone(tmp_path), "its end")
    finally:
        parent.kill()
        parent.wait()


async def test_program_reads_nothing_and_holds_no_end_of_the_guards_pipe(tmp_path: Path) -> None:
    script = f"cat > {tmp_path}/read; ls /proc/$$/fd > {tmp_path}/fds; exit 0"
    assert (await run_in(turn_of(LONG), ["sh", "-c", script], grace=1, environment=environment())).status == 0
    # A shell may keep its own beside, from 10 on.
    assert (tmp_path / "read").read_text() == "" and not {*range(3, 10)} & {int(fd) for fd in (tmp_path / "fds").read_text().split()}


def test_result_file_is_read_and_what_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    assert read_result(path) == {}
    path.write_text('{"sequence": 7, "location": "blob"}')
    assert read_result(path) == {"sequence": 7, "location": "blob"}
    for text in ("7", "[", '{"sequenz": 7}', "\udcff", "[" * 60_000, " " * 65_535 + "{}"):
        path.write_text(text, errors="surrogateescape")
        with pytest.raises(BadResult, match="result file"):
            read_result(path)


@pytest.mark.parametrize("what", ["pipe", "folder", "device"])
def test_result_that_is_no_plain_file_is_refused_at_once(what: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    match what:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("/dev/zero")
    with pytest.raises(BadResult, match="cannot be read" if what == "folder" else "not a plain file"):
        read_result(path)


async def test_program_with_more_arguments_than_the_system_takes_is_reported() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(TocsinError, match="cannot be started"):
            await run_in(turn_of(LONG), ["true", "x" * 2**22], grace=1, environment=environment())
    # The loop closes its end of the program's input in its next turn, and keeps a file for child processes from the first one on.
    await eventually(lambda: len(os.listdir("/proc/self/fd")) < before + 10, "fewer open files than failures")
