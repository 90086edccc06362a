"""A server joins, and a partition moves to it: the keepers' own loops on virtual time."""

from __future__ import annotations

from shared.engine.effects import Write
from shared.engine.thread_runner import ThreadRunner
from shared.leases.profiles import PROFILES
from shared.leases.protocol import takeover
from shared.leases.rows import Fleet, MoveLimits, fleet_key
from shared.storage.blocking import MemoryBlockingTables
from shared.storage.ports import Delete, Op, WriteRefused
from tests.simulation.leases.node import Node
from tests.simulation.leases.world import Host, Weather, World

from .drawing import Actor, Scene, Step

KEY = fleet_key("demo", "search")
BEGINS, ENDS = 60.0, 67.0
"""Seconds of virtual time."""
STORE = "TocsinFleets"


def describe(op: Op, writer: str) -> str:
    """Say what an operation does to a row of the fleet."""
    props = {} if isinstance(op, Delete) else op.props
    kind, _, name = op.rk.partition(":")
    if kind == "p":
        number = int(name)
        return f"partition\xa0{number}: " + (f"owner\xa0{props['owner']}, epoch\xa0{props['epoch']}" if props["owner"] else "no\xa0owner")
    if name != writer:
        words = {"take": "take", "drop": "release"}
        orders = [f"{word} partition\xa0{props[prop]}" for prop, word in words.items() if props.get(prop, "") != ""]
        return f"order to {name}: {', '.join(orders)}"
    return f"{'registers, ' if props['beat'] == 1 else ''}heartbeat\xa0{props['beat']}"


def play() -> Scene:
    """Let `a` own both partitions of a fleet, start `b`, and record what both write."""
    world = World("diagram")
    world.weather = Weather(delay=(0.005, 0.02))
    profile = PROFILES["default"]
    fleet = Fleet(2, profile, MoveLimits(drain=profile.validity / 2))
    runner = ThreadRunner(MemoryBlockingTables(world.store), world.time.monotonic, 1.0)
    runner.run(takeover.create_fleet(KEY, fleet))
    nodes = {name: Node(world, KEY, name, Host(world, name), profile) for name in ("a", "b")}
    nodes["a"].start()
    world.run(BEGINS)
    world.trace.clear()
    nodes["b"].start()
    world.run(ENDS)
    names = {name: f"server {name}" for name in nodes}
    steps: list[Step] = []
    for at, who, what, outcome in world.trace:
        since = at - BEGINS
        if isinstance(what, Write):
            refused = isinstance(outcome, WriteRefused)
            text = "; ".join(describe(op, who) for op in what.ops) + (": refused, then it reads its row" if refused else "")
            steps.append(Step(since, names[who], STORE, text, "refused" if refused else "write"))
        else:
            text = {"starts": "starts"}.get(what, f"on_lost({what.removeprefix('lost ')}): {outcome}")
            steps.append(Step(since, names[who], names[who], text, "note"))
    assert nodes["a"].owns(0) and nodes["b"].owns(1)
    actors = (
        Actor(names["a"], "owns partitions 0 and 1"),
        Actor(STORE, "one partition of the table"),
        Actor(names["b"], "joins the fleet"),
    )
    return Scene("A lease hand-off: who writes which row", actors, steps)
