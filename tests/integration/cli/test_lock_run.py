"""`tocsin locks run`, with real programs, against an app that answers as the test says."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from shared.cli.connections import Connection
from shared.cli.exits import Exit
from shared.cli.node.lock_run import LockRun, _run
from tests.paths import ROOT
from tests.texts import assert_text
from tests.waiting import eventually, within

KEY = "a-very-secret-key"
SLEEP = "sleep 600 & echo $$ $! > {pids}; wait"
NO_WAIT = timedelta(0)


class LockApp:
    """Grants a lock of 6 s with token 7, which a process that has to wait for the processor renews in time.

    acquired, renewed: status of the answers; 0 for none.
    """

    def __init__(self) -> None:
        self.url = ""
        self.acquired, self.renewed = 200, 200
        self.renewals, self.released = 0, 0

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "DELETE":
            self.released += 1
            return web.Response(status=204)
        renews = "token" in await request.json()
        self.renewals += renews
        status = self.renewed if renews else self.acquired
        if not status:
            await asyncio.sleep(600)
        if status == 200:
            return web.json_response({"token": 7, "valid_ms": 6000, "version": "v"})
        code = "lock-lost" if renews else "lock-held"
        return web.json_response({"type": f"https://x/problems/{code}", "title": "x", "status": status, "detail": "why"}, status=status)


@pytest.fixture
async def app() -> AsyncIterator[LockApp]:
    made, site = LockApp(), web.Application()
    site.router.add_route("*", "/api/v1/locks/nightly", made.answer)
    runner = web.AppRunner(site, shutdown_timeout=0.1)
    await runner.setup()
    listener = web.TCPSite(runner, "127.0.0.1", 0)
    await listener.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


TTL = timedelta(seconds=9)
"""The validity of the lock. A slow machine renews it in time."""


def plan(app: LockApp, script: str, *, wait: timedelta | None = NO_WAIT) -> LockRun:
    return LockRun(Connection(app.url, KEY), "nightly", ("sh", "-c", script), TTL, wait, "a", 0.5, False, False)


async def until(look: Callable[[], Any], what: str) -> None:
    await eventually(look, what, pause=0.02)


def gone(pids: Path) -> bool:
    """Return True if none of those that wrote their number runs."""
    for pid in pids.read_text().split():
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in ("Z", "X"):
            return False
    return True


def started(pids: Path) -> bool:
    return pids.exists() and bool(pids.read_text().strip())


async def test_a_program_sees_its_token_and_not_the_key_and_the_lock_is_released(
    app: LockApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOCSIN_KEY", KEY)
    assert await _run(plan(app, f"env > {tmp_path}/env; exit 7")) == 7
    text = (tmp_path / "env").read_text()
    assert "TOCSIN_LOCK=nightly\n" in text and "TOCSIN_TOKEN=7\n" in text and KEY not in text
    assert app.released == 1
    assert_text("locks.run", capfd.readouterr().err, lock="nightly", token=7, code=7)


async def test_a_program_does_not_start_without_the_lock(app: LockApp, tmp_path: Path) -> None:
    app.acquired = 409
    assert await _run(plan(app, f"touch {tmp_path}/x")) == Exit.NO_TURN
    assert not (tmp_path / "x").exists() and app.released == 1


async def test_a_program_runs_for_as_long_as_the_lock_is_renewed(app: LockApp, tmp_path: Path) -> None:
    go = tmp_path / "go"
    running = asyncio.create_task(_run(plan(app, f"while [ ! -e {go} ]; do sleep 0.05; done; exit 3")))
    # Renewals come at a third of the validity: this is longer than one validity.
    await until(lambda: app.renewals >= 4, "renewals")
    assert not running.done()
    go.touch()
    assert await within(running, "the end of the command") == 3


@pytest.mark.parametrize("answer", [409, 0], ids=["ended", "silent"])
async def test_a_program_is_ended_with_its_children_when_the_lock_is_lost(app: LockApp, tmp_path: Path, answer: int) -> None:
    pids = tmp_path / "pids"
    running = asyncio.create_task(_run(plan(app, SLEEP.format(pids=pids))))
    await until(lambda: started(pids), "the program")
    app.renewed = answer
    assert await within(running, "the end of the command") == Exit.LIMIT and gone(pids)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_no_process_of_the_program_outlives_the_command(app: LockApp, tmp_path: Path, number: signal.Signals) -> None:
    pids = tmp_path / "pids"
    # Longer than the others': here the command starts in a process of its own, which may have to wait for the processor.
    words = ("locks", "run", "nightly", "--ttl", "30s", "--grace", "0.2", "--", "sh", "-c", SLEEP.format(pids=pids))
    environment = {**os.environ, "TOCSIN_URL": app.url, "TOCSIN_KEY": KEY}
    pipe = asyncio.subprocess.DEVNULL
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shared.cli", *words), cwd=ROOT, env=environment, stdout=pipe, stderr=pipe
    )

    def renewed() -> bool:
        assert command.returncode is None, "the command has ended"
        return started(pids) and app.renewals >= 1

    await until(renewed, "the program and a renewal")
    command.send_signal(number)
    code = await within(command.wait(), "the end of the command")
    await until(lambda: gone(pids), "the end of the program")
    assert code == (128 + number if number == signal.SIGTERM else -number)
    assert app.released == (1 if number == signal.SIGTERM else 0)
