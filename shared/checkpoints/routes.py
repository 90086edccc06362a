"""Routes of checkpoints: replicas report and publish, people look and intervene."""

from __future__ import annotations

from typing import Any

from ..web.auth import bound_to
from ..web.fields.params import Paging
from ..web.fields.types import Name, NodeName
from ..web.paging import after, page
from ..web.problem import not_found
from ..web.routes import Answer, Call, RouteGroup
from .model import ForgetIn, LatestOut, PublishAnswer, PublishIn, RevokeAnswer, RevokeIn, TurnList, TurnReportAnswer, TurnReportIn
from .rows import MAX_EPOCH
from .service.service import CheckpointService

_FIRST = {"seq": 1, "role": "secondary", "term": 7, "applied": 80110, "last_checkpoint": 0, "taking": None, "mono_ms": 118456}
_TAKING = {
    **_FIRST,
    "seq": 12,
    "applied": 81231,
    "lag": 3,
    "load": 0.3,
    "failures": 0,
    "last_checkpoint": 80000,
    "taking": {"epoch": 4},
    "mono_ms": 173456,
}
_PUBLISH = {"node": "s9", "sequence": 81231, "location": "https://account.blob.core.windows.net/backups/81231.codex", "bytes": 52428800}

checkpoints = RouteGroup[CheckpointService]("checkpoints", scope="fleets", params={"fleet": Name, "node": NodeName})


def _epoch(call: Call[Any, Any, Any]) -> int:
    text = call.params["epoch"]
    # The host's constraint `int` accepts a negative number.
    if not text.isdecimal() or not 0 < int(text) <= MAX_EPOCH:
        raise not_found("turn")
    return int(text)


@checkpoints.post(
    "v1/fleets/{fleet}/replicas/{node}/report",
    scope=("fleets", "agent"),
    answers={200: TurnReportAnswer, 409: ("unknown-replica", "stale-seq", "stale-term", "term-conflict", "too-many-replicas")},
    examples={"first": _FIRST, "taking": _TAKING},
)
async def turns_report(call: Call[CheckpointService, TurnReportIn]) -> Answer:
    """Record a replica's report; the answer may grant a turn.

    seq 1 registers the replica's process. A replica may begin a turn only on the answer to its latest report. The turn is over when
    limit_ms have passed since that report was SENT. A repeated seq gets the stored answer again.
    """
    fleet, node = call.params["fleet"], call.params["node"]
    bound_to(call.key, fleet, node)
    return Answer(200, await call.service.report(call.tenant, fleet, node, call.body))


@checkpoints.post(
    "v1/fleets/{fleet}/turns/{epoch:int}/publish",
    scope=("fleets", "agent"),
    answers={200: PublishAnswer, 409: ("late", "not-holder")},
    examples={"one": _PUBLISH},
)
async def turns_publish(call: Call[CheckpointService, PublishIn]) -> Answer:
    """Publish the checkpoint of a turn, and end the turn.

    409 late: the turn is over, and its checkpoint does not count. The call is safe to repeat.
    """
    fleet = call.params["fleet"]
    bound_to(call.key, fleet, call.body.node)
    return Answer(200, {"latest": await call.service.publish(call.tenant, fleet, _epoch(call), call.body)})


@checkpoints.post(
    "v1/fleets/{fleet}/turns/{epoch:int}/revoke",
    answers={202: RevokeAnswer, 409: ("already-ended",)},
    examples={"one": {"note": "its disk is full"}},
)
async def turns_revoke(call: Call[CheckpointService, RevokeIn]) -> Answer:
    """Revoke a turn.

    From then on nothing can be published for it. The next turn starts when the holder reports that it takes no checkpoint, or when the time
    of this turn is over. The call is safe to repeat.
    """
    waits = await call.service.revoke(call.tenant, call.params["fleet"], _epoch(call), call.body.note, call.key.prefix)
    return Answer(202, {"free_after_ms": waits})


@checkpoints.post(
    "v1/fleets/{fleet}/primary/forget", answers={204: None}, examples={"one": {"note": "b was started with the term of a test"}}
)
async def turns_forget_claim(call: Call[CheckpointService, ForgetIn]) -> Answer:
    """Forget the highest claim to be primary.

    Use this after a replica has claimed a wrong, too high term, which makes every later claim stale. Correct that replica first. The next
    claim counts, whatever its term is. No turn is freed, and a replica that reports to be primary gets no turn. The call is safe to repeat.
    """
    await call.service.forget_claim(call.tenant, call.params["fleet"], call.body.note, call.key.prefix)
    return Answer(204)


@checkpoints.get("v1/fleets/{fleet}/turns", answers={200: TurnList})
async def turns_list(call: Call[CheckpointService, None, Paging]) -> Answer:
    """List turns, newest first."""
    fleet, kind = call.params["fleet"], f"turns:{call.params['fleet']}"
    before = after(call, kind, int, 0) or None
    return page(kind, *await call.service.turns(call.tenant, fleet, call.query.limit, before))


@checkpoints.get("v1/fleets/{fleet}/checkpoints/latest", answers={200: LatestOut})
async def checkpoints_latest(call: Call[CheckpointService]) -> Answer:
    """Return the published checkpoint with the highest sequence."""
    return Answer(200, await call.service.latest(call.tenant, call.params["fleet"]))
