"""Observations of runs, for tests of their judgement."""

from __future__ import annotations

from typing import Any

from shared.cli.deployment.plan import Plan
from shared.cli.deployment.seen import Delivered, Look, Probe, Seen

T0 = 1_800_000_000_000
VERSION = "0.2.0.dev12+g1a2b3c4d"
READY: dict[str, Any] = {
    "status": "ready",
    "version": VERSION,
    "clock_skew_ms": 0,
    "clock": {"state": "good", "low_ms": -3, "high_ms": 4, "correction_ms": 0},
    "timers": {"scheduler_scan": {"age_s": 12.0, "late": False}, "lease_scan": {"age_s": 50.0, "late": False}},
    "clocks": {"timer_age_s": 12.0, "message_age_s": None, "running": "timer"},
    "wakes": {"look_age_s": 9.5},
}


def look(at: float = 0.0, status: int = 200, **changes: Any) -> Look:
    """Return an answer of readyz with some fields changed."""
    return Look(at, T0 / 1000 + at, status, {**READY, **changes})


def clocks(timer: float | None, running: str = "timer") -> dict[str, Any]:
    """Return the state of the two clocks."""
    return {"timer_age_s": timer, "message_age_s": 20.0 if running == "message" else None, "running": running}


def delivered(id: str, late: int = 2, *, inserted: int | None = None, uptime: int | None = 60_000, version: str = VERSION) -> Delivered:
    """Return a delivery that was late by `late` milliseconds."""
    second = (T0 + late) // 1000 * 1000 if inserted is None else inserted
    return Delivered(id, "/tenants/x/channels/check", T0, T0 + late, late, 1, second, uptime, version)


def probe(kind: str, number: int = 0, late: int | None = 2, **given: Any) -> Probe:
    """Return an event that arrived; late None: it did not."""
    id = f"{kind}-{number}"
    return Probe(kind, id, 30, deliveries=[] if late is None else [delivered(id, late, **given)])


COUNTS = {"far": 1, "middle": 1, "batch": Plan().batch, "soon": 1, "now": 3, "background": 4, "idle": 1}


def seen(*, late: dict[str, int | None] | None = None, **changes: Any) -> Seen:
    """Return the observations of a good run. late: lateness of a kind's events; None: they did not arrive."""
    made = Seen(VERSION, VERSION, looks=[look(0), look(70), look(250), look(310)])
    for kind, count in COUNTS.items():
        made.probes += [probe(kind, number, (late or {}).get(kind, 2)) for number in range(count)]
    made.probes.append(probe("cancel", late=None))
    for name, value in changes.items():
        setattr(made, name, value)
    return made
