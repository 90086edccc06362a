"""What `tocsin checkpoint run` does: turns with a program in them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Never

from ...checkpoints.node.command import BadResult, NotRunnable, read_result, run_in
from ...checkpoints.node.participant import CheckpointParticipant, Health, Turn, TurnLost
from ...core.errors import TocsinError
from ..connection_options import Connection
from ..exits import SIGNALLED, Exit
from ..failures import CommandFailed, explained

PATIENCE: Final = 30.0
"""Seconds that one run of the status command may take."""
MOST: Final = 65_536
"""Bytes that it may print."""
RESTS: Final = (1.0, 60.0)
"""Seconds that `--loop` waits after a turn that failed: at first, doubling, and at most."""
_LOST: Final = {
    "limit": Exit.LIMIT,
    "revoked": Exit.REVOKED,
    "promoted": Exit.PROMOTED,
    "late": Exit.NOT_PUBLISHED,
    "unanswered": Exit.NOT_PUBLISHED,
}
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for. grace, wait, every: seconds."""

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

    def note(self, happened: str, **about: Any) -> None:
        """The same of what goes as it should."""
        if not self.quiet:
            self.say(happened, **about)

    def say(self, happened: str, **about: Any) -> None:
        """A line on standard error: standard output is the command's."""
        words = ", ".join(f"{name} {value}" for name, value in about.items())
        line = json.dumps({"event": happened, **about}) if self.json else f"tocsin: {happened}{': ' if words else ''}{words}"
        # Whoever listened may be gone; what is done goes on.
        with contextlib.suppress(BrokenPipeError):
            print(line, file=sys.stderr, flush=True)


class _CommandEnded(TocsinError):
    """The command failed, with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the command ended with {code}")
        self.code = code


class Status:
    """How this replica stands, by a program that is asked again and again."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._health: Health | None = None if plan.status is not None else Health(plan.role)
        self._problem: TocsinError | None = None

    def __call__(self) -> Health:
        """As it was told last. Raises `CommandFailed` when the program failed then."""
        if self._problem is not None or self._health is None:
            raise self._problem or CommandFailed("the status command has not said anything yet")
        return self._health

    @property
    def applied(self) -> int:
        """As it was told last, whether the program has failed since or not."""
        return self._health.applied if self._health is not None else 0

    @property
    def role(self) -> str:
        """As it was told last. A primary never has a turn."""
        return self._health.role if self._health is not None else "unknown"

    async def look(self) -> None:
        """Ask the program."""
        if self._plan.status is None:
            return
        try:
            self._health, self._problem = _health(await _output(self._plan)), None
        except CommandFailed as failed:
            self._problem = failed
            raise

    async def follow(self, participant: CheckpointParticipant) -> None:
        """Ask it for ever, and pass on what changes."""
        while self._plan.status is not None:
            await asyncio.sleep(self._plan.every)
            before = self._health
            with contextlib.suppress(CommandFailed):
                await self.look()
            if before is None or self._health is None or before.role != self._health.role:
                await participant.recheck()


async def _output(plan: Plan) -> str:
    assert plan.status is not None
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_shell(
            plan.status, stdin=nothing, stdout=pipe, start_new_session=True, env=_environment(plan)
        )
    except OSError as error:
        raise _wrong(f"it cannot be started: {error.strerror}") from None
    assert process.stdout is not None
    said = b""
    try:
        async with asyncio.timeout(PATIENCE):
            while part := await process.stdout.read(MOST):
                said += part
                if len(said) > MOST:
                    raise _wrong(f"it prints more than {MOST} bytes")
            await process.wait()
    except TimeoutError:
        raise _wrong(f"it took longer than {PATIENCE:g} seconds") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # What it has said and nobody reads keeps its pipe open, and with that the wait. Not the whole transport: closing that takes
            # the exit status, which the loop takes too.
            if (unread := process._transport.get_pipe_transport(1)) is not None:  # type: ignore[attr-defined]
                unread.close()
            await process.wait()
    if process.returncode:
        raise _wrong(f"it ended with {process.returncode}")
    return said.decode(errors="replace")


def _health(said: str) -> Health:
    try:
        found = json.loads(said)
        if not isinstance(found, dict):
            raise ValueError("it is no object")
        if strange := found.keys() - {"role", "term", "applied", "lag", "load"}:
            raise ValueError(f"there is no {', '.join(sorted(strange))}")
        return Health(**found)
    except (ValueError, RecursionError) as wrong:
        raise _wrong(f"what it prints is not right: {wrong}") from None


def _wrong(why: str) -> CommandFailed:
    example = '{"role": "secondary", "term": 7, "applied": 81231, "lag": 0, "load": 0.3}'
    return CommandFailed(f"The status command failed: {why}", where="--status", advice=f"Let it print {example}", status=Exit.BROKEN)


def _environment(plan: Plan, **more: str) -> dict[str, str]:
    """The command's: it has no use for the key, whichever variable of a profile holds that."""
    return {name: value for name, value in os.environ.items() if name != "TOCSIN_KEY" and value != plan.app.key} | more


def run_turns(plan: Plan) -> int:
    """Run the plan; returns the exit code. Raises `CommandFailed`."""
    if sys.platform == "win32":
        raise CommandFailed("checkpoint run needs process groups, which Windows does not have", advice="Use CheckpointParticipant there.")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="tocsin: %(message)s")
    try:
        return asyncio.run(_until_told(plan))
    except TocsinError as error:
        failed = explained(error)
        if failed.status in (Exit.FAILED, Exit.REFUSED, Exit.UNREACHABLE):
            failed.status = Exit.BROKEN
        raise failed from error


async def _until_told(plan: Plan) -> int:
    """The code of the plan's end, or of the signal that ended it."""
    told: list[int] = []
    task = asyncio.current_task()
    assert task is not None

    def end(number: int) -> None:
        if not told:
            task.cancel()
        told.append(number)

    with _signals(end):
        try:
            return await _run(plan)
        except asyncio.CancelledError:
            if not told:
                raise
            plan.say("ended", signal=told[0])
            return SIGNALLED + told[0]


@contextlib.contextmanager
def _signals(end: Any) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, end, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def _run(plan: Plan) -> int:
    status = Status(plan)
    await status.look()
    app = plan.app
    async with CheckpointParticipant(
        plan.fleet, plan.node, app.url, app.key, tenant=app.tenant, health=status, folder=plan.folder, grace=plan.grace
    ) as participant:
        following = asyncio.create_task(status.follow(participant))
        try:
            return await (_loop if plan.loop else _one)(plan, participant, status)
        except NotRunnable as wrong:
            plan.say("command cannot be run", why=str(wrong))
            return Exit.NOT_FOUND if wrong.missing else Exit.NOT_RUNNABLE
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def _loop(plan: Plan, participant: CheckpointParticipant, status: Status) -> Never:
    """Turn after turn. Raises `NotRunnable`, and what ends the participant."""
    rest = 0.0
    while True:
        code = await _one(plan, participant, status)
        # A command that fails at once would have turn after turn in no time.
        rest = 0.0 if code in (Exit.OK, Exit.NO_TURN) else min(2 * rest or RESTS[0], RESTS[1])
        await asyncio.sleep(rest)


async def _one(plan: Plan, participant: CheckpointParticipant, status: Status) -> int:
    """One turn: the exit code that it would have. Raises `NotRunnable`."""
    try:
        async with contextlib.AsyncExitStack() as stack:
            plan.note("waiting for a turn", fleet=plan.fleet, node=plan.node, role=status.role)
            async with asyncio.timeout(plan.wait):
                turn = await stack.enter_async_context(participant.turn())
            plan.note("turn begun", epoch=turn.epoch, seconds=int(turn.remaining()))
            # Where nobody tells what was applied, turns themselves order what they make.
            await _take(plan, turn, status.applied if plan.status is not None else turn.epoch)
    except TimeoutError:
        plan.say("no turn came", seconds=plan.wait)
        return Exit.NO_TURN
    except TurnLost as lost:
        plan.say("turn lost", epoch=lost.epoch, reason=lost.reason)
        return _LOST.get(lost.reason, Exit.BROKEN)
    except _CommandEnded as ended:
        plan.say("command failed", epoch=turn.epoch, code=ended.code)
        return ended.code
    except BadResult as wrong:
        plan.say("checkpoint not published", epoch=turn.epoch, why=str(wrong))
        return Exit.NOT_PUBLISHED
    made = turn.made
    assert made is not None
    plan.note("checkpoint published", epoch=turn.epoch, sequence=made.sequence, latest=turn.latest)
    return Exit.OK


async def _take(plan: Plan, turn: Turn, applied: int) -> None:
    with tempfile.TemporaryDirectory(prefix="tocsin-", ignore_cleanup_errors=True) as folder:
        result = Path(folder) / "result.json"
        environment = _environment(
            plan,
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
