"""Run `tocsin imds-emulator`: play a scenario until a signal or its end, and show what happens."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live

from ...core.clock import Clock, SettableClock, SystemClock
from . import views
from .model import World
from .scenario import Scenario
from .screen import line, screen
from .service import Emulator

FINAL_READ_TIMEOUT = 60.0
"""Longest time, in seconds, that machines get to read the last document after the scenario is over."""
_REFRESH = 0.5
"""Seconds between two refreshes of the table."""


@dataclass(frozen=True, slots=True)
class PlayOptions:
    """The options of the command. speed: with 0, only the control API moves the clock. ends: exit when the scenario is over."""

    scenario: Scenario
    speed: float = 1.0
    host: str = "127.0.0.1"
    port: int = 0
    control_port: int = 0
    json: bool = False
    ends: bool = False


def is_over(world: World) -> bool:
    """Return True if nothing more will happen with time: no step is left, no event is listed, no machine is away."""
    return not world.planned and not world.events and not world.impacts


def is_read_by_all(world: World) -> bool:
    """Return True if every machine whose service is on has read its newest document."""
    return all(vm.read == vm.incarnation for vm in world.vms.values() if vm.on_at is not None)


def play(plan: PlayOptions, out: TextIO | None = None) -> None:
    """Play until SIGINT or SIGTERM, or with `ends` until the scenario is over. Raises `PortTaken`."""
    asyncio.run(_play(plan, sys.stdout if out is None else out))


async def _play(plan: PlayOptions, out: TextIO) -> None:
    clock: Clock = SettableClock(time.time_ns() // 1_000_000) if plan.speed == 0 else SystemClock()
    signalled = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, signalled.set)
    emulator = Emulator(plan.scenario, clock=clock, speed=plan.speed or 1.0, host=plan.host, port=plan.port, control_port=plan.control_port)
    async with emulator:
        if plan.json:
            _print_line(out, json.dumps({"kind": "ready", "control": emulator.control_url, "vms": emulator.urls}))
            emulator.listen(lambda happening: _print_line(out, json.dumps(views.happening_document(happening))))
        elif not out.isatty():
            for name, url in emulator.urls.items():
                _print_line(out, f"{name}: {url}")
            _print_line(out, f"control: {emulator.control_url}")
            emulator.listen(lambda happening: _print_line(out, line(happening)))
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(signalled.wait())]
        if plan.ends:
            waits.append(asyncio.ensure_future(_wait_until_over(emulator)))
        if out.isatty() and not plan.json:
            waits.append(asyncio.ensure_future(_show(emulator, out)))
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                wait.result()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


async def _wait_until_over(emulator: Emulator) -> None:
    while not is_over(emulator.world):
        await emulator.news(emulator.world.happened, _REFRESH)
    # Agents that prepared must see that the last event is gone.
    with suppress(TimeoutError):
        await emulator.until(is_read_by_all, FINAL_READ_TIMEOUT)


async def _show(emulator: Emulator, out: TextIO) -> None:
    console = Console(file=out)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            picture = screen(emulator.world, emulator.urls, emulator.control_url, emulator.history, console.height)
            live.update(picture, refresh=True)
            await asyncio.sleep(_REFRESH)


def _print_line(out: TextIO, text: str) -> None:
    print(text, file=out, flush=True)
