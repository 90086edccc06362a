"""The door of the metrics."""

from __future__ import annotations

from typing import Protocol

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from ...web.routes import Answer, Call, Content, Routes
from .service import Metrics


class App(Protocol):
    """What this door needs of the application."""

    @property
    def metrics(self) -> Metrics:
        """The look."""


def register(routes: Routes) -> None:
    """Add `/api/metrics`."""

    @routes.route(
        "GET",
        "metrics",
        name="metrics",
        scope="admin",
        summary="Figures of the whole service, for Prometheus",
        description="From tables, at most ten seconds old. docs/observability.md tells the names.",
        answers={200: Content("text/plain")},
        tag="operations",
    )
    async def metrics(call: Call[App]) -> Answer:
        return Answer(200, await call.app.metrics.text(), {"cache-control": "no-store"}, content_type=CONTENT_TYPE_PLAIN_0_0_4)
