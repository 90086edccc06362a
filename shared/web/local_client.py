"""Calls a route table in the same process, without a host: for tests, the simulator and users' own tests.

::

    client = LocalClient(routes, get_app, key="local-demo-key")
    answer = await client.post("/api/v1/events", {"delay": "PT5S", "payload": 1})
    assert answer.status == 201 and answer.json()["state"] == "scheduled"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from . import templates
from .parsing import load_json
from .routes import Routes
from .serve import ApiRequest, GetApp, serve


@dataclass(slots=True, frozen=True)
class LocalReply:
    """An answer, as a caller receives it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body's JSON."""
        return load_json(self.body, any_number=True)

    @property
    def code(self) -> str:
        """The code of a problem, '' for anything else."""
        if not self.headers.get("content-type", "").startswith("application/problem+json"):
            return ""
        return str(self.json()["type"]).rpartition("/")[2]

    @property
    def pointers(self) -> list[str]:
        """The pointers of a problem's errors."""
        return [error["pointer"] for error in self.json().get("errors", [])]


class LocalClient:
    """A caller with a key, or None without one. Paths start with `/api/` and may have a query; bodies are data (sent as JSON) or bytes."""

    def __init__(self, routes: Routes, get_app: GetApp, *, key: str | None = None) -> None:
        self._routes, self._get_app, self._key = routes, get_app, key

    def with_key(self, key: str | None) -> LocalClient:
        """Return a client of the same table with another key."""
        return LocalClient(self._routes, self._get_app, key=key)

    async def call(self, method: str, url: str, body: Any = None, headers: Mapping[str, str] | None = None) -> LocalReply:
        """Make a call. A path that fits no route is answered with 404 and an empty body, as at the host."""
        path = url.partition("?")[0]
        if not path.startswith("/api/"):
            raise ValueError(f"{path} does not start with /api/")
        raw = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        sent = {"content-type": "application/json", "content-length": str(len(raw))} if raw else {}
        if self._key is not None:
            sent["authorization"] = f"Bearer {self._key}"
        sent |= {name.lower(): value for name, value in (headers or {}).items()}
        for route in self._routes:
            if route.method == method and (params := templates.match(route.template, path.removeprefix("/api/"))) is not None:
                return LocalReply(*await serve(route, self._get_app, ApiRequest(method, f"http://localhost{url}", sent, {}, params, raw)))
        return LocalReply(404, {}, b"")

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> LocalReply:
        """Make a GET call."""
        return await self.call("GET", url, None, headers)

    async def put(self, url: str, body: Any = None, headers: Mapping[str, str] | None = None) -> LocalReply:
        """Make a PUT call."""
        return await self.call("PUT", url, body, headers)

    async def post(self, url: str, body: Any = None, headers: Mapping[str, str] | None = None) -> LocalReply:
        """Make a POST call."""
        return await self.call("POST", url, body, headers)

    async def patch(self, url: str, body: Any = None, headers: Mapping[str, str] | None = None) -> LocalReply:
        """Make a PATCH call."""
        return await self.call("PATCH", url, body, headers)

    async def delete(self, url: str, headers: Mapping[str, str] | None = None) -> LocalReply:
        """Make a DELETE call."""
        return await self.call("DELETE", url, None, headers)
