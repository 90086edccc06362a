"""Shared parts of the commands that run a program: reports on standard error, the program's environment, and signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from ..connections import Connection
from ..exits import SIGNALLED

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def print_report(happened: str, *, as_json: bool, **about: Any) -> None:
    """Print a line on standard error. Standard output belongs to the program."""
    details = ", ".join(f"{name} {value}" for name, value in about.items())
    line = json.dumps({"event": happened, **about}) if as_json else f"tocsin: {happened}{': ' if details else ''}{details}"
    # The reader of standard error may have ended. The work continues.
    with contextlib.suppress(BrokenPipeError):
        print(line, file=sys.stderr, flush=True)


def program_environment(app: Connection, **more: str) -> dict[str, str]:
    """Return the environment of the program, without the key, whichever variable holds it."""
    return {name: value for name, value in os.environ.items() if name != "TOCSIN_KEY" and value != app.key} | more


def _nothing(_: int) -> None:
    """Do nothing about a signal."""


async def run_until_signal(
    work: Coroutine[Any, Any, int],
    report: Callable[[int], None],
    *,
    on_first: Callable[[int], None] = _nothing,
    again: Callable[[int], None] = _nothing,
) -> int:
    """Return the exit code of `work`, or that of the signal that ended it, which is passed to `report`.

    on_first: called with the first signal, before `work` ends. again: called with the exit code at each further signal, while it ends.
    """
    received: list[int] = []
    task = asyncio.current_task()
    assert task is not None

    def end(number: int) -> None:
        if received:
            again(SIGNALLED + number)
            return
        received.append(number)
        on_first(number)
        task.cancel()

    with _signals(end):
        try:
            return await work
        except asyncio.CancelledError:
            if not received:
                raise
            report(received[0])
            return SIGNALLED + received[0]


@contextlib.contextmanager
def _signals(end: Callable[[int], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, end, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
