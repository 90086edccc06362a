"""The route of the metrics."""

from __future__ import annotations

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from ...web.routes import Answer, Call, Content, RouteGroup
from .service import Metrics

figures = RouteGroup[Metrics]("operations", scope=("metrics", "admin"))


@figures.get("metrics", answers={200: Content("text/plain")})
async def metrics(call: Call[Metrics]) -> Answer:
    """Return the metrics of the whole service, for Prometheus.

    They are read from tables and at most three seconds old. docs/reference/observability.md describes each metric.
    """
    return Answer(200, await call.service.text(), {"cache-control": "no-store"}, content_type=CONTENT_TYPE_PLAIN_0_0_4)
