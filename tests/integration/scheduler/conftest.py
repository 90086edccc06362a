"""The scheduler as users meet it: the devhost as a child process, Azurite beside it, real HTTP in and out.

Azurite is started here and not by the devhost, so that it outlives one that is killed. Each test has a tenant of its own, with a channel
`default` that leads to the receiver's path `/{tenant}`.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import aiohttp
import pytest

from bench.tools.machine import workers
from devhost.azurite import ROOT, Azurite, free_ports
from tests.any_host import START, AnyHost
from tests.pages import read_pages
from tests.starting import READY, ready
from tests.waiting import DEADLINE, ended, eventually

from .receiver import Hit, Receiver

ADMIN_KEY = "local-admin-key"
FINAL = {"delivered", "dead", "cancelled", "lapsed"}
# Lines of a log that must never appear, whatever a test does to the app.
UNEXPECTED = (
    "failed unexpectedly",
    "raised an unexpected error",
    "was never retrieved",
    "was destroyed but it is pending",
    "Unclosed",
    "could not be settled",
)
_numbers = itertools.count(1)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def text_of(millis: float) -> str:
    """RFC 3339 with milliseconds."""
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def millis_of(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class Answer(NamedTuple):
    """An answer of the API."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem."""
        assert self.headers["content-type"] == "application/problem+json", self
        return str(self.json()["type"]).rpartition("/")[2]


class Api:
    """A caller with a key."""

    def __init__(self, base: str, key: str, *, patient: bool = False) -> None:
        """patient: repeat a call whose connection is refused or cut, as clients of a host do that ends and starts anew."""
        self._base, self._headers = f"{base}/api/", {"authorization": f"Bearer {key}"}
        self.key = key
        self._patient = patient
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120), connector=aiohttp.TCPConnector(limit=200))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """`path` is relative to `/api/v1/`, or to `/api/` with a slash in front. `body`: data, sent as JSON, or bytes."""
        assert self._session is not None
        url = self._base + (path[1:] if path.startswith("/") else f"v1/{path}")
        sent = {**self._headers, "content-type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        session = self._session

        async def once() -> Answer:
            # As a file: aiohttp warns of large bodies.
            async with session.request(method, url, data=io.BytesIO(raw), headers=sent) as response:
                return Answer(response.status, {name.lower(): value for name, value in response.headers.items()}, await response.read())

        async def repeated() -> Answer | None:
            try:
                return await once()
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
                return None

        if not self._patient:
            return await once()
        answer: Answer = await eventually(repeated, f"an answer to {method} {path}", pause=0.2)
        return answer

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.call("GET", path, **headers)

    async def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.call("POST", path, body, **headers)

    async def event(self, event_id: str) -> dict[str, Any]:
        """The event; it must be there."""
        answer = await self.get(f"events/{event_id}")
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    async def _repeated(self, path: str, body: Any) -> Answer:
        """Post again while the answer says that storage was too slow and nothing was changed, as it may on a busy machine."""
        while (answer := await self.post(path, body)).status == 503 and answer.json().get("outcome") == "unchanged":  # noqa: ASYNC110
            await asyncio.sleep(1)
        return answer

    async def create(self, **event: Any) -> str:
        """A new event's id."""
        answer = await self._repeated("events", {"payload": {"n": 1}, **event})
        assert answer.status == (202 if event.get("durability") == "fast" else 201), answer
        return str(answer.json()["id"])

    async def batch(self, events: list[dict[str, Any]]) -> list[str]:
        """New events' ids; all must be taken."""
        answer = await self._repeated("events/batch", events)
        assert answer.status == 200 and answer.json()["rejected"] == 0, answer
        return [result["id"] for result in answer.json()["results"]]

    async def pages(self, path: str) -> list[list[dict[str, Any]]]:
        """Return all pages of a list."""
        return await read_pages(self.get, path)

    async def all(self, path: str) -> list[dict[str, Any]]:
        """All items of a list."""
        return [item for page in await self.pages(path) for item in page]

    async def stats(self) -> dict[str, Any]:
        answer = await self.get("stats")
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    async def ended(self, event_id: str, state: str | None = None, deadline: float = DEADLINE) -> dict[str, Any]:
        """The event once it has a final state, which must be `state`."""

        async def final() -> dict[str, Any] | None:
            event = await self.event(event_id)
            return event if event["state"] in FINAL else None

        event: dict[str, Any] = await eventually(final, f"a final state of {event_id}", deadline)
        assert state is None or event["state"] == state, event
        return event

    async def in_state(self, event_id: str, state: str, deadline: float = DEADLINE) -> dict[str, Any]:
        """The event once it is in a state that need not be final."""

        async def there() -> dict[str, Any] | None:
            event = await self.event(event_id)
            # A dead event may be brought back; nothing else changes a final state.
            assert event["state"] == state or event["state"] not in FINAL - ({"dead"} if state == "delivered" else set()), event
            return event if event["state"] == state else None

        event: dict[str, Any] = await eventually(there, f"{event_id} {state}", deadline)
        return event

    async def drained(self, deadline: float = DEADLINE) -> dict[str, Any]:
        """The statistics once no event of the tenant is open."""

        async def none_open() -> dict[str, Any] | None:
            stats = await self.stats()
            return stats if stats["open"] == 0 else None

        stats: dict[str, Any] = await eventually(none_open, "no open events", deadline, pause=0.25)
        return stats


@dataclass
class Tenant:
    """A tenant of the test's own."""

    name: str
    api: Api
    admin: Api
    receiver: Receiver

    @property
    def path(self) -> str:
        """The receiver's path behind the channel `default`."""
        return f"/{self.name}"

    @property
    def hits(self) -> list[Hit]:
        """The deliveries of the channel `default`."""
        return self.receiver.at(self.path)

    def by_id(self) -> dict[str, list[Hit]]:
        """Return the deliveries of the channel `default` by event."""
        return self.receiver.by_id(self.path)

    async def channel(self, name: str, path: str | None = None, **spec: Any) -> str:
        """Make a channel, by default one of type http to the receiver's `path`; its path, or its secret for `path` None."""
        if path is not None:
            spec = {"type": "http", "url": self.receiver.url(path), **spec}
        answer = await self.admin.call("PUT", f"tenants/{self.name}/channels/{name}", spec)
        assert answer.status == 201, answer
        return str(answer.json().get("secret", ""))


class Host:
    """`python -m devhost` on one port, or the host that HOST_START names. It can be started again. The storage belongs to the caller."""

    def __init__(self, folder: Path, storage: str, receiver: Receiver, sources: Path = ROOT, **environment: str) -> None:
        """sources: the repository to run, in a former version perhaps."""
        self._output, self._sources = folder / "devhost.txt", sources
        self._port = free_ports("127.0.0.1", 1)[0]
        keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self._environment = {
            **keep,
            "PORT": str(self._port),
            "AZURITE": "off",
            "TocsinStorage": storage,
            "AzureWebJobsStorage": storage,
            "TOCSIN_ADMIN_KEY": ADMIN_KEY,
            "TOCSIN_SIGNING_KEY": "local-signing-key",
            "TOCSIN_LOCAL": "true",
            "TOCSIN_EGRESS_ALLOW": "127.0.0.0/8",
            "TOCSIN_RECEIVER": receiver.url("/demo"),
            "DEVHOST_GRACE": "10",
            **environment,
        }
        self._other = AnyHost(self._port, self._output, self._environment) if START and sources == ROOT else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        return self._process if self._other is None else self._other.process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def text(self) -> str:
        """The output of all runs."""
        return self._output.read_text(errors="replace")

    def start(self) -> Self:
        """Start, and wait for the line that says so."""
        if self._other is not None:
            self._other.start()
            return self
        before = self.text.count(READY) if self._output.exists() else 0
        with self._output.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "devhost", "--no-receiver"],
                cwd=self._sources,
                env=self._environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        ready(self._process, self._output, before)
        return self

    def kill(self) -> None:
        """SIGKILL of the host and of its workers, as when the machine fails."""
        if self._other is not None:
            self._other.kill()
            return
        assert self.process is not None
        for pid in (self.process.pid, *workers(self.process.pid)):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def terminate(self, deadline: float = DEADLINE) -> int:
        """SIGTERM; the exit code, 0 for any host but the devhost."""
        if self._other is not None:
            self._other.terminate(deadline)
            return 0
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return ended(self.process, "the devhost", deadline, lambda: self.text)

    def end(self) -> None:
        """End it whatever its state, as Ctrl-C does; it must not have said anything unexpected."""
        if self.process is not None and self.process.poll() is None:
            try:
                if self._other is not None:
                    self._other.terminate()
                else:
                    self.process.send_signal(signal.SIGINT)
                    assert ended(self.process, "the devhost", seen=lambda: self.text) == 0
            finally:
                if self.process.poll() is None:
                    self.kill()
        unexpected = [line for line in self.text.splitlines() if any(part in line for part in UNEXPECTED)]
        assert not unexpected, unexpected


class System:
    """Storage, app and receiver."""

    def __init__(self, folder: Path, azurite: Azurite, receiver: Receiver, **environment: str) -> None:
        self.azurite, self.receiver = azurite, receiver
        self.host = Host(folder, azurite.connection_string, receiver, **environment)

    @asynccontextmanager
    async def tenant(self, *, patient: bool = False, **settings: Any) -> AsyncIterator[Tenant]:
        """A new tenant with a key and a channel. patient: its clients repeat; see `Api`."""
        name = f"t{next(_numbers)}"
        async with Api(self.host.url, ADMIN_KEY, patient=patient) as admin:
            answer = await admin.call("PUT", f"tenants/{name}", settings)
            assert answer.status == 201, answer
            made = await admin.post(f"tenants/{name}/keys", {"scopes": ["events"]})
            assert made.status == 201, made
            async with Api(self.host.url, made.json()["key"], patient=patient) as api:
                tenant = Tenant(name, api, admin, self.receiver)
                await tenant.channel("default", tenant.path)
                yield tenant


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """One receiver for all tests of a module."""
    running = Receiver().start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Settings of the module's devhost; modules override it."""
    return {}


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver, environment: dict[str, str]) -> Iterator[System]:
    """One devhost for all tests of a module, with storage in memory."""
    with Azurite(memory=True) as azurite:
        running = System(tmp_path_factory.mktemp("devhost"), azurite, receiver, **environment)
        try:
            running.host.start()
            yield running
        finally:
            running.host.end()


@pytest.fixture
async def tenant(system: System) -> AsyncIterator[Tenant]:
    """A tenant of the test's own, in the module's devhost."""
    async with system.tenant() as made:
        yield made
