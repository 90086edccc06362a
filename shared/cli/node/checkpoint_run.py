"""Run `tocsin checkpoint run`: wait for turns, and run a program in each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Never

from ...checkpoints.node.command import BadResult, NotRunnable, read_result, run_in
from ...checkpoints.node.participant import CheckpointParticipant, Health, Turn, TurnLost
from ...core.errors import TocsinError
from ..connections import Connection
from ..exits import Exit
from ..failures import CommandFailed, to_command_failure
from .programs import print_report, program_environment, run_until_signal

STATUS_TIMEOUT: Final = 30.0
"""Seconds that one run of the status command may take."""
MAX_STATUS_BYTES: Final = 65_536
"""Bytes that the status command may print."""
LOOP_PAUSES: Final = (1.0, 60.0)
"""Seconds that `--loop` waits after a failed turn: the first pause, which doubles with each failure, and the longest."""
_LOST: Final = {
    "limit": Exit.LIMIT,
    "revoked": Exit.REVOKED,
    "promoted": Exit.PROMOTED,
    "late": Exit.NOT_PUBLISHED,
    "unanswered": Exit.NOT_PUBLISHED,
}


@dataclass(frozen=True, slots=True)
class CheckpointRun:
    """The options of `tocsin checkpoint run`. grace, wait, every: seconds."""

    app: Connection
    fleet: str
    node: str
    command: tuple[str, ...]
    status: str | None = None
    role: Literal["primary", "secondary"] = "secondary"
    folder: Path | None = None
    grace: float = 10.0
    wait: float | None = None
    every: float = 2.0
    loop: bool = False
    json: bool = False
    quiet: bool = False

    def report(self, happened: str, **about: Any) -> None:
        """Print a line about the normal course of a turn on standard error, unless `--quiet`."""
        if not self.quiet:
            self.report_failure(happened, **about)

    def report_failure(self, happened: str, **about: Any) -> None:
        """Print a line on standard error. Standard output belongs to the command."""
        print_report(happened, as_json=self.json, **about)


class _CommandEnded(TocsinError):
    """Raised when the command ends with an exit code other than 0."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the command ended with exit code {code}")
        self.code = code


class ReplicaStatus:
    """The health of this replica, read from a program at intervals."""

    def __init__(self, plan: CheckpointRun) -> None:
        self._plan = plan
        self._health: Health | None = None if plan.status is not None else Health(plan.role)
        self._problem: TocsinError | None = None

    def __call__(self) -> Health:
        """Return the last health. Raises `CommandFailed` if the last run of the program failed."""
        if self._problem is not None or self._health is None:
            raise self._problem or CommandFailed("the status command has not run yet")
        return self._health

    @property
    def applied(self) -> int:
        """The last known sequence that the replica has applied, even if the program has failed since."""
        return self._health.applied if self._health is not None else 0

    @property
    def role(self) -> str:
        """The last known role. A primary never has a turn."""
        return self._health.role if self._health is not None else "unknown"

    async def read(self) -> None:
        """Run the program once. Raises `CommandFailed`."""
        if self._plan.status is None:
            return
        try:
            self._health, self._problem = _parse_health(await _output(self._plan)), None
        except CommandFailed as failed:
            self._problem = failed
            raise

    async def follow(self, participant: CheckpointParticipant) -> None:
        """Run the program at intervals without end, and report a changed role."""
        while self._plan.status is not None:
            await asyncio.sleep(self._plan.every)
            before = self._health
            with contextlib.suppress(CommandFailed):
                await self.read()
            if before is None or self._health is None or before.role != self._health.role:
                await participant.recheck()


async def _output(plan: CheckpointRun) -> str:
    assert plan.status is not None
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_shell(
            plan.status, stdin=nothing, stdout=pipe, start_new_session=True, env=program_environment(plan.app)
        )
    except OSError as error:
        raise _status_failure(f"it cannot be started: {error.strerror}") from None
    assert process.stdout is not None
    output = b""
    try:
        async with asyncio.timeout(STATUS_TIMEOUT):
            while part := await process.stdout.read(MAX_STATUS_BYTES):
                output += part
                if len(output) > MAX_STATUS_BYTES:
                    raise _status_failure(f"it prints more than {MAX_STATUS_BYTES} bytes")
            await process.wait()
    except TimeoutError:
        raise _status_failure(f"it took longer than {STATUS_TIMEOUT:g} seconds") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # Unread output keeps the pipe open, and with that the wait below. Close only the pipe: closing the whole transport would take
            # the exit status, which the event loop takes too.
            if (unread := process._transport.get_pipe_transport(1)) is not None:  # type: ignore[attr-defined]
                unread.close()
            await process.wait()
    if process.returncode:
        raise _status_failure(f"it ended with exit code {process.returncode}")
    return output.decode(errors="replace")


def _parse_health(output: str) -> Health:
    try:
        found = json.loads(output)
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object")
        if unknown := found.keys() - {"role", "term", "applied", "lag", "load"}:
            raise ValueError(f"unknown field: {', '.join(sorted(unknown))}")
        return Health(**found)
    except (ValueError, RecursionError) as wrong:
        raise _status_failure(f"its output is not valid: {wrong}") from None


def _status_failure(why: str) -> CommandFailed:
    example = '{"role": "secondary", "term": 7, "applied": 81231, "lag": 0, "load": 0.3}'
    return CommandFailed(f"The status command failed: {why}", where="--status", advice=f"It must print {example}", status=Exit.BROKEN)


def run_turns(plan: CheckpointRun) -> int:
    """Run the plan; returns the exit code. Raises `CommandFailed`."""
    if sys.platform == "win32":
        advice = "Use the class CheckpointParticipant in a Python program instead."
        raise CommandFailed("checkpoint run needs process groups, which Windows does not have", advice=advice)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="tocsin: %(message)s")
    try:
        return asyncio.run(run_until_signal(_run(plan), lambda number: plan.report_failure("ended", signal=number)))
    except TocsinError as error:
        failed = to_command_failure(error)
        if failed.status in (Exit.FAILED, Exit.REFUSED, Exit.UNREACHABLE):
            failed.status = Exit.BROKEN
        raise failed from error


async def _run(plan: CheckpointRun) -> int:
    status = ReplicaStatus(plan)
    await status.read()
    app = plan.app
    async with CheckpointParticipant(
        *(plan.fleet, plan.node, app.url, app.key),
        tenant=app.tenant,
        health=status,
        folder=plan.folder,
        grace=plan.grace,
        allow_plain_http=app.allow_plain_http,
    ) as participant:
        following = asyncio.create_task(status.follow(participant))
        try:
            return await (_loop if plan.loop else _take_one_turn)(plan, participant, status)
        except NotRunnable as wrong:
            plan.report_failure("command cannot be run", why=str(wrong))
            return Exit.NOT_FOUND if wrong.missing else Exit.NOT_RUNNABLE
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def _loop(plan: CheckpointRun, participant: CheckpointParticipant, status: ReplicaStatus) -> Never:
    """Take turn after turn. Raises `NotRunnable`, and errors that end the participant."""
    pause = 0.0
    while True:
        code = await _take_one_turn(plan, participant, status)
        # Without a pause, a command that fails at once would take one turn after the other.
        pause = 0.0 if code in (Exit.OK, Exit.NO_TURN) else min(2 * pause or LOOP_PAUSES[0], LOOP_PAUSES[1])
        await asyncio.sleep(pause)


async def _take_one_turn(plan: CheckpointRun, participant: CheckpointParticipant, status: ReplicaStatus) -> int:
    """Take one turn and return its exit code. Raises `NotRunnable`."""
    try:
        async with contextlib.AsyncExitStack() as stack:
            plan.report("waiting for a turn", fleet=plan.fleet, node=plan.node, role=status.role)
            async with asyncio.timeout(plan.wait):
                turn = await stack.enter_async_context(participant.turn())
            plan.report("turn begun", epoch=turn.epoch, seconds=int(turn.remaining()))
            # Without a status command, the epochs of turns order their checkpoints.
            await _run_command_in_turn(plan, turn, status.applied if plan.status is not None else turn.epoch)
    except TimeoutError:
        plan.report_failure("no turn came", seconds=plan.wait)
        return Exit.NO_TURN
    except TurnLost as lost:
        plan.report_failure("turn lost", epoch=lost.epoch, reason=lost.reason)
        return _LOST.get(lost.reason, Exit.BROKEN)
    except _CommandEnded as ended:
        plan.report_failure("command failed", epoch=turn.epoch, code=ended.code)
        return ended.code
    except BadResult as wrong:
        plan.report_failure("checkpoint not published", epoch=turn.epoch, why=str(wrong))
        return Exit.NOT_PUBLISHED
    made = turn.made
    assert made is not None
    plan.report("checkpoint published", epoch=turn.epoch, sequence=made.sequence, latest=turn.latest)
    return Exit.OK


async def _run_command_in_turn(plan: CheckpointRun, turn: Turn, applied: int) -> None:
    with tempfile.TemporaryDirectory(prefix="tocsin-", ignore_cleanup_errors=True) as folder:
        result = Path(folder) / "result.json"
        environment = program_environment(
            plan.app,
            TOCSIN_FLEET=plan.fleet,
            TOCSIN_NODE=plan.node,
            TOCSIN_EPOCH=str(turn.epoch),
            TOCSIN_LIMIT=str(int(turn.remaining())),
            TOCSIN_RESULT=str(result),
        )
        ended = await run_in(turn, plan.command, grace=plan.grace, environment=environment)
        if ended.code:
            raise _CommandEnded(ended.code)
        found = read_result(result)
    try:
        turn.result(found.get("sequence", applied), found.get("location", f"node:{plan.node}"), found.get("bytes", 0))
    except ValueError as wrong:
        raise BadResult(str(wrong)) from None
