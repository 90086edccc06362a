"""Routes of health: probes that need no key and show no secret."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import BaseModel

from ...core.errors import Problem
from ...core.version import version
from ...web.problem import CONTENT_TYPE, document
from ...web.routes import Answer, Call, Content, RouteGroup
from .rules import NOT_BEGUN, Readiness
from .service import HealthProbe

probes = RouteGroup[None]("operations", standalone=True)
readiness = RouteGroup[HealthProbe]("operations")


class Alive(BaseModel):
    """The process answers."""

    status: Literal["alive"] = "alive"


class TimerState(BaseModel):
    """Seconds since the last run of a job of the sweep (null: no run is stored). `late`: true if it is too long ago."""

    age_s: float | None
    late: bool


class StorageState(BaseModel):
    """`reachable`: true if storage answers; false too in a process that has not begun to serve. `accounts`: true for each of several
    accounts that answers, by the place of its shards."""

    reachable: bool
    accounts: dict[str, bool] | None = None


class ClockView(BaseModel):
    """The clock of the answering process. `low_ms` and `high_ms`: bounds of its time minus storage's, in milliseconds, from the writes of
    this process; null before its first write. `correction_ms`: subtracted before due times are compared.

    `state`: `good` (the bounds contain 0), `wrong` (they do not, and the time is corrected), `wide` (over 2,000 ms apart: nothing is
    corrected) or `missing`.
    """

    state: Literal["good", "wrong", "wide", "missing"]
    low_ms: int | None
    high_ms: int | None
    correction_ms: int


class ClocksView(BaseModel):
    """The two clocks of the sweep. `timer_age_s`: seconds since the timer began a sweep; `message_age_s`: since one began that a message
    asked for, because the timer had stopped; null for never. `running`: the clock by which sweeps come now, `none` if both are old."""

    timer_age_s: float | None
    message_age_s: float | None
    running: Literal["timer", "message", "none"]


class WakesView(BaseModel):
    """`look_age_s`: seconds since a sweep or a planned wake last looked for coming events; null for never."""

    look_age_s: float | None


class Ready(BaseModel):
    """The parts of readiness. `version`: the version of the app's code, such as `0.2.0.dev12+g1a2b3c4d`. `clock_skew_ms`: the least
    difference between the app's clock and storage's that is proven, positive where the app's clock is ahead; 0 where the clock may be
    exact, null before the first write of the answering process. `wakes`: null if they are off."""

    status: Literal["ready", "not-ready"]
    version: str
    storage: StorageState
    clock_skew_ms: int | None
    clock: ClockView | None = None
    timers: dict[str, TimerState]
    clocks: ClocksView | None = None
    wakes: WakesView | None = None


def view(verdict: Readiness) -> dict[str, Any]:
    """Return the findings as the API shows them, without status and version."""
    clock = verdict.clock
    return {
        "storage": {"reachable": verdict.reachable, **({"accounts": dict(verdict.accounts)} if verdict.accounts else {})},
        "clock_skew_ms": clock.proven_ms,
        "clock": {
            "state": clock.state,
            "low_ms": None if clock.offset is None else math.floor(clock.offset.low),
            "high_ms": None if clock.offset is None else math.ceil(clock.offset.high),
            "correction_ms": clock.correction,
        },
        "timers": {name: timer._asdict() for name, timer in verdict.timers.items()},
        "clocks": verdict.clocks._asdict() if verdict.clocks is not None else None,
        "wakes": verdict.wakes._asdict() if verdict.wakes is not None else None,
    }


@probes.get("healthz", answers={200: Alive})
async def healthz(call: Call[None]) -> Answer:
    """Answer while the process lives."""
    return Answer(200, Alive(), {"cache-control": "no-store"})


def _refusal(verdict: Readiness, wrong: list[str], path: str) -> Answer:
    code = "newer-stored-forms" if verdict.newer else "not-ready"
    found = Problem(503, code, " ".join(wrong), title="Not ready")
    body = document(found, path, {"version": version(), **view(verdict)})
    return Answer(503, body, {"cache-control": "no-store", "retry-after": "5"}, content_type=CONTENT_TYPE)


def _unserved(found: Problem, path: str) -> Answer:
    """Answer in a process that has not begun to serve, because of its storage or of its settings."""
    return _refusal(NOT_BEGUN, NOT_BEGUN.wrong if found.code == "storage-unavailable" else [found.detail], path)


@readiness.get("readyz", answers={200: Ready, 503: Content(CONTENT_TYPE)}, unserved=_unserved)
async def readyz(call: Call[HealthProbe]) -> Answer:
    """Check that storage answers, the jobs of the sweep run and the clock is right.

    503 is a problem document that also has the members of 200. Its type is `newer-stored-forms` if storage has the stored forms of a newer
    version, and otherwise `not-ready`.
    """
    verdict = await call.service.check()
    if verdict.wrong:
        return _refusal(verdict, verdict.wrong, call.path)
    return Answer(200, {"status": "ready", "version": version(), **view(verdict)}, {"cache-control": "no-store"})
