"""Agents on a node of Kubernetes, as processes between the emulator and an API server, with the hooks that infra/agent/kubernetes has."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.extras.emulator import Emulator
from tests.kubernetes_api import Call, KubernetesApi
from tests.paths import ROOT
from tests.waiting import DEADLINE

from .agents import Agent, until
from .conftest import MakeAgent
from .test_agent import update

PROGRAM = ROOT / "infra" / "agent" / "kubernetes" / "drain_node.py"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[KubernetesApi]:
    found = KubernetesApi(tmp_path)
    found.begin()
    yield found
    found.end()


def on_kubernetes(make: MakeAgent, api: KubernetesApi, **maintenance: Any) -> Agent:
    """Start an agent with the hooks."""
    kinds = ("prepare", "emergency", "restore", "verify")
    agent = make(hooks={kind: f"{sys.executable} {PROGRAM} {kind} || exit 1" for kind in kinds})
    agent.settings["maintenance"] |= maintenance
    agent.start(environment=api.environment())
    return agent


async def test_node_is_drained_within_its_budgets_before_the_approval_and_uncordoned_after_the_event(
    imds: Emulator, make: MakeAgent, api: KubernetesApi
) -> None:
    api.minimum["web"], api.recreated_after = 2, 0.5
    for number in range(3):
        api.add(f"web-{number}", app="web", lingers=0.5)
    api.add("logs", owner="DaemonSet")
    agent = on_kubernetes(make, api)
    imds.do(update(type="Reboot", duration=-1))
    await imds.until(lambda world: imds.event("update").approved_at is not None)
    assert api.on_node() == ["logs"] and api.lowest["web"] == 2
    assert api.annotations() == {"tocsin/cordoned-for": imds.event("update").shown.id.lower()}
    await imds.until(lambda world: imds.event("update").started_at is not None)
    assert api.is_cordoned()
    imds.do({"complete": "update"})
    await until(lambda: agent.phases() == ["DONE"], "it is over", [agent])
    assert agent.did() == ["prepare", "restore", "verify"]
    assert not api.is_cordoned() and api.annotations() == {}


async def test_preempted_node_is_drained_at_once_with_grace_periods_that_fit(imds: Emulator, make: MakeAgent, api: KubernetesApi) -> None:
    api.add("long", grace=3600)
    agent = on_kubernetes(make, api)
    await until(lambda: agent.said("agent_started"), "it begins", [agent])
    imds.do(update(type="Preempt", duration=-1, notice="PT30S"))
    await imds.until(lambda world: imds.event("update").approved_at is not None)
    [eviction] = api.evictions("long")
    assert 1 <= eviction["deleteOptions"]["gracePeriodSeconds"] <= 28 and agent.did() == ["prepare"]


async def test_hook_and_agent_that_are_killed_in_the_middle_of_a_drain_go_on_with_it(
    imds: Emulator, make: MakeAgent, api: KubernetesApi
) -> None:
    api.minimum["web"], api.recreated_after = 1, 0.2
    for number in range(2):
        api.add(f"web-{number}", app="web")
    held, let_go = threading.Event(), threading.Event()

    def hold(call: Call) -> None:
        if call.right[1] == "pods/eviction":
            held.set()
            assert let_go.wait(DEADLINE)

    api.before = hold
    agent = on_kubernetes(make, api)
    imds.do(update(type="Reboot", duration=-1))
    await until(held.is_set, "an eviction is under way", [agent])
    [note] = (agent.state / "hooks").glob("*.run")
    os.killpg(json.loads(note.read_text())["pid"], signal.SIGKILL)
    await until(lambda: agent.said("agent_prepare_failed"), "the agent notices", [agent])
    assert imds.event("update").approved_at is None and api.is_cordoned()
    held.clear()
    await until(held.is_set, "it is run again", [agent])
    agent.kill()
    api.before = lambda call: None
    let_go.set()
    agent.start(environment=api.environment())
    await imds.until(lambda world: imds.event("update").approved_at is not None)
    assert api.on_node() == [] and api.lowest["web"] == 1
    await imds.until(lambda world: imds.event("update").started_at is not None)
    imds.do({"complete": "update"})
    await until(lambda: not api.is_cordoned(), "the node is put back", [agent])


async def test_node_whose_budgets_refuse_to_the_end_is_not_approved_and_still_put_back(
    imds: Emulator, make: MakeAgent, api: KubernetesApi
) -> None:
    api.minimum["db"] = 1
    api.add("db-0", app="db")
    agent = on_kubernetes(make, api)
    await until(lambda: agent.said("agent_started"), "it begins", [agent])
    imds.do(update(type="Reboot", duration=-1, notice="PT12S"))
    await imds.until(lambda world: imds.event("update").started_at is not None)
    assert imds.event("update").approved_at is None and api.on_node() == ["db-0"]
    imds.do({"complete": "update"})
    await until(lambda: "budget db needs 1 healthy pods" in str(agent.said("agent_hook_output")), "the budget is named", [agent])
    await until(lambda: not api.is_cordoned(), "the node is put back", [agent])
