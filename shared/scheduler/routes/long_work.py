"""Routes for receivers that complete events later. They take no key: the attempt's token is checked before anything is parsed or read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from ...web import parsing
from ...web.fields.types import Name
from ...web.routes import Answer, Call, RouteGroup
from ..facets.long_work import HeldToken
from ..keys import Address
from ..long_work import MAX_CALL_BYTES, AttemptNumber, FailIn, LongWorkCalls, WorkPlace, WorkStateOut

PROBLEMS = {401: "unauthenticated", 404: "not-found", 409: "work-over", 429: "too-many-requests", 503: "attempt-unsettled"}
_TEXT = "Needs the attempt's token, from the delivery's header tocsin-completion-token, as Authorization: Bearer. A repetition is harmless."


def _check(service: LongWorkCalls, params: Mapping[str, str], headers: Mapping[str, str]) -> None:
    service.known(params["tenant"], params["place"], params["attempt"], headers)


work = RouteGroup[LongWorkCalls]("long work", params={"tenant": Name, "place": WorkPlace, "attempt": AttemptNumber}, own_token=_check)
_FAIL: TypeAdapter[FailIn] = TypeAdapter(FailIn)


@work.post("v1/work/{tenant}/{place}/{attempt}/complete", answers={200: WorkStateOut, **PROBLEMS}, doc=f"Complete an event.\n\n{_TEXT}")
async def work_complete(call: Call[LongWorkCalls]) -> Answer:
    address, token = _held(call)
    return Answer(200, await call.service.complete(call.params["tenant"], address, token))


@work.post(
    "v1/work/{tenant}/{place}/{attempt}/fail",
    answers={200: WorkStateOut, **PROBLEMS},
    shape=FailIn,
    examples={
        "again later": {"error": "the printer is out of paper", "retry_after": "PT5M"},
        "for good": {"error": "no such order", "retry": False},
    },
    max_body=MAX_CALL_BYTES,
    doc=f"Report that the work on an event has failed.\n\n{_TEXT}",
)
async def work_fail(call: Call[LongWorkCalls, bytes | None]) -> Answer:
    address, token = _held(call)
    said = parsing.parse_json(_FAIL, call.body) if call.body else FailIn()
    return Answer(200, await call.service.fail(call.params["tenant"], address, token, said))


@work.post(
    "v1/work/{tenant}/{place}/{attempt}/heartbeat",
    answers={200: WorkStateOut, **PROBLEMS},
    doc=f"Extend the time of the work on an event.\n\n{_TEXT}",
)
async def work_heartbeat(call: Call[LongWorkCalls]) -> Answer:
    address, token = _held(call)
    return Answer(200, await call.service.heartbeat(call.params["tenant"], address, token))


def _held(call: Call[LongWorkCalls, Any]) -> tuple[Address, HeldToken]:
    return call.service.held(call.params["tenant"], call.params["place"], call.params["attempt"], call.headers)
