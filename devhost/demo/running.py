"""Run a demonstration in its own folder until it is over or a signal ends it, and remove everything afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from ..azurite import ROOT, AzuriteError

ENDING: Final = 60.0
"""Seconds that a child may take to end."""
AGAIN: Final = 1.0
"""Seconds in which a second signal counts as the first one: `make` and a terminal both pass theirs on."""


class DemoFailed(Exception):
    """The demonstration cannot go on; the message says why."""


class Child:
    """A module that runs as a separate process and writes to a log. It ends with this process, however that ends."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._process: Process | None = None

    async def start(self, module: str, *arguments: str, environment: Mapping[str, str]) -> None:
        """Start it in its own session, so that Ctrl-C reaches only the demonstration, which ends its parts in order."""
        command = (sys.executable, "-m", "devhost.demo.child", module, *arguments)
        with self.log.open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, env=dict(environment), stdin=PIPE, stdout=output, stderr=STDOUT, start_new_session=True
            )

    @property
    def ended(self) -> bool:
        """True if it was started and has ended."""
        return self._process is not None and self._process.returncode is not None

    def last_words(self) -> str:
        """The last line of its log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"

    async def kill(self) -> None:
        """End it at once, as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """End it, by force when it takes too long."""
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), ENDING)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def run(work: Callable[[Path], Coroutine[Any, Any, object]]) -> int | None:
    """Run `work` with a folder of its own; the exit code, None when a signal ended it.

    It is cancelled on the first signal (Ctrl-C, SIGTERM, a closed terminal); a later one ends everything at once. The folder goes with it,
    unless it fails: then the logs in it stay, and standard error says why.
    """
    folder = Path(tempfile.mkdtemp(prefix="tocsin-demo-"))
    code: int | None = 1
    try:
        code = 0 if asyncio.run(_run_until_signal(work, folder)) else None
        shutil.rmtree(folder)
    except* (DemoFailed, AzuriteError) as errors:
        with contextlib.suppress(OSError):
            # Fails while there are logs in it.
            folder.rmdir()
        _say(f"The demonstration ended: {_first(errors)}{f'. Logs are in {folder}' if folder.exists() else ''}")
    return code


async def _run_until_signal(work: Callable[[Path], Coroutine[Any, Any, object]], folder: Path) -> bool:
    task = asyncio.ensure_future(work(folder))
    signals: list[float] = []

    def end() -> None:
        signals.append(time.monotonic())
        if len(signals) == 1:
            _say("Ending, in some seconds; a second Ctrl-C ends it at once.")
            task.cancel()
        elif signals[-1] - signals[0] > AGAIN:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(130)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, end)
    try:
        await task
    except asyncio.CancelledError:
        if not signals:
            raise
        return False
    return True


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _say(text: str) -> None:
    # The terminal may be gone.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
