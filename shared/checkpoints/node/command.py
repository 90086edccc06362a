"""Runs a program within a turn, behind a guard of its own (`guard`): nothing of it outlives the turn."""

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
from typing import Any, Final

from ...core.clock import steady
from ...core.errors import TocsinError
from . import guard
from .turn import Turn, TurnLost

LATE: Final = 1.0
"""Seconds past the limit after which a guard that has not ended counts as stopped or gone."""
MOST: Final = 65_536
"""Bytes of a result file."""


class NotRunnable(TocsinError):
    """The program is not there, or may not be run. missing: which of the two."""

    def __init__(self, program: str, number: int) -> None:
        super().__init__(f"{program}: {os.strerror(number)}")
        self.missing = number == 2


class BadResult(TocsinError):
    """What the program left in its result file is no result."""


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How the program ended: its status, or the number of the signal that killed it."""

    status: int | None
    signal: int | None

    @property
    def code(self) -> int:
        """As the shell has it."""
        return self.status if self.status is not None else 128 + (self.signal or 0)


async def run_in(turn: Turn, command: Sequence[str], *, grace: float, environment: Mapping[str, str]) -> CommandOutcome:
    """Run the program to its end. grace: seconds between SIGTERM and SIGKILL; the latter comes at the turn's limit at the latest, and at
    once when this replica has become the primary. Cancelled, it returns when nothing of the program runs any more.

    Raises `TurnLost` when the guard ended the program at the limit, `NotRunnable`, `TocsinError` when the guard was killed.
    """
    reading, writing = os.pipe()
    try:
        # In a session of its own: what a terminal sends, to end or to stop, is for `tocsin` alone, which passes it on.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", guard.__file__, repr(turn.until), repr(grace), str(writing), *command),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(writing,),
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        os.close(reading)
        raise TocsinError(f"the guard of the command cannot be started: {error.strerror}") from None
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    said: dict[str, Any] = {}
    telling = asyncio.create_task(_listen(reading, said))
    ending = asyncio.ensure_future(process.wait())
    try:
        while not ending.done():
            await asyncio.wait([ending], timeout=1.0)
            if steady() > turn.until + LATE:
                _finish(process, said)
    except asyncio.CancelledError:
        await _stop(process, ending, said, turn, grace)
        raise
    finally:
        # A killed guard leaves its command to us; one that has ended has swept up.
        if process.returncode != 0:
            _finish(process, said)
        await asyncio.shield(telling)
    if "errno" in said:
        raise NotRunnable(command[0], int(said["errno"]))
    if said.get("by") == "limit":
        raise TurnLost(turn.epoch, "limit")
    if "status" not in said and "signal" not in said:
        raise TocsinError("the guard of the command was killed; the command has been ended")
    return CommandOutcome(said.get("status"), said.get("signal"))


async def _listen(pipe: int, said: dict[str, Any]) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", 0))
    try:
        async for line in reader:
            said.update(json.loads(line))
    finally:
        transport.close()


async def _stop(process: asyncio.subprocess.Process, ending: asyncio.Future[int], said: dict[str, Any], turn: Turn, grace: float) -> None:
    """End the program whatever else cancels this task meanwhile."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.write(b"k" if turn.lost == "promoted" else b"t")
    enough = min(turn.until, steady() + grace) + LATE
    while not ending.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([ending], timeout=max(0.05, enough - steady()))
        if steady() >= enough:
            _finish(process, said)


def _finish(process: asyncio.subprocess.Process, said: Mapping[str, Any]) -> None:
    """The guard does nothing any more, or is gone: end its command ourselves, then it."""
    if "pid" in said and "status" not in said and "signal" not in said:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(said["pid"]), signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def read_result(path: Path) -> dict[str, Any]:
    """What the program has left in its result file: an object with some of sequence, location and bytes; {} for no file. Raises
    `BadResult`."""
    try:
        # The program may have left anything there: a pipe would be waited for.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadResult("the result file is no plain file")
            said = file.read(MOST + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadResult(f"the result file cannot be read: {error.strerror}") from None
    if len(said) > MOST:
        raise BadResult(f"the result file has more than {MOST} bytes")
    try:
        found = json.loads(said)
    except (ValueError, RecursionError) as error:
        raise BadResult(f"the result file holds no JSON: {error}") from None
    if not isinstance(found, dict) or found.keys() - {"sequence", "location", "bytes"}:
        raise BadResult('the result file must hold an object with "sequence" and, if wanted, "location" and "bytes"')
    return found
