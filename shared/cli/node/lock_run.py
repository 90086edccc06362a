"""Run `tocsin locks run`: wait for a lock, and run a program while it is held."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from ...checkpoints.node.command import NotRunnable, run_in
from ...checkpoints.node.turn import TurnLost
from ...client.concurrent import AsyncClient
from ...client.errors import LockHeld, LockLost
from ...client.locking.concurrent import AsyncLock
from ...core.errors import TocsinError
from ..connections import Connection
from ..exits import Exit
from ..failures import CommandFailed, to_command_failure
from .programs import print_report, program_environment, run_until_signal

GRACE_PART: Final = 1 / 4
"""Largest part of the validity that the program may have between SIGTERM and SIGKILL. A grant is renewed after a third of it, so a program
is not ended while renewals succeed."""


@dataclass(frozen=True, slots=True)
class LockRun:
    """The options of `tocsin locks run`. grace: seconds."""

    app: Connection
    name: str
    command: tuple[str, ...]
    ttl: timedelta
    wait: timedelta | None
    holder: str | None
    grace: float
    json: bool
    quiet: bool

    def report(self, happened: str, *, failed: bool = False, **about: Any) -> None:
        """Print a line on standard error, with `--quiet` only about failures."""
        if failed or not self.quiet:
            print_report(happened, as_json=self.json, **about)


class _LockTurn:
    """A held lock as the `GuardedTurn` of the program: its end moves with each renewal."""

    lost: str | None = None

    def __init__(self, lock: AsyncLock) -> None:
        self._lock, self.epoch = lock, lock.token

    @property
    def until(self) -> float:
        return self._lock.until


def run_locked(plan: LockRun) -> int:
    """Run the plan; returns the exit code. Raises `CommandFailed`."""
    if sys.platform == "win32":
        advice = "Use AsyncClient.lock in a Python program instead."
        raise CommandFailed("locks run needs process groups, which Windows does not have", advice=advice)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="tocsin: %(message)s")
    try:
        return asyncio.run(run_until_signal(_run(plan), lambda number: plan.report("ended", failed=True, signal=number)))
    except TocsinError as error:
        failed = to_command_failure(error)
        if failed.status in (Exit.FAILED, Exit.REFUSED, Exit.UNREACHABLE):
            failed.status = Exit.BROKEN
        raise failed from error


async def _run(plan: LockRun) -> int:
    app = plan.app
    async with AsyncClient(app.url, app.key, tenant=app.tenant, allow_plain_http=app.allow_plain_http) as client:
        plan.report("waiting for a lock", lock=plan.name)
        try:
            async with client.lock(plan.name, ttl=plan.ttl, wait=plan.wait, holder=plan.holder) as lock:
                plan.report("lock acquired", lock=plan.name, token=lock.token)
                environment = program_environment(app, TOCSIN_LOCK=plan.name, TOCSIN_TOKEN=str(lock.token))
                grace = min(plan.grace, plan.ttl.total_seconds() * GRACE_PART)
                ended = await run_in(_LockTurn(lock), plan.command, grace=grace, environment=environment)
        except LockHeld:
            plan.report("lock not acquired", failed=True, lock=plan.name)
            return Exit.NO_TURN
        except (LockLost, TurnLost) as lost:
            why = lost.why if isinstance(lost, LockLost) else "its validity is over"
            plan.report("lock lost", failed=True, lock=plan.name, reason=why)
            return Exit.LIMIT
        except NotRunnable as wrong:
            plan.report("command cannot be run", failed=True, why=str(wrong))
            return Exit.NOT_FOUND if wrong.missing else Exit.NOT_RUNNABLE
    plan.report("command ended", lock=plan.name, code=ended.code)
    return ended.code
