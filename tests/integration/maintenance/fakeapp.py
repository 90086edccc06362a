"""A small app that speaks the maintenance calls of the API to agents: it keeps reports, and answers what the test wants."""

from __future__ import annotations

import json
import ssl
from typing import Any

from aiohttp import web

from shared.core.clock import SystemClock, to_text

KEY = "an-agents-own-key"


class FakeApp:
    """reports: as they came. holds, approvals: what the next answers say; status: other than 200 refuses. rehearse: seconds from the first
    answer to a rehearsal's NotBefore."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.results: list[tuple[str, dict[str, Any]]] = []
        self.holds: dict[str, str] = {}
        self.approvals: list[dict[str, Any]] = []
        self.rehearse: float | None = None
        self._rehearsals: list[dict[str, Any]] = []
        self.status = 200
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        app = web.Application()
        app.router.add_post("/api/v1/fleets/search/maintenance/reports", self._report)
        app.router.add_post("/api/v1/fleets/search/maintenance/approvals/{id}/result", self._result)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=tls)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def phases(self) -> list[str]:
        """Return the phases of the only event, as they were reported."""
        return [entry["phase"] for report in self.reports for entry in report["events"]]

    async def _report(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        if self.status != 200:
            return web.json_response({"type": "x/unavailable", "detail": "not now"}, status=self.status)
        self.reports.append(json.loads(await request.read()))
        if self.rehearse is not None and not self._rehearsals:
            self._rehearsals = [_rehearsal(self.rehearse)]
        hold = [{"event_id": key, "reason": reason} for key, reason in self.holds.items()]
        answer = {"next_report_ms": 500, "approvals": self.approvals, "hold": hold, "commands": []}
        return web.json_response(answer | {"rehearsals": self._rehearsals, "monitors": {"primary": None, "secondary": None, "epoch": 0}})

    async def _result(self, request: web.Request) -> web.Response:
        self.results.append((request.match_info["id"], json.loads(await request.read())))
        self.approvals = []
        return web.Response(status=204)


def _rehearsal(seconds: float) -> dict[str, Any]:
    return {
        "event_id": "r1",
        "type": "Freeze",
        "status": "Scheduled",
        "not_before": to_text(SystemClock().now() + round(seconds * 1000)),
        "source": "Platform",
        "duration_s": 0,
        "resources": ["n1"],
    }
