"""Short words for tests of the emulated world."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from shared.extras.emulator import rules
from shared.extras.emulator.metadata_service import EVENTS_PATH, ImdsAnswer, ImdsRequest, ask
from shared.extras.emulator.model import ImdsEvent, World
from shared.extras.emulator.scenario import scenario_of, steps_of

START = 1_800_000_000_000
"""A whole second."""
LATEST = "api-version=2020-07-01"
METADATA = {"metadata": "true"}


def at(seconds: float) -> int:
    """Return the instant this many seconds after the start."""
    return START + round(seconds * 1000)


def world(*vms: str | dict[str, Any], steps: Sequence[dict[str, Any]] = (), speed: float = 1.0, seed: str = "seed", **imds: Any) -> World:
    """Return a world of these machines, given by name or in full. imds: settings of the metadata service."""
    given = [{"name": vm} if isinstance(vm, str) else vm for vm in vms or ("n1",)]
    return rules.initial_world(scenario_of({"vms": given, "steps": list(steps), "imds": imds}), START, speed=speed, seed=seed)


def do(world: World, **step: Any) -> World:
    """Return the world after a step, at the same time."""
    return rules.inject_steps(world, steps_of(step))


def pass_to(world: World, seconds: float) -> World:
    """Return the world this many seconds after the start."""
    return rules.tick(world, at(seconds))


def get(
    world: World, vm: str = "n1", query: str = LATEST, headers: Mapping[str, str] = METADATA, path: str = EVENTS_PATH
) -> tuple[World, ImdsAnswer]:
    return ask(world, vm, ImdsRequest("GET", path, query, headers))


def read(world: World, vm: str = "n1", query: str = LATEST) -> tuple[World, dict[str, Any]]:
    """Return the machine's document, where the answer must be a good one."""
    world, answer = get(world, vm, query)
    assert answer.status == 200, answer
    return world, json.loads(answer.body)


def post(world: World, *ids: str, vm: str = "n1", body: bytes | None = None) -> tuple[World, ImdsAnswer]:
    """Approve these ids, or send that body."""
    given = json.dumps({"StartRequests": [{"EventId": each} for each in ids]}).encode() if body is None else body
    return ask(world, vm, ImdsRequest("POST", EVENTS_PATH, LATEST, METADATA, given))


def event(world: World, name: str, index: int = 0) -> ImdsEvent:
    """The event of that name, listed or over."""
    return [each for each in (*world.events, *world.ended) if each.name == name][index]


def kinds(world: World, *wanted: str) -> list[str]:
    """Return the log, only of `kinds` where any are given."""
    return [line.kind for line in world.log if not wanted or line.kind in wanted]


def on(world: World, *vms: str) -> World:
    """Return the world once these machines (all by default) have asked for the first time."""
    for vm in vms or world.vms:
        world, _ = get(world, vm)
    return world
