"""The doors of operators: routes of api.md, "Leases"."""

from __future__ import annotations

from typing import Any, Protocol

from ....core.clock import Clock, Millis
from ....web.fields.types import Name, NodeName
from ....web.problem import invalid, not_found
from ....web.routes import Answer, Call, Routes
from ...rows import NO_PARTITION
from .model import (
    AnyVerb,
    BumpIn,
    DrainIn,
    IntentAnswer,
    IntentList,
    Lasting,
    LastingForServer,
    PartitionVerb,
    PermitIn,
    PlanIn,
    PlanOut,
    Said,
    ServerVerb,
    intent_out,
)
from .service import ManualControls
from .verbs import REVOCATIONS, ControlRequest

_FLEET = {"fleet": Name}
_NODE = {"fleet": Name, "node": NodeName}
_PARTITION_VERBS: dict[PartitionVerb, tuple[type[Said], str, str, tuple[str, ...]]] = {
    "offline": (Lasting, "Take a partition offline: its server hands it off, and nobody claims it", "", ()),
    "online": (Said, "Bring a partition back online", "", ("not-offline",)),
    "bump": (
        BumpIn,
        "Reload a partition: its server hands it off and claims it anew, under the next epoch",
        "With `server`, that one is prohibited for it, too: so another claims it.",
        ("not-owned",),
    ),
    "prohibit": (LastingForServer, "Keep a partition away from a server", "", ()),
    "permit": (PermitIn, "Let a server have a partition again", "", ("not-prohibited",)),
    "pin": (LastingForServer, "Keep a partition on one server, while that one is there and may have it", "", ("prohibited",)),
    "unpin": (Said, "Let a pinned partition go where the plan puts it", "", ("not-pinned",)),
}
_SERVER_VERBS: dict[ServerVerb, tuple[type[Said], str, str, tuple[str, ...]]] = {
    "drain": (
        DrainIn,
        "Have a server hand everything off",
        "It stays in the fleet and gets nothing until it is undrained. With `exit` its process is told to end.",
        (),
    ),
    "undrain": (Said, "Let a drained server have partitions again", "", ("not-drained",)),
    "prohibit": (Lasting, "Keep a server, whether it is there or not, from having any partition", "", ()),
    "permit": (Said, "Let a server have partitions again", "", ("not-prohibited",)),
}
_COMMON = ("changed-meanwhile", "too-many-intents")


class App(Protocol):
    """What these doors need of the application."""

    @property
    def control(self) -> ManualControls:
        """The verbs."""

    @property
    def clock(self) -> Clock:
        """The time."""


def register(routes: Routes) -> None:
    """Add operators' verbs, the list of what stands, and the plan."""
    for of_partition, (said, summary, text, codes) in _PARTITION_VERBS.items():
        _verb(routes, of_partition, "leases/{partition:int}", f"leases_{of_partition}", {"fleet": Name}, said, summary, text, codes)
    for of_server, (said, summary, text, codes) in _SERVER_VERBS.items():
        _verb(routes, of_server, "nodes/{node}", f"nodes_{of_server}", _NODE, said, summary, text, codes)
    _plan(routes)


def _verb(
    routes: Routes,
    verb: AnyVerb,
    target: str,
    name: str,
    params: dict[str, Any],
    said: type[Said],
    summary: str,
    text: str,
    codes: tuple[str, ...],
) -> None:
    @routes.route(
        "POST",
        f"v1/fleets/{{fleet}}/{target}/{verb}",
        name=name,
        scope="fleets",
        params=params,
        summary=summary,
        description=f"{text} It counts with the servers' next beat.".strip(),
        body=said,
        answers={200: IntentAnswer, 409: codes + _COMMON},
        tag="leases",
    )
    async def handler(call: Call[App, Any]) -> Answer:
        now = call.app.clock.now()
        partition = _number(call.params["partition"]) if "partition" in call.params else NO_PARTITION
        server = call.params["node"] if "node" in call.params else getattr(call.body, "server", None) or ""
        exits = bool(getattr(call.body, "exit", False))
        word = ControlRequest(verb, partition, server, call.body.note, call.key.prefix, now, _expires(call.body, now), exits)
        intent = await call.app.control.say(call.tenant, call.params["fleet"], word)
        return Answer(200, {"intent": intent_out(intent, verb if verb in REVOCATIONS else None)})


def _plan(routes: Routes) -> None:
    @routes.route(
        "GET",
        "v1/fleets/{fleet}/leases/intents",
        name="leases_intents",
        scope="fleets",
        params=_FLEET,
        summary="What operators have said that is in force, by verb and target",
        answers={200: IntentList},
        tag="leases",
    )
    async def leases_intents(call: Call[App]) -> Answer:
        found = await call.app.control.intents(call.tenant, call.params["fleet"])
        return Answer(200, {"items": [intent_out(intent) for intent in found], "next": None})

    @routes.route(
        "POST",
        "v1/fleets/{fleet}/leases/plan",
        name="leases_plan",
        scope="fleets",
        params=_FLEET,
        summary="Which partitions are to move, and why; unless it is a dry run, the servers are told",
        body=PlanIn,
        answers={200: PlanOut},
        tag="leases",
    )
    async def leases_plan(call: Call[App, PlanIn]) -> Answer:
        planned = await call.app.control.plan(call.tenant, call.params["fleet"], dry_run=call.body.dry_run)
        moves = [
            {"partition": move.partition, "from": move.source or None, "to": move.target or None, "reason": move.reason}
            for move in planned.plan.moves
        ]
        unplaced = [{"partition": number, "reason": reason} for number, reason in sorted(planned.plan.unplaced.items())]
        return Answer(200, {"moves": moves, "unplaced": unplaced, "applied": not call.body.dry_run})


def _number(text: str) -> int:
    # A negative number is an int to the host, and would mean no partition here.
    if not text.isdecimal():
        raise not_found("partition")
    return int(text)


def _expires(body: Said, now: Millis) -> Millis:
    until = getattr(body, "expires", None)
    if until is None:
        return 0
    found: Millis = until.from_now(now)
    if found <= now:
        raise invalid("/expires", "is not in the future")
    return found
