"""The doors of storage: what the accounts are, failover and failback (scope admin)."""

from __future__ import annotations

from typing import Protocol

from ...web.routes import Answer, Call, Routes
from .failover import Failover
from .model import FailbackIn, FailoverIn, StorageOut


class App(Protocol):
    """What these doors need of the application."""

    @property
    def failover(self) -> Failover:
        """The verbs."""


async def _told(app: App) -> dict[str, object]:
    return {"accounts": await app.failover.probe(), "mirror": await app.failover.state()}


def register(routes: Routes) -> None:
    """Add the routes of storage accounts."""

    @routes.route(
        "GET",
        "v1/storage",
        name="storage_get",
        scope="admin",
        summary="The storage accounts, and which of a mirrored pair serves",
        answers={200: StorageOut},
        tag="operations",
    )
    async def storage_get(call: Call[App]) -> Answer:
        return Answer(200, await _told(call.app), {"cache-control": "no-store"})

    @routes.route(
        "POST",
        "v1/storage/failover",
        name="storage_failover",
        scope="admin",
        summary="Let the second account of the mirrored pair take over",
        description="Mirrored events are served by the second account some time later (`serves_in_s`). Repeating it changes nothing.",
        body=FailoverIn,
        answers={202: StorageOut, 409: ("not-mirrored", "not-in-step", "changed-meanwhile")},
        tag="operations",
    )
    async def storage_failover(call: Call[App, FailoverIn]) -> Answer:
        await call.app.failover.fail_over(incomplete=call.body.incomplete)
        return Answer(202, await _told(call.app), {"cache-control": "no-store"})

    @routes.route(
        "POST",
        "v1/storage/failback",
        name="storage_failback",
        scope="admin",
        summary="Bring the first account up to date and let it serve again",
        body=FailbackIn,
        answers={202: StorageOut, 409: ("not-mirrored", "taking-over", "changed-meanwhile")},
        tag="operations",
    )
    async def storage_failback(call: Call[App, FailbackIn]) -> Answer:
        await call.app.failover.fail_back()
        return Answer(202, await _told(call.app), {"cache-control": "no-store"})
