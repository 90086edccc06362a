"""The door that changes a fleet's partition count: api.md, "Leases"."""

from __future__ import annotations

from typing import Protocol

from ....web.fields.types import Name
from ....web.routes import Answer, Call, Routes
from .model import ResizeIn, ResizeOut
from .service import ResizeService


class App(Protocol):
    """What this door needs of the application."""

    @property
    def resizes(self) -> ResizeService:
        """Changes of partition counts."""


def register(routes: Routes) -> None:
    """Add the route."""

    @routes.route(
        "POST",
        "v1/fleets/{fleet}/leases/resize",
        name="leases_resize",
        scope="fleets",
        params={"fleet": Name},
        summary="Change a fleet's partition count while its servers run",
        description="Servers hand over with their next beats; 200: the fleet has that many already.",
        body=ResizeIn,
        answers={202: ResizeOut, 200: ResizeOut, 409: ("resizing", "offline", "rows-missing", "changed-meanwhile")},
        tag="leases",
    )
    async def leases_resize(call: Call[App, ResizeIn]) -> Answer:
        begun = await call.app.resizes.resize(call.tenant, call.params["fleet"], call.body.partitions)
        return Answer(202 if begun.fleet.former else 200, {"generation": begun.fleet.generation})
