"""Announced maintenance of a fault domain, for real and as the twin predicts it from the export alone."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.extras.emulator import Emulator, scenario_of
from shared.extras.emulator.model import Happening
from shared.maintenance.agent.timings import LEAD
from shared.whatif.fleet.agents import IMPACT
from shared.whatif.fleet.twin import LISTED, REACTION
from shared.whatif.outcome import quantile
from shared.whatif.play import play
from shared.whatif.snapshot import Snapshot

from ..fleets.real import DOMAINS, FLEET, LOCATIONS, STARTS_WITHIN, Part, RealFleet, call, until
from ..tools.stage import devhost, emulator
from .events import export
from .fleets import LOOK, Owners

NOTICE: Final = 60.0
"""Seconds from the announcement to NotBefore."""
AFTER: Final = 60.0
"""Seconds from NotBefore to the end: impacts are over, and partitions return."""
KNOWN_WITHIN: Final = 25.0
"""Seconds until the app knows all events."""


@dataclass(slots=True)
class RealMaintenance:
    """The export after the announcement, and what was measured: value and unit, by name."""

    snapshot: Snapshot
    measured: dict[str, tuple[float, str]]


async def real(nodes: int) -> RealMaintenance:
    """Run the fleet through the maintenance of fault domain 0. Raises TimeoutError if it does not start."""
    part = Part(nodes=nodes, notice=NOTICE)
    vms = [
        {
            "name": f"n{number:03d}",
            "scope": f"region-{number % LOCATIONS}",
            "location": f"region-{number % LOCATIONS}",
            "fault_domain": number // LOCATIONS % DOMAINS,
        }
        for number in range(nodes)
    ]
    async with AsyncExitStack() as stack:
        azurite = stack.enter_context(emulator())
        host = await stack.enter_async_context(devhost(azurite.connection_string))
        imds = await stack.enter_async_context(Emulator(scenario_of({"vms": vms, "imds": {"rate": 1000}})))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        await call(host, "PUT", f"fleets/{FLEET}", {"partitions": part.partitions, "servers": {"minimum": nodes // 2}})
        fleet = RealFleet(part, azurite.connection_string, folder)
        stack.push_async_callback(asyncio.to_thread, fleet.end)
        owners = Owners(part.partitions, fleet.keepers)

        def freeze(happening: Happening) -> None:
            if happening.kind == "impact-began":
                fleet.freeze(happening.vm)

        imds.listen(freeze)
        for number in range(nodes):
            fleet.start(number, imds.url(f"n{number:03d}"), host.url)
            await asyncio.sleep(0.05)
        await until(fleet.settled, STARTS_WITHIN, "the partitions are shared out, and all agents have reported")
        names = [f"e{number:03d}" for number in part.hit]
        for number in part.hit:
            reaction = random.Random(f"{part.seed}/{number}").uniform(*REACTION)
            event = {"name": f"e{number:03d}", "vms": [f"n{number:03d}"], "duration": round(IMPACT), "notice": f"PT{NOTICE:g}S"}
            imds.do({"event": event | {"delay": f"PT{reaction:.1f}S", "impact": f"PT{IMPACT:g}S", "settles": f"PT{LISTED:g}S"}})
        known = time.monotonic() + KNOWN_WITHIN
        while len((await call(host, "GET", f"fleets/{FLEET}/maintenance/events"))["items"]) < len(names):
            if time.monotonic() > known:
                raise TimeoutError(f"the app does not know all events after {KNOWN_WITHIN:.0f} s")
            await asyncio.sleep(0.5)
        begin = time.time()
        snapshot = await asyncio.to_thread(export, host, round(begin * 1000), round((begin + NOTICE + AFTER) * 1000))
        owners.measures = True

        while time.time() < begin + NOTICE + AFTER:
            owners.look()
            await asyncio.sleep(LOOK)
        owners.end()
        shown = [imds.event(name) for name in names]
        approved = sorted((each.approved_at - each.shown.not_before) / 1000 + LEAD for each in shown if each.approved_at is not None)
    return RealMaintenance(snapshot, _named(approved, len(names) - len(approved), owners.moves, owners.longest))


def predict(real: RealMaintenance) -> dict[str, float]:
    """Return what the twin says of the same maintenance, which the export has announced."""
    found = play(real.snapshot).fleets[FLEET]
    named = _named(found.approved, found.unapproved, found.moves, found.longest_unowned)
    return {name: value for name, (value, _) in named.items()}


def _named(approved: list[float], unapproved: int, moves: int, longest: float) -> dict[str, tuple[float, str]]:
    return {
        "approval p50": (quantile(approved, 0.5), "s"),
        "last approval": (quantile(approved, 1.0), "s"),
        "nodes without an approval": (unapproved, ""),
        "moves": (moves, ""),
        "longest without an owner": (longest, "s"),
    }
