"""A process imports beside its work what it may need later, in short steps."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from shared.app import lazy, warming
from shared.app.application import Application
from shared.app.lazy import Lazy
from shared.app.parent_watch import ParentWatch
from tests.paths import ROOT
from tests.waiting import eventually

from .test_lazy_process_life import PlayedApplication

_CHILD = """
import asyncio, sys
import function_app
from shared.app.application import build
from shared.app.ports import Ports
from shared.app.warming import warm
from shared.core.clock import SystemClock
from shared.core.ids import SystemIds
from shared.core.settings import GivenSettings
from shared.storage import memory_storage

async def use():
    clock = SystemClock()
    settings = GivenSettings(storage="UseDevelopmentStorage=true", admin_key="a" * 32, signing_key="b" * 32)
    app = build(settings, Ports(memory_storage(clock), clock, SystemIds(), {}))
    if sys.argv[1:] == ["warm"]:
        await warm(lambda seconds: asyncio.sleep(0))
    before = set(sys.modules)
    scheduler = app.scheduler
    used = scheduler.callbacks, scheduler.ingest, scheduler.intake, scheduler.recurring, scheduler.limit_notices, scheduler._owners
    print(*sorted(name for name in set(sys.modules) - before if name.startswith("shared.")))

asyncio.run(use())
"""


def _imported_late(*arguments: str) -> list[str]:
    ran = subprocess.run([sys.executable, "-c", _CHILD, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def test_a_warm_process_imports_nothing_more_to_accept_events_and_to_serve_fleets_schedules_and_callbacks() -> None:
    assert _imported_late("warm") == []
    assert len(_imported_late()) > 20


async def test_an_opened_process_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[float] = []
    names: list[str] = []
    monkeypatch.setattr(warming, "importlib", SimpleNamespace(import_module=names.append))
    monkeypatch.setattr(warming, "LATER", ("app.warming", "not.imported", "not.this"))

    async def opened(**given: object) -> PlayedApplication:
        return PlayedApplication()

    async def warm() -> None:
        async def noted(seconds: float) -> None:
            steps.append(seconds)

        await warming.warm(noted)

    monkeypatch.setattr(Application, "open", opened)
    monkeypatch.setattr(lazy, "warm", warm)
    opening = Lazy(parent=ParentWatch([]))
    await opening._opened()
    await eventually(lambda: len(steps) == 3, "all steps")
    assert steps == [warming.BEGIN_AFTER, warming.PAUSE, warming.PAUSE]
    assert names == ["shared.not.imported", "shared.not.this"]
    await opening.close()


async def test_a_process_rests_after_a_step_for_twice_as_long_as_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[float] = []
    now = 0.0

    def importing(name: str) -> None:
        nonlocal now
        now += 0.095 if name == "shared.not.short" else 0.001

    async def noted(seconds: float) -> None:
        steps.append(round(seconds, 6))

    monkeypatch.setattr(warming, "importlib", SimpleNamespace(import_module=importing))
    names = ("not.imported", "app.warming", "not.short")
    await warming.import_in_steps(names, sleep=noted, steady=lambda: now)
    await warming.import_in_steps(names, 0.05, noted, lambda: now)
    assert steps == [0.002, 0.19, 0.05, 0.19]
