"""Runs a program within a turn, under a guard process (`guard`), so that no process of it outlives the turn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from ...core.clock import steady
from ...core.errors import TocsinError
from . import guard
from .timings import GUARD_OVERTIME
from .turn import TurnLost

POLL: Final = 0.5
"""Seconds between two looks at the clock and at the turn's end."""
MAX_RESULT: Final = 65_536
"""Largest size of a result file, in bytes."""


class NotRunnable(TocsinError):
    """The program does not exist (`missing`) or may not be executed."""

    def __init__(self, program: str, number: int) -> None:
        super().__init__(f"{program}: {os.strerror(number)}")
        self.missing = number == 2


class BadResult(TocsinError):
    """The program's result file holds no valid result."""


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """The end of the program: its exit status, or the number of the signal that killed it."""

    status: int | None
    signal: int | None

    @property
    def code(self) -> int:
        """Exit code as a shell reports it."""
        return self.status if self.status is not None else 128 + (self.signal or 0)


class GuardedTurn(Protocol):
    """The turn or the lock within which a program runs. The end of a lock moves with each renewal."""

    @property
    def epoch(self) -> int: ...
    @property
    def lost(self) -> str | None: ...
    @property
    def until(self) -> float:
        """The time from which no process of the program may run, in seconds of the steady clock."""


async def run_in(turn: GuardedTurn, command: Sequence[str], *, grace: float, environment: Mapping[str, str]) -> CommandOutcome:
    """Run the program to its end.

    grace: seconds between SIGTERM and SIGKILL. SIGKILL comes at the turn's limit at the latest, and at once when this replica has become
    the primary. If it is cancelled, it returns when no process of the program runs any more. Raises `TurnLost` when the guard ended the
    program at the limit, `NotRunnable`, `TocsinError` when the guard was killed.
    """
    own = frozenset(guard.children())
    # If the guard is killed, the program's processes become children of this process, also those that left the program's group.
    guard.adopt(True)
    try:
        return await _run_in(turn, command, grace, environment, own)
    finally:
        guard.adopt(False)


async def _run_in(
    turn: GuardedTurn, command: Sequence[str], grace: float, environment: Mapping[str, str], own: frozenset[int]
) -> CommandOutcome:
    reading, writing = os.pipe()
    until = turn.until
    # In a session of its own: signals from a terminal go to `tocsin` alone, which passes them on.
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", guard.__file__, repr(until), repr(grace), str(writing), *command),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(writing,),
            env=environment,
            start_new_session=True,
        )
    )
    cancelled = False
    # The program may run before the start has returned. A cancelled start would kill the guard alone.
    while not starting.done():
        try:
            await asyncio.wait([starting])
        except asyncio.CancelledError:
            cancelled = True
    os.close(writing)
    try:
        process = starting.result()
    except BaseException as error:
        os.close(reading)
        if cancelled:
            raise asyncio.CancelledError from error
        if not isinstance(error, OSError):
            raise
        raise TocsinError(f"the guard of the command cannot be started: {error.strerror}") from None
    events: dict[str, Any] = {}
    listening = asyncio.create_task(_listen(reading, events))
    ending = asyncio.ensure_future(process.wait())
    try:
        if cancelled:
            raise asyncio.CancelledError
        while not ending.done():
            await asyncio.wait([ending], timeout=POLL)
            if turn.until != until:
                until = turn.until
                _write(process, b"u%s\n" % repr(until).encode())
            if steady() > turn.until + GUARD_OVERTIME:
                _kill_directly(process, events)
    except asyncio.CancelledError:
        await _stop(process, ending, events, turn, grace)
        raise
    finally:
        # A guard that ended has killed what was left of the program. If the guard was killed, this process does it.
        if process.returncode != 0:
            _kill_directly(process, events)
            await asyncio.shield(ending)
            guard.end_children(own)
        await asyncio.shield(listening)
    if "errno" in events:
        raise NotRunnable(command[0], int(events["errno"]))
    if events.get("by") == "limit":
        raise TurnLost(turn.epoch, "limit")
    if "status" not in events and "signal" not in events:
        raise TocsinError("the guard of the command was killed, and the command was stopped with it")
    return CommandOutcome(events.get("status"), events.get("signal"))


def _write(process: asyncio.subprocess.Process, request: bytes) -> None:
    assert process.stdin is not None
    # The program may have ended, and with it the guard. uvloop says so with a RuntimeError.
    with contextlib.suppress(OSError, RuntimeError):
        process.stdin.write(request)


async def _listen(pipe: int, events: dict[str, Any]) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", 0))
    try:
        async for line in reader:
            events.update(json.loads(line))
    finally:
        transport.close()


async def _stop(
    process: asyncio.subprocess.Process, ending: asyncio.Future[int], events: dict[str, Any], turn: GuardedTurn, grace: float
) -> None:
    """End the program, even if this task is cancelled again meanwhile."""
    _write(process, b"k" if turn.lost == "promoted" else b"t")
    deadline = min(turn.until, steady() + grace) + GUARD_OVERTIME
    while not ending.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([ending], timeout=max(0.05, deadline - steady()))
        if steady() >= deadline:
            _kill_directly(process, events)


def _kill_directly(process: asyncio.subprocess.Process, events: Mapping[str, Any]) -> None:
    """Kill the program directly, then its guard, because the guard hangs or is gone."""
    if "pid" in events and "status" not in events and "signal" not in events:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(events["pid"]), signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def read_result(path: Path) -> dict[str, Any]:
    """Return the program's result file: an object with some of `sequence`, `location` and `bytes`; {} if there is none.

    Raises `BadResult`.
    """
    try:
        # The program may have left anything there. Opening a pipe would block.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadResult("the result file is not a plain file")
            content = file.read(MAX_RESULT + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadResult(f"the result file cannot be read: {error.strerror}") from None
    if len(content) > MAX_RESULT:
        raise BadResult(f"the result file has more than {MAX_RESULT} bytes")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadResult(f"the result file is not valid JSON: {error}") from None
    if not isinstance(found, dict) or found.keys() - {"sequence", "location", "bytes"}:
        raise BadResult('the result file must hold an object with "sequence" and, if wanted, "location" and "bytes"')
    return found
