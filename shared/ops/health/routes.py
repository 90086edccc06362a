"""The doors of health: probes that need no key and tell no secret."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from pydantic import BaseModel

from ...core.errors import Problem
from ...web.problem import CONTENT_TYPE, document
from ...web.routes import Answer, Call, Content, Routes
from .rules import Verdict
from .service import Health


class App(Protocol):
    """What these doors need of the application."""

    @property
    def health(self) -> Health:
        """The probe."""


class Alive(BaseModel):
    """The process answers."""

    status: Literal["alive"] = "alive"


class TimerState(BaseModel):
    """Seconds since a timer's last tick (null: none seen), and whether that is too long."""

    age_s: float | None
    late: bool


class StorageState(BaseModel):
    """Whether storage answers; where there are several accounts, each by the place of its shards."""

    reachable: bool
    accounts: dict[str, bool] | None = None


class Ready(BaseModel):
    """What readiness is made of. `clock_skew_ms`: own clock minus storage's, whose `Date` has whole seconds."""

    status: Literal["ready", "not-ready"]
    storage: StorageState
    clock_skew_ms: int | None
    timers: dict[str, TimerState]


def view(verdict: Verdict) -> dict[str, Any]:
    """The findings as told, without the status."""
    return {
        "storage": {"reachable": verdict.skew_ms is not None, **({"accounts": dict(verdict.accounts)} if verdict.accounts else {})},
        "clock_skew_ms": verdict.skew_ms,
        "timers": {name: timer._asdict() for name, timer in verdict.timers.items()},
    }


def register(routes: Routes) -> None:
    """Add the probes."""

    @routes.route("GET", "healthz", name="healthz", answers={200: Alive}, summary="The process answers", standalone=True, tag="operations")
    async def healthz(call: Call[None]) -> Answer:
        return Answer(200, b'{"status":"alive"}', {"cache-control": "no-store"})

    @routes.route(
        "GET",
        "readyz",
        name="readyz",
        answers={200: Ready, 503: Content(CONTENT_TYPE)},
        summary="Storage answers, the timers tick, the clock is right",
        description="503 is a problem document with the same members as 200 beside the problem's own.",
        tag="operations",
    )
    async def readyz(call: Call[App]) -> Answer:
        verdict = await call.app.health.check()
        if not verdict.wrong:
            return Answer(200, {"status": "ready", **view(verdict)}, {"cache-control": "no-store"})
        told = Problem(503, "not-ready", "; ".join(verdict.wrong), title="Not ready")
        body = document(told, call.path, view(verdict))
        return Answer(503, body, {"cache-control": "no-store", "retry-after": "5"}, content_type=CONTENT_TYPE)
