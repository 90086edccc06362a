"""Routes of health: probes that need no key and show no secret."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from ...core.errors import Problem
from ...web.problem import CONTENT_TYPE, document
from ...web.routes import Answer, Call, Content, RouteGroup
from .rules import Readiness
from .service import HealthProbe

probes = RouteGroup[None]("operations", standalone=True)
readiness = RouteGroup[HealthProbe]("operations")


class Alive(BaseModel):
    """The process answers."""

    status: Literal["alive"] = "alive"


class TimerState(BaseModel):
    """The age of a timer's last tick in seconds (null: no tick is stored). `late`: true if it is too old."""

    age_s: float | None
    late: bool


class StorageState(BaseModel):
    """`reachable`: true if storage answers. `accounts`: the same for each of several accounts, by the place of its shards."""

    reachable: bool
    accounts: dict[str, bool] | None = None


class Ready(BaseModel):
    """The parts of readiness. `clock_skew_ms`: the app's clock minus the clock of storage, whose `Date` has whole seconds."""

    status: Literal["ready", "not-ready"]
    storage: StorageState
    clock_skew_ms: int | None
    timers: dict[str, TimerState]


def view(verdict: Readiness) -> dict[str, Any]:
    """Return the findings as the API shows them, without the status."""
    return {
        "storage": {"reachable": verdict.skew_ms is not None, **({"accounts": dict(verdict.accounts)} if verdict.accounts else {})},
        "clock_skew_ms": verdict.skew_ms,
        "timers": {name: timer._asdict() for name, timer in verdict.timers.items()},
    }


@probes.get("healthz", answers={200: Alive})
async def healthz(call: Call[None]) -> Answer:
    """Answer while the process lives."""
    return Answer(200, b'{"status":"alive"}', {"cache-control": "no-store"})


@readiness.get("readyz", answers={200: Ready, 503: Content(CONTENT_TYPE)})
async def readyz(call: Call[HealthProbe]) -> Answer:
    """Check that storage answers, the timers tick and the clock is right.

    503 is a problem document that also has the members of 200.
    """
    verdict = await call.service.check()
    if not verdict.wrong:
        return Answer(200, {"status": "ready", **view(verdict)}, {"cache-control": "no-store"})
    found = Problem(503, "not-ready", " ".join(verdict.wrong), title="Not ready")
    body = document(found, call.path, view(verdict))
    return Answer(503, body, {"cache-control": "no-store", "retry-after": "5"}, content_type=CONTENT_TYPE)
