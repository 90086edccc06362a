"""A process opens the app without a call, and ends in order when the host that started it has ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from shared.app import lazy
from shared.app.application import Application
from shared.app.lazy import Lazy
from shared.app.parent_watch import ParentWatch
from shared.core.errors import StorageError
from shared.core.event_loop import StallWatch
from tests.paths import ROOT

HOST, INIT = 500, 1


class PlayedApplication:
    """The parts of the application that `Lazy` calls; notes the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.busy = False
        self.stalls = StallWatch(time.monotonic)

    async def recover(self) -> None:
        self.calls.append("recover")

    def glance(self) -> None:
        pass

    def leave(self) -> None:
        self.calls.append("leave")

    async def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> PlayedApplication:
    """Opens in place of the application, without delays."""
    played = PlayedApplication()

    async def opened(**given: Any) -> Application:
        return cast(Application, played)

    monkeypatch.setattr(Application, "open", opened)
    monkeypatch.setattr(lazy, "OPEN_AFTER", 0.0)
    monkeypatch.setattr(lazy, "OPEN_AGAIN", 0.0)
    monkeypatch.setattr("shared.app.parent_watch.LOOK_EVERY", 0.0)
    return played


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_app_opens_without_a_call_and_looks_for_shards(app: PlayedApplication) -> None:
    opened = Lazy(parent=ParentWatch([]))
    opened.open_soon()
    await until(lambda: app.calls == ["recover"])
    await opened.close()
    assert app.calls == ["recover", "close"]


async def test_app_that_cannot_open_yet_is_tried_again(app: PlayedApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    plain: Callable[..., Awaitable[Application]] = Application.open
    failures = iter([StorageError("not there yet")] * 2)

    async def opened(**given: Any) -> Application:
        for error in failures:
            raise error
        return await plain(**given)

    monkeypatch.setattr(Application, "open", opened)
    lazily = Lazy(parent=ParentWatch([]))
    lazily.open_soon()
    await until(lambda: "recover" in app.calls)
    await lazily.close()


async def test_calls_of_every_moment_of_the_start_share_one_application(app: PlayedApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[Application]()

    async def open_slowly(**given: Any) -> Application:
        await asyncio.sleep(0)
        opened.append(cast(Application, PlayedApplication()))
        return opened[-1]

    monkeypatch.setattr(Application, "open", open_slowly)
    lazily = Lazy(parent=ParentWatch([]))
    calls = []
    for _ in range(20):
        calls.append(asyncio.create_task(lazily.first()))
        await asyncio.sleep(0)
    assert set(await asyncio.gather(*calls)) == {opened[0]}
    await lazily.close()
    assert len(opened) == 1 and cast(PlayedApplication, opened[0]).calls[-1] == "close"


async def test_an_end_while_the_application_opens_leaves_nothing_open(app: PlayedApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, closed = asyncio.Event(), asyncio.Event()

    async def open_for_ever(**given: Any) -> Application:
        begun.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            closed.set()

    monkeypatch.setattr(Application, "open", open_for_ever)
    lazily = Lazy(parent=ParentWatch([]))
    call = asyncio.create_task(lazily.first())
    await begun.wait()
    await lazily.close()
    assert closed.is_set()
    with pytest.raises(asyncio.CancelledError):
        await call


def test_without_a_loop_nothing_opens(app: PlayedApplication) -> None:
    Lazy(parent=ParentWatch([])).open_soon()
    assert app.calls == []


async def test_orphan_releases_its_shards_before_it_ends(app: PlayedApplication) -> None:
    parents, ended = [HOST], list[int]()
    opened = Lazy(parent=ParentWatch(["worker.py", "--functions-worker-id", "7"], lambda: parents[-1]), end=ended.append)
    app.busy = True
    await opened.first()
    await until(lambda: "recover" in app.calls)
    assert "leave" not in app.calls
    parents.append(INIT)
    await until(lambda: "leave" in app.calls)
    assert not ended and "close" not in app.calls, "it serves a shard to its end"
    app.busy = False
    await until(lambda: ended)
    assert app.calls == ["recover", "leave", "close"]


@pytest.mark.parametrize(
    ("arguments", "parents", "gone"),
    [
        (["worker.py", "--functions-worker-id", "7"], [HOST, INIT], True),
        (["worker.py", "--workerId=7"], [HOST, 33], True),
        (["worker.py", "--workerId", "7"], [HOST, HOST], False),
        (["-m", "devhost"], [HOST, INIT], False),
        (["worker.py", "--workerId", "7"], [INIT, INIT], False),
    ],
    ids=["orphan of process 1", "orphan of another process", "host lives", "a shell started it", "the host is process 1"],
)
def test_only_a_worker_can_lose_its_host(arguments: list[str], parents: list[int], gone: bool) -> None:
    answers = iter(parents)
    assert ParentWatch(arguments, lambda: next(answers)).host_ended is gone


CHILD = """
import asyncio, sys, time
from shared.app.application import Application
from shared.app.lazy import Lazy
from shared.core.event_loop import StallWatch

class App:
    busy = False
    stalls = StallWatch(time.monotonic)
    async def recover(self): print("opened", flush=True)
    def glance(self): pass
    def leave(self): print("leave", flush=True)
    async def close(self): print("close", flush=True)

async def opened(**given): return App()

async def main():
    Application.open = opened
    await Lazy().first()
    await asyncio.Event().wait()

asyncio.run(main())
"""
PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1], "--workerId", "7"])
"""


def test_real_worker_ends_in_order_when_its_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "opened\n"
        os.kill(parent.pid, signal.SIGKILL)
        # Read up to the end of the pipe, which the orphan closes when it ends.
        assert parent.stdout.read() == "leave\nclose\n"


async def test_app_that_was_closed_before_it_would_open_by_itself_stays_closed(app: PlayedApplication) -> None:
    opened = Lazy(parent=ParentWatch([]))
    opened.open_soon()
    await opened.close()
    # Open timers of the loop would come first.
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert app.calls == []
