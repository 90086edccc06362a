"""Agents and the emulator they look at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from shared.extras.emulator import Emulator, scenario_of

from .agents import Agent, drained

type MakeAgent = Callable[..., Agent]


@pytest.fixture
async def imds() -> AsyncIterator[Emulator]:
    """A service of two machines on different hosts."""
    scenario = {"vms": [{"name": "n1"}, {"name": "n2", "host": "h2", "fault_domain": 1}], "imds": {"rate": 1000}}
    async with Emulator(scenario_of(scenario)) as emulator:
        yield emulator


@pytest.fixture
async def make(imds: Emulator, tmp_path: Path) -> AsyncIterator[MakeAgent]:
    made: list[Agent] = []

    def make_one(name: str = "n1", **more: Any) -> Agent:
        made.append(Agent(tmp_path / name, imds.url(name), name=name, **more))
        return made[-1]

    yield make_one
    for agent in made:
        agent.close()
    await drained()
