"""Agents that are killed at every point of their way, and started again as their keeper would: nothing is approved unprepared, and every
node comes back."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from shared.extras.emulator import Emulator, scenario_of
from shared.extras.emulator.model import Happening

from .agents import Agent, drained, until

PHASES = ("WAITING", "PREPARING", "PREPARED", "INTENT", "APPROVED", "STARTED", "RESTORING", "DONE")
JOURNAL = [f"{when} {phase}" for phase in PHASES for when in ("before", "after")]
HOOKS = ("prepare", "restore", "verify")
FEW = ["after WAITING", "before PREPARED", "after INTENT", "before APPROVED", "after RESTORING", "prepare", "restore"]
SUICIDE = "[ -e {mark} ] || {{ touch {mark}; echo $$ > {mark}; kill -9 $PPID; sleep 1000; }}"
MODULE = "tests.integration.maintenance.crashing"


async def keep(agents: dict[str, Agent], ends: dict[str, list[int]]) -> None:
    """Start agents again whenever they have ended, as systemd does; without their crash."""
    while True:
        for name, agent in agents.items():
            if not agent.runs:
                ends[name].append(agent.ended())
                agent.start()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("chosen", [FEW, pytest.param([*JOURNAL, *HOOKS], marks=pytest.mark.long)], ids=["few", "all"])
async def test_agents_killed_at_any_point_never_approve_unprepared_and_bring_their_nodes_back(tmp_path: Path, chosen: list[str]) -> None:
    points = {f"n{number}": point for number, point in enumerate(chosen)}
    scenario = {"vms": [{"name": name, "host": f"h-{name}", "scope": name} for name in points], "imds": {"rate": 1000}}
    async with Emulator(scenario_of(scenario)) as imds:
        agents = {name: _agent(tmp_path / name, imds, name, point) for name, point in points.items()}
        ends: dict[str, list[int]] = {name: [] for name in points}
        unprepared: list[str] = []

        def heard(line: Happening) -> None:
            if line.kind == "approved" and line.vm is not None and "prepare" not in agents[line.vm].did():
                unprepared.append(line.vm)

        imds.listen(heard)
        for name, agent in agents.items():
            agent.start(environment={"CRASH": points[name]})
        keeper = asyncio.create_task(keep(agents, ends))
        try:
            for name in points:
                event = {"name": name, "vms": [name], "type": "Freeze", "duration": 9, "notice": "PT1H", "others": "never"}
                imds.do({"event": event})
            for name, agent in agents.items():
                await until(lambda agent=agent: agent.phases() == ["WAITING"], f"{name} waits", [agent])  # type: ignore[misc]
                imds.do({"change": {"event": name, "notice": "PT20M"}})
            for name, agent in agents.items():
                # It begins only now. Otherwise a document could show it before the agent has saved its approval.
                await until(lambda agent=agent: agent.phases() == ["APPROVED"], f"{name} has approved", [agent])  # type: ignore[misc]
                imds.do({"start": name})
            for name, agent in agents.items():
                await until(lambda agent=agent: agent.phases() == ["STARTED"], f"{name} knows", [agent])  # type: ignore[misc]
                imds.do({"complete": name})
            for name, agent in agents.items():
                kept = agent.kept
                await until(lambda agent=agent: agent.phases() == ["DONE"], f"{name} is over", [agent])  # type: ignore[misc]
                await until(lambda kept=kept: not kept()["disabled"], f"{name} is back", [agent])  # type: ignore[misc]
                await until(lambda name=name: ends[name], f"{name} was killed", [agent])  # type: ignore[misc]
        finally:
            keeper.cancel()
            for agent in agents.values():
                agent.close()
            await drained()
    assert unprepared == []
    for name, agent in agents.items():
        about = (points[name], agent.did())
        assert ends[name][0] == -signal.SIGKILL and -signal.SIGKILL not in ends[name][1:], about
        # A hook whose end was not saved runs again; none is left out.
        assert agent.did()[0] == "prepare" and agent.did()[-1] == "verify" and "restore" in agent.did(), about
        assert not (agent.state / "disabled").exists(), about
        assert list((agent.state / "hooks").iterdir()) == [], about
    for name, kind in ((name, point) for name, point in points.items() if point in HOOKS):
        [line] = agents[name].said("agent_leftover_ended")
        assert f"hook {kind} " in line["text"]


def _agent(folder: Path, imds: Emulator, name: str, point: str) -> Agent:
    script = SUICIDE.format(mark=folder / "mark")
    return Agent(folder, imds.url(name), name=name, module=MODULE, hooks={point: script} if point in HOOKS else {})
