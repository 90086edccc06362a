"""`tocsin imds-emulator`, without its command line: plays a scenario until it is told to end, and shows what happens."""

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

LINGER = 60.0
"""Seconds, at most, that machines get to read how it ended."""
_REFRESH = 0.5
"""Seconds between two pictures of the table."""


@dataclass(frozen=True, slots=True)
class Play:
    """What to play and how. speed: 0 is a clock that only the control API moves. ends: leave when nothing more is to come."""

    scenario: Scenario
    speed: float = 1.0
    host: str = "127.0.0.1"
    port: int = 0
    control_port: int = 0
    json: bool = False
    ends: bool = False


def over(world: World) -> bool:
    """Whether nothing more will happen by itself: no step to come, no event listed, no machine away."""
    return not world.planned and not world.events and not world.impacts


def heard(world: World) -> bool:
    """Whether every machine that asks has read its newest document."""
    return all(vm.read == vm.incarnation for vm in world.vms.values() if vm.on_at is not None)


def play(plan: Play, out: TextIO | None = None) -> None:
    """Play until SIGINT or SIGTERM, or until the scenario is over where the plan says so. Raises `PortTaken`."""
    asyncio.run(_play(plan, sys.stdout if out is None else out))


async def _play(plan: Play, out: TextIO) -> None:
    clock: Clock = SettableClock(time.time_ns() // 1_000_000) if plan.speed == 0 else SystemClock()
    told = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, told.set)
    emulator = Emulator(plan.scenario, clock=clock, speed=plan.speed or 1.0, host=plan.host, port=plan.port, control_port=plan.control_port)
    async with emulator:
        if plan.json:
            _say(out, json.dumps({"kind": "ready", "control": emulator.control_url, "vms": emulator.urls}))
            emulator.listen(lambda happening: _say(out, json.dumps(views.happening_out(happening))))
        elif not out.isatty():
            for name, url in emulator.urls.items():
                _say(out, f"{name}: {url}")
            _say(out, f"control: {emulator.control_url}")
            emulator.listen(lambda happening: _say(out, line(happening)))
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(told.wait())]
        if plan.ends:
            waits.append(asyncio.ensure_future(_over(emulator)))
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


async def _over(emulator: Emulator) -> None:
    while not over(emulator.world):
        await emulator.news(emulator.world.happened, _REFRESH)
    # Who was prepared has to see that the last event is gone.
    with suppress(TimeoutError):
        await emulator.until(heard, LINGER)


async def _show(emulator: Emulator, out: TextIO) -> None:
    console = Console(file=out)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            picture = screen(emulator.world, emulator.urls, emulator.control_url, emulator.history, console.height)
            live.update(picture, refresh=True)
            await asyncio.sleep(_REFRESH)


def _say(out: TextIO, text: str) -> None:
    print(text, file=out, flush=True)
