"""Calls of an instance's routes: the request is the one that the host passes; the answer is parsed."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from shared.delivery.channels.ports import OutgoingDelivery
from shared.extras.parts import build_routes
from shared.web.etag import encode
from shared.web.serve import ApiRequest, admit

from .instance import Instance

ROUTES = build_routes()
ADMIN_KEY = "simulated-admin-key"
JSON, LINES = "application/json", "application/x-ndjson"


class Reply(NamedTuple):
    """An answer that came: its status, its JSON, its entity tag."""

    status: int
    body: Any
    etag: str | None


async def call_work(instance: Instance, delivery: OutgoingDelivery, verb: str) -> Reply:
    """One call of a receiver about an attempt, with the attempt's token."""
    offer = delivery.completion
    assert offer is not None
    url = offer.url(delivery.attempt)
    tenant, place, attempt = url.split("/")[-3:]
    sent = {"authorization": f"Bearer {offer.token(delivery.attempt)}"}
    params = {"tenant": tenant, "place": place, "attempt": attempt}
    route = ROUTES[f"work_{verb}"]
    request = ApiRequest("POST", f"http://tocsin{url}/{verb}", sent, {}, params, b"")
    answer = await route.handler(await admit(route, await instance.app.serving(), request))
    return Reply(answer.status, orjson.loads(encode(answer.body)), None)


async def call(
    instance: Instance,
    name: str,
    tenant: str,
    event_id: str | None = None,
    body: bytes = b"",
    *,
    media: str = JSON,
    query: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Reply:
    """One call of the route `name`. Raises what the handler raises, so that surprises keep their traceback."""
    route = ROUTES[name]
    sent = {"authorization": f"Bearer {ADMIN_KEY}", "content-type": media, "content-length": str(len(body)), **(headers or {})}
    params = {"id": event_id} if event_id is not None else {}
    request = ApiRequest(route.method, "http://tocsin/api/x", sent, {"tenant": tenant, **(query or {})}, params, body)
    answer = await route.handler(await admit(route, await instance.app.serving(), request))
    return Reply(answer.status, orjson.loads(encode(answer.body)) if answer.body is not None else None, answer.etag)
