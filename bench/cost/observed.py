"""Reads the records of a run: its invocations, its requests to storage, and its telemetry."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from shared.ops.export.start import PERIODS
from shared.storage.names import ALL_TABLES

from ..tools.serving import serving
from .rules import Invocation, Operations

_REQUEST: Final = re.compile(r'"([A-Z]+) /[^/ "]+/([^/?(" ]*)([^" ]*) HTTP/1\.1" \d+')
"""A line of Azurite's log: the method, the first name after the account, and the rest."""


def invocations(file: Path) -> list[Invocation]:
    """Return the invocations from the file of `DEVHOST_INVOCATIONS`; the end of one that still runs is infinity."""
    return [Invocation(each["function"], each["group"], each["start"], each.get("end", inf)) for each in _lines(file)]


def cold_starts(file: Path) -> dict[str, tuple[float, float]]:
    """Return by group: the seconds that its process took to start, and the seconds that its first invocation took then."""
    found: dict[str, tuple[float, float]] = {}
    for each in _lines(file):
        if each["start"] - each["asked"] > 0.05 and "end" in each:
            found.setdefault(each["group"], (each["start"] - each["asked"], each["end"] - each["start"]))
    return found


def failures(file: Path) -> Counter[str]:
    """Return the failed invocations by function."""
    return Counter(each["function"] for each in _lines(file) if not each.get("ok", True))


def _lines(file: Path) -> list[dict[str, Any]]:
    """Return the last line of each invocation."""
    found: dict[int, dict[str, Any]] = {}
    for line in file.read_text().splitlines():
        each = json.loads(line)
        found[each["id"]] = each
    return list(found.values())


class StorageLog:
    """The requests that Azurite has served."""

    def __init__(self, file: Path, batch: int) -> None:
        """batch: number of messages that the host's listeners request at a time; it identifies their requests."""
        self._file, self._poll = file, f"numofmessages={batch}&visibilitytimeout=600"

    def mark(self) -> int:
        """Return the present length of the log in bytes."""
        return self._file.stat().st_size

    def between(self, start: int, end: int) -> Operations:
        """Return the requests between two such positions."""
        with self._file.open("rb") as file:
            file.seek(start)
            return self.operations(file.read(end - start).decode(errors="replace").splitlines())

    def operations(self, lines: Iterable[str]) -> Operations:
        """Return the requests of these lines."""
        table = queue = blob = 0
        polls: Counter[str] = Counter()
        targets: Counter[str] = Counter()
        for line in lines:
            found = _REQUEST.search(line)
            if found is None:
                continue
            method, name, rest = found.groups()
            if method == "GET" and self._poll in rest:
                polls[name] += 1
                continue
            if name in ALL_TABLES or name in ("Tables", "$batch"):
                table += 1
                what = " query" if method == "GET" and rest.startswith("()") else ""
            elif name.startswith("tocsin-"):
                queue += 1
                what = ""
            else:
                blob += 1
                what = ""
            targets[f"{method} {name}{what}"] += 1
        return Operations(table, queue, polls, blob, targets)


SPANS: Final = ("RequestData", "RemoteDependencyData")
"""The kinds of spans."""
METRICS: Final = "MetricData"
"""The kind of a value of a metric."""


class Telemetry:
    """Receives the telemetry that the app sends to Application Insights, and counts its bytes by kind."""

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()
        self.records: Counter[str] = Counter()
        self.exports: Counter[str] = Counter()
        """The bytes of each export of the metrics, by its time."""
        self.url = ""

    @property
    def connection(self) -> str:
        """The connection string of this endpoint."""
        return f"InstrumentationKey=11111111-2222-3333-4444-555555555555;IngestionEndpoint={self.url}/"

    def stored(self, before: Counter[str], seconds: float, share: float) -> Counter[str]:
        """Return the bytes that Azure stores for some seconds, by kind.

        before: the bytes at the beginning of this time. share: the share of requests that a deployment traces; here all are traced. Metrics
        are exported too rarely for a window of minutes, so the size of the last export is used for all of them.
        """
        found = Counter({kind: round(size * (share if kind in SPANS else 1)) for kind, size in (self.bytes - before).items()})
        last = self.exports[max(self.exports)] if self.exports else 0
        found[METRICS] = round(last * seconds * 1000 / PERIODS["Application Insights"])
        return found

    def take(self, body: bytes) -> int:
        """Count the records of a request, and return their number."""
        found = json.loads(body)
        for each in found:
            kind = each.get("data", {}).get("baseType", "other")
            size = len(json.dumps(each, separators=(",", ":")))
            self.bytes[kind] += size
            if kind == METRICS:
                self.exports[each.get("time", "")] += size
            self.records[kind] += 1
        return len(found)


@asynccontextmanager
async def telemetry() -> AsyncIterator[Telemetry]:
    """Serve an ingestion endpoint on this machine."""
    found = Telemetry()

    async def track(request: web.Request) -> web.Response:
        body = await request.read()
        count = found.take(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        return web.json_response({"itemsReceived": count, "itemsAccepted": count, "errors": []})

    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/{path:.*}", track)
    async with serving(app) as found.url:
        yield found
