"""Routes of manual controls: an operator's verbs, the list of controls in force, and the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ....core.clock import Millis, to_text
from ....web.fields.types import Name, NodeName
from ....web.problem import invalid, not_found
from ....web.routes import Answer, Call, RouteGroup
from ...model import AnyVerb, PartitionVerb, ServerVerb
from ...planner import DiversionReason
from ...rows import NO_PARTITION
from .model import (
    BumpIn,
    DrainIn,
    IntentAnswer,
    IntentList,
    Lasting,
    LastingForServer,
    PermitIn,
    PlanIn,
    PlanOut,
    Said,
    intent_out,
)
from .service import ManualControls
from .verbs import REVOCATIONS, ControlRequest

controls = RouteGroup[ManualControls]("leases", scope="fleets", params={"fleet": Name, "node": NodeName})


class VerbRoute(NamedTuple):
    """A verb in the API: its body with an example, its summary, the rest of its description, and its own codes of 409."""

    body: type[Said]
    example: Mapping[str, Any]
    summary: str
    more: str = ""
    codes: tuple[str, ...] = ()


PARTITION_VERBS: dict[PartitionVerb, VerbRoute] = {
    "offline": VerbRoute(
        Lasting,
        {"note": "its data crashes its server", "expires": "PT1H"},
        "Take a partition offline: its server releases it, and no server claims it.",
    ),
    "online": VerbRoute(Said, {"note": "its data is mended"}, "Bring a partition back online.", codes=("not-offline",)),
    "bump": VerbRoute(
        BumpIn,
        {"note": "reload its rules"},
        "Reload a partition: its server releases it, and it is claimed again under the next epoch.",
        "With `server`, the partition is also prohibited for that server, so that another one claims it.",
        ("not-owned",),
    ),
    "prohibit": VerbRoute(
        LastingForServer, {"note": "its disk is slow", "server": "s7", "expires": "P1D"}, "Keep a partition away from a server."
    ),
    "permit": VerbRoute(
        PermitIn, {"note": "it has a new disk", "server": "s7"}, "Allow a server to own a partition again.", codes=("not-prohibited",)
    ),
    "pin": VerbRoute(
        LastingForServer,
        {"note": "its cache is warm there", "server": "s7"},
        "Keep a partition on one server while that server lives and may own it.",
        codes=("prohibited",),
    ),
    "unpin": VerbRoute(Said, {"note": "its cache is cold again"}, "Let the plan place a pinned partition again.", codes=("not-pinned",)),
}
SERVER_VERBS: dict[ServerVerb, VerbRoute] = {
    "drain": VerbRoute(
        DrainIn,
        {"note": "rolling restart", "to": "s8", "expires": "PT30M"},
        "Drain a server: it releases all its partitions.",
        "The server stays in the fleet and gets no partition until it is undrained. With `exit`, its process is asked to end. "
        "With `to`, its partitions go to that server, which gives up none for balance meanwhile.",
        ("no-destination", "prohibited"),
    ),
    "undrain": VerbRoute(Said, {"note": "it is restarted"}, "Let a drained server own partitions again.", codes=("not-drained",)),
    "prohibit": VerbRoute(
        Lasting, {"note": "it runs a wrong build"}, "Keep a server from owning any partition, even if it is not registered yet."
    ),
    "permit": VerbRoute(Said, {"note": "it runs the right build"}, "Allow a server to own partitions again.", codes=("not-prohibited",)),
}
_COMMON = ("changed-meanwhile", "too-many-intents")


def _declare(verb: AnyVerb, target: str, name: str, route: VerbRoute) -> None:
    @controls.post(
        f"v1/fleets/{{fleet}}/{target}/{verb}",
        name=name,
        doc=f"{route.summary}\n\n{route.more} The control takes effect with the servers' next heartbeat.",
        body=route.body,
        examples={"one": route.example},
        answers={200: IntentAnswer, 409: route.codes + _COMMON},
    )
    async def handler(call: Call[ManualControls, Any]) -> Answer:
        now = call.service.clock.now()
        partition = _number(call.params["partition"]) if "partition" in call.params else NO_PARTITION
        server = call.params["node"] if "node" in call.params else getattr(call.body, "server", None) or ""
        exits, to = bool(getattr(call.body, "exit", False)), getattr(call.body, "to", None)
        if to == server and to is not None:
            raise invalid("/to", f"must be another server than {server}")
        request = ControlRequest(verb, partition, server, call.body.note, call.key.prefix, now, _expires(call.body, now), exits, to)
        result = await call.service.apply(call.tenant, call.params["fleet"], request)
        answer: dict[str, Any] = {"intent": intent_out(result.intent, verb if verb in REVOCATIONS else None)}
        if result.ended:
            answer["ended"] = [intent_out(each) for each in result.ended]
        return Answer(200, answer | _diverted_out(result.diverted))


for _partition_verb, _route in PARTITION_VERBS.items():
    _declare(_partition_verb, "leases/{partition:int}", f"leases_{_partition_verb}", _route)
for _server_verb, _route in SERVER_VERBS.items():
    _declare(_server_verb, "nodes/{node}", f"nodes_{_server_verb}", _route)


@controls.get("v1/fleets/{fleet}/leases/intents", answers={200: IntentList})
async def leases_intents(call: Call[ManualControls]) -> Answer:
    """List the manual controls in force, by verb and target."""
    found = await call.service.intents(call.tenant, call.params["fleet"])
    return Answer(200, {"items": [intent_out(intent) for intent in found], "next": None})


@controls.post(
    "v1/fleets/{fleet}/leases/plan", answers={200: PlanOut}, examples={"dry run": {"dry_run": True}, "give the orders": {"dry_run": False}}
)
async def leases_plan(call: Call[ManualControls, PlanIn]) -> Answer:
    """Plan which partitions move, and why; order the moves unless it is a dry run."""
    planned = await call.service.plan(call.tenant, call.params["fleet"], dry_run=call.body.dry_run)
    moves = [
        {"partition": move.partition, "from": move.source or None, "to": move.target or None, "reason": move.reason}
        for move in planned.plan.moves
    ]
    unplaced = [{"partition": number, "reason": reason} for number, reason in sorted(planned.plan.unplaced.items())]
    answer = {"moves": moves, "unplaced": unplaced, "applied": not call.body.dry_run}
    return Answer(200, answer | _diverted_out(planned.plan.diverted))


def _diverted_out(diverted: Mapping[int, DiversionReason]) -> dict[str, Any]:
    if not diverted:
        return {}
    return {"diverted": [{"partition": number, "reason": reason} for number, reason in sorted(diverted.items())]}


def _number(text: str) -> int:
    # The host's constraint `int` accepts a negative number, which would mean no partition here.
    if not text.isdecimal():
        raise not_found(f"partition {text}; partitions are counted from 0")
    return int(text)


def _expires(body: Said, now: Millis) -> Millis:
    until = getattr(body, "expires", None)
    if until is None:
        return 0
    found: Millis = until.from_now(now)
    if found <= now:
        raise invalid("/expires", f"must be in the future; {to_text(found)} has passed")
    return found
