"""Checks of the API against its own OpenAPI document: schemathesis makes calls, good and bad ones, over real HTTP on loopback.

The server here runs the routes through `serve` exactly as the bound functions do, on storage in memory. No queue or timer function runs and
the senders are fakes: nothing is ever delivered, so that no channel the fuzzer makes up can cause traffic.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import requests
import schemathesis
from aiohttp import web
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.specs.openapi.checks import negative_data_rejection

from shared.core.clock import SystemClock
from shared.leases.rows import MAX_PARTITIONS
from shared.web import templates
from shared.web.serve import ApiRequest, serve
from tests.unit.scheduler.harness import ADMIN, ROUTES, World
from tests.waiting import wait_until

from .conftest import DOCUMENT

EXAMPLES = 20
"""Calls with drawn content for each operation that takes some, beside those for each bound of it."""
FEW = 8
"""The number of examples for routes with little to draw."""
ANSWERED_WITHIN = 60.0
"""Seconds that a call waits for its answer: on a slow machine, the first one of a route makes what later ones find made."""
LARGE = 40
"""Partitions of a fleet at most: ten thousand take seconds, and make each later call on the fleet slow. Other tests have them."""
THROWAWAY = [f"throwaway{number}" for number in range(20)]
OFF = {"enabled": False}
CONFIG: dict[str, Any] = {
    "seed": 1,
    "checks": {
        "negative_data_rejection": {"expected-statuses": ["4xx"]},
        # The host answers 404 for a method that no route has; other tests show it.
        "unsupported_method": OFF,
        # What the document cannot say (a name must exist, an id must be free) makes good data fail.
        "positive_data_acceptance": OFF,
    },
}
GENERATION = {"mode": "all", "deterministic": True, "database": "none"}


def bounded(examples: int) -> settings:
    """Draw `count` examples, the same ones each time."""
    return settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)


class Running(World):
    """The application behind a socket, in a thread and loop of its own."""

    def __init__(self) -> None:
        super().__init__(clock=SystemClock())
        self.url = ""
        self.statuses: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def __enter__(self) -> Running:
        self._thread.start()
        wait_until(self._started.is_set, "the application")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        assert self.receiver.received == [], "nothing may be delivered"

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self.open()
        runner = web.ServerRunner(web.Server(self._handle, access_log=None, max_line_size=65_536))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._started.set()
        await self._stop.wait()
        await runner.cleanup()
        await self.app.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.raw_path.partition("?")[0]
        headers = {name.lower(): value for name, value in request.headers.items()}
        # As the host does: a body without a length arrives empty.
        body = await request.read() if "content-length" in headers else b""
        for route in ROUTES:
            if route.method == request.method and (params := templates.match(route.template, path.removeprefix("/api/"))) is not None:
                asked = ApiRequest(request.method, f"http://localhost{request.raw_path}", headers, {}, params, body)
                status, sent, raw = await serve(route, self.get_app, asked)
                return web.Response(status=status, headers=sent, body=raw)
        return web.Response(status=404)


@contextmanager
def served() -> Iterator[Running]:
    """The application with something of each kind to meet."""
    with Running() as found:
        with requests.Session() as session:
            session.trust_env = False
            session.headers["authorization"] = f"Bearer {ADMIN}"
            for tenant in THROWAWAY:
                session.put(f"{found.url}/api/v1/tenants/{tenant}", json={}).raise_for_status()
            for number in range(20):
                event = {"id": f"known{number}", "delay": "PT12H", "payload": number}
                session.post(f"{found.url}/api/v1/events?tenant=demo", json=event).raise_for_status()
            for number in range(3):
                at = f"{found.url}/api/v1/fleets/known{number}"
                session.put(f"{at}?tenant=demo", json={"partitions": 4}).raise_for_status()
                beat = {"incarnation": str(UUID(int=1)), "seq": 1}
                session.post(f"{at}/nodes/known0/beat?tenant=demo", json=beat).raise_for_status()
                report = {"seq": 1, "role": "secondary", "term": 7, "applied": 5, "last_checkpoint": 0, "taking": None, "mono_ms": 5}
                session.post(f"{at}/replicas/known0/report?tenant=demo", json=report).raise_for_status()
        yield found


def described(*, admin: bool, examples: int = EXAMPLES, bounds: bool = True) -> schemathesis.schemas.BaseSchema:
    """The document as a caller of one kind should read it. bounds: each bound of each field is tried, too."""
    document = copy.deepcopy(DOCUMENT)
    for path in list(document["paths"]):
        if not admin and "/tenants" in path:
            del document["paths"][path]
            continue
        for operation in document["paths"][path].values():
            # Which tenant a call is for is not the fuzzer's to choose; see `aim`.
            given = operation.get("parameters", [])
            operation["parameters"] = [each for each in given if (each["name"], each["in"]) != ("tenant", "query")]
    # What the document says in words, so that generators make one type of it: half of the drawn events would lack both.
    for name, times in {"EventIn": ("due", "delay"), "ScheduleIn": ("cron", "every")}.items():
        document["components"]["schemas"][name]["oneOf"] = [
            {"required": [time], "properties": {time: {"type": "string"}}} for time in times
        ]
    # Ten thousand events take seconds; test_batch has them.
    del document["paths"]["/api/v1/events/batch"]["post"]["requestBody"]["content"]["application/json"]["schema"]["maxItems"]
    config = CONFIG | {"generation": GENERATION | {"max-examples": examples}}
    config["phases"] = {"coverage": {"unexpected-methods": []} if bounds else OFF, "stateful": OFF}
    return schemathesis.openapi.from_dict(document, config=SchemathesisConfig.from_dict(config))


def operations(*, admin: bool) -> list[str]:
    """Return method and path of all operations of one kind of caller."""
    paths = {path: item for path, item in DOCUMENT["paths"].items() if admin or "/tenants" not in path}
    return [f"{method.upper()} {path}" for path, item in paths.items() for method in item]


def fuzz(schema: schemathesis.schemas.BaseSchema, operation: str, examples: int, check: Callable[[schemathesis.Case], None]) -> None:
    """Check calls of one operation. The plugin for pytest would draw them whenever tests are collected, in each process."""
    method, path = operation.split()
    chosen = schema.include(method=method, path=path)

    def test(case: schemathesis.Case) -> None:
        check(case)

    [found] = get_all_tests(schema=chosen, test_func=test, settings=bounded(examples), given_kwargs=None)
    _, run = found.ok()
    run()


@schemathesis.serializer("application/x-ndjson")
def _lines(_: schemathesis.SerializationContext, value: Any) -> bytes:
    return str(value).encode(errors="replace")


_numbers = itertools.count()
_WHOLE = re.compile(r"-?\d{1,10}", re.ASCII)


def aim(case: schemathesis.Case, *, admin: bool) -> None:
    """Let every other call with a good path meet something that is there; never the tenant whose keys are in use."""
    number = next(_numbers)
    known = case.path_parameters
    drawn = case.meta.components.get(ParameterLocation.PATH) if case.meta else None
    if known and number % 2 and not (drawn and drawn.mode.is_negative):
        if "id" in known:
            known["id"] = f"known{number % 20}"
        if "tenant" in known:
            known["tenant"] = THROWAWAY[number % 20]
        if "name" in known:
            known["name"] = f"known{number % 3}"
        if "fleet" in known:
            known["fleet"] = f"known{number % 3}"
        if "node" in known:
            known["node"] = "known0"
        if "partition" in known:
            known["partition"] = number % 5
        if "epoch" in known:
            known["epoch"] = number % 3
    body = case.body if isinstance(case.body, dict) else {}
    if isinstance(partitions := body.get("partitions"), int) and LARGE < partitions <= MAX_PARTITIONS:
        body["partitions"] = LARGE
    for name in {"partition", "epoch"} & (known or {}).keys():
        if not _WHOLE.fullmatch(str(known[name])):
            # The host has no route for it, and answers 404 without a word.
            known[name] = -1
    if known and known.get("tenant") == "demo":
        known["tenant"] = "demo2"
    if admin and case.operation.path.startswith("/api/v1/") and "/tenants" not in case.operation.path:
        case.query = {**(case.query or {}), "tenant": "demo"}


_FRAMING = frozenset({"connection", "content-length", "expect", "host", "transfer-encoding", "upgrade"})
"""Header fields of the connection: the server answers wrong ones itself, before the app sees the request."""


def _has_null(body: Any) -> bool:
    if isinstance(body, dict | list):
        return any(_has_null(part) for part in (body.values() if isinstance(body, dict) else body))
    return body is None


def call(case: schemathesis.Case, running: Running, key: str) -> None:
    """Make the call, and hold the answer against the document."""
    for name in [name for name in case.headers or () if name.lower() in _FRAMING]:
        del case.headers[name]
    # Each event of a batch has its own result: a batch with invalid events is a valid call.
    # The service reads null in place of an optional member as if it were missing, which the document does not offer.
    excluded: list[Any] = [negative_data_rejection] if case.operation.path.endswith("/batch") or _has_null(case.body) else []
    if case.operation.path.endswith("/readyz"):
        # No timer runs here, so that the documented answer becomes 503 after two minutes.
        excluded.append(not_a_server_error)
    with requests.Session() as session:
        session.trust_env = False
        headers = {"Authorization": f"Bearer {key}"}
        answer = case.call_and_validate(
            base_url=running.url, session=session, headers=headers, excluded_checks=excluded, timeout=ANSWERED_WITHIN
        )
    running.statuses[f"{case.operation.label}"][answer.status_code] += 1
