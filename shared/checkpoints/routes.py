"""The doors of turns: routes of api.md, "Checkpoints"."""

from __future__ import annotations

from typing import Any, Protocol

from ..web.auth import bound_to
from ..web.fields.params import Paging
from ..web.fields.types import Name, NodeName
from ..web.paging.pages import after, page
from ..web.problem import not_found
from ..web.routes import Answer, Call, Routes
from .model import ForgetIn, LatestOut, PublishAnswer, PublishIn, RevokeAnswer, RevokeIn, TurnList, TurnReportAnswer, TurnReportIn
from .rows import MAX_EPOCH
from .service.service import CheckpointService

_FLEET = {"fleet": Name}
_FIRST = {
    "seq": 1,
    "role": "secondary",
    "term": 7,
    "applied": 80110,
    "last_checkpoint": 0,
    "taking": None,
    "mono_ms": 118456,
}
_LATER = {
    "seq": 12,
    "role": "secondary",
    "term": 7,
    "applied": 81231,
    "lag": 3,
    "load": 0.3,
    "failures": 0,
    "last_checkpoint": 80000,
    "taking": {"epoch": 4},
    "mono_ms": 173456,
}
_PUBLISH = {"node": "s9", "sequence": 81231, "location": "https://account.blob.core.windows.net/backups/81231.codex", "bytes": 52428800}


class App(Protocol):
    """What these doors need of the application."""

    @property
    def checkpoints(self) -> CheckpointService:
        """Turns."""


def register(routes: Routes) -> None:
    """Add the routes of turns."""
    _replicas(routes)
    _views(routes)


def _epoch(call: Call[App, Any, Any]) -> int:
    text = call.params["epoch"]
    # A negative number is an int to the host.
    if not text.isdecimal() or not 0 < int(text) <= MAX_EPOCH:
        raise not_found("turn")
    return int(text)


def _replicas(routes: Routes) -> None:
    @routes.route(
        "POST",
        "v1/fleets/{fleet}/replicas/{node}/report",
        name="turns_report",
        scope=("fleets", "agent"),
        params={"fleet": Name, "node": NodeName},
        body=TurnReportIn,
        answers={200: TurnReportAnswer, 409: ("unknown-replica", "stale-seq", "stale-term", "term-conflict", "too-many-replicas")},
        summary="A replica's report; its answer may bring a turn",
        description="seq 1 registers the replica's process. A turn may be begun only on the answer to the latest report, and is over when "
        "limit_ms have passed since the SEND of that report. The same seq again is answered from what is stored.",
        tag="checkpoints",
        examples={"first": _FIRST, "taking": _LATER},
    )
    async def report(call: Call[App, TurnReportIn]) -> Answer:
        fleet, node = call.params["fleet"], call.params["node"]
        bound_to(call.key, fleet, node)
        return Answer(200, await call.app.checkpoints.report(call.tenant, fleet, node, call.body))

    @routes.route(
        "POST",
        "v1/fleets/{fleet}/turns/{epoch:int}/publish",
        name="turns_publish",
        scope=("fleets", "agent"),
        params=_FLEET,
        body=PublishIn,
        answers={200: PublishAnswer, 409: ("late", "not-holder")},
        summary="Publish the checkpoint of a turn, which is done with that",
        description="409 late: the turn is over, and nothing counts. Safe to repeat.",
        tag="checkpoints",
        examples={"one": _PUBLISH},
    )
    async def publish(call: Call[App, PublishIn]) -> Answer:
        fleet = call.params["fleet"]
        bound_to(call.key, fleet, call.body.node)
        return Answer(200, {"latest": await call.app.checkpoints.publish(call.tenant, fleet, _epoch(call), call.body)})

    @routes.route(
        "POST",
        "v1/fleets/{fleet}/turns/{epoch:int}/revoke",
        name="turns_revoke",
        scope="fleets",
        params=_FLEET,
        body=RevokeIn,
        answers={202: RevokeAnswer, 409: ("already-ended",)},
        summary="Take a turn back",
        description="Nothing can be published for it from here on. The next turn waits until the holder reports that it takes nothing, or "
        "this one's time is over. Safe to repeat.",
        tag="checkpoints",
        examples={"one": {"note": "its disk is full"}},
    )
    async def revoke(call: Call[App, RevokeIn]) -> Answer:
        waits = await call.app.checkpoints.revoke(call.tenant, call.params["fleet"], _epoch(call), call.body.note, call.key.prefix)
        return Answer(202, {"free_after_ms": waits})

    @routes.route(
        "POST",
        "v1/fleets/{fleet}/primary/forget",
        name="turns_forget_claim",
        scope="fleets",
        params=_FLEET,
        body=ForgetIn,
        answers={204: None},
        summary="Forget the highest claim to be primary",
        description="For a claim of a term by mistake, which makes all later ones stale: put the replica that claimed it right first. The "
        "next claim counts, of whichever term; no turn is freed by this, and no replica that says it is primary gets one. Safe to repeat.",
        tag="checkpoints",
        examples={"one": {"note": "b was started with the term of a test"}},
    )
    async def forget_claim(call: Call[App, ForgetIn]) -> Answer:
        await call.app.checkpoints.forget_claim(call.tenant, call.params["fleet"], call.body.note, call.key.prefix)
        return Answer(204)


def _views(routes: Routes) -> None:
    @routes.route(
        "GET",
        "v1/fleets/{fleet}/turns",
        name="turns_list",
        scope="fleets",
        params=_FLEET,
        query=Paging,
        answers={200: TurnList},
        summary="Turns, newest first",
        tag="checkpoints",
    )
    async def list_(call: Call[App, None, Paging]) -> Answer:
        fleet, kind = call.params["fleet"], f"turns:{call.params['fleet']}"
        before = after(call, kind, int, 0) or None
        return page(kind, *await call.app.checkpoints.turns(call.tenant, fleet, call.query.limit, before))

    @routes.route(
        "GET",
        "v1/fleets/{fleet}/checkpoints/latest",
        name="checkpoints_latest",
        scope="fleets",
        params=_FLEET,
        answers={200: LatestOut},
        summary="The published checkpoint with the highest sequence",
        tag="checkpoints",
    )
    async def latest(call: Call[App]) -> Answer:
        return Answer(200, await call.app.checkpoints.latest(call.tenant, call.params["fleet"]))
