"""The route that changes a fleet's partition count."""

from __future__ import annotations

from ....web.fields.types import Name
from ....web.routes import Answer, Call, RouteGroup
from .model import ResizeIn, ResizeOut
from .service import ResizeService

resizes = RouteGroup[ResizeService]("leases", scope="fleets", params={"fleet": Name})


@resizes.post(
    "v1/fleets/{fleet}/leases/resize",
    answers={202: ResizeOut, 200: ResizeOut, 409: ("resizing", "offline", "rows-missing", "too-many-partitions", "changed-meanwhile")},
    examples={"twice as many": {"partitions": 128}},
)
async def leases_resize(call: Call[ResizeService, ResizeIn]) -> Answer:
    """Change a fleet's partition count while its servers run.

    Servers hand over with their next heartbeats. The answer is 200 if the fleet already has that count.
    """
    begun = await call.service.resize(call.tenant, call.params["fleet"], call.body.partitions)
    return Answer(202 if begun.fleet.former else 200, {"generation": begun.fleet.generation})
