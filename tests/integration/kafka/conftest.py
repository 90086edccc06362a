"""Two kinds of brokers, and the whole application on storage in memory, in real time.

One is noida-db (requirements-dev.in): a process that speaks Kafka's protocol, keeps topics on disk, and can be stopped and started again.
The other is librdkafka's own mock cluster (mock_cluster.py). A test that takes `broker` runs beside each. Neither is Apache Kafka or Event
Hubs; docs/how-to/kafka.md lists what is therefore not tested.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from devhost.azurite import free_ports
from devhost.starting import DidNotStart
from shared.app.application import Application
from shared.core.clock import SystemClock
from shared.core.settings import Settings
from shared.delivery.channels import open_senders
from shared.delivery.channels.kafka import KafkaSender
from shared.extras.kafka_source import consumer
from shared.extras.kafka_source.ingest import KafkaIngest, consumer_opener
from shared.extras.kafka_source.sources import read_sources
from shared.extras.parts import PARTS, KafkaSettings, build_routes
from shared.storage import memory_storage
from shared.storage.names import QUEUE_RETRIES, QUEUE_SHARDS
from shared.storage.ports import Message
from shared.web.local_client import LocalClient, LocalReply
from tests import waiting

from .cluster import DEADLINE, Cluster
from .mock_cluster import MockCluster

ADMIN, DEMO = "local-admin-key", "local-demo-key"
ROUTES = build_routes()


eventually = partial(waiting.eventually, deadline=DEADLINE)


class Broker(Cluster):
    """A broker on a port of its own, with data in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        [self.port] = free_ports("127.0.0.1", 1)
        super().__init__(f"localhost:{self.port}")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Broker:
        binary = Path(str(files("noida_db").joinpath("noida-db")))
        # Wheels do not keep the bit that makes it a program.
        if not os.access(binary, os.X_OK):
            binary.chmod(0o755)
        command = [str(binary), "start", "--data-dir", str(self.folder), "--only", "kafka", "--kafka-port", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        waiting.wait_until(self._answers, "the broker", DEADLINE)
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise DidNotStart(f"the broker ended with {self._process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            waiting.ended(self._process, "the broker")
            self._process = None


@pytest.fixture(scope="package", params=["noida-db", "librdkafka's mock cluster"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if request.param == "noida-db":
        running = Broker(tmp_path_factory.mktemp("broker")).start()
        yield running
        running.stop()
    else:
        yield request.getfixturevalue("shared_cluster")


@pytest.fixture(scope="package")
def shared_cluster() -> Iterator[MockCluster]:
    cluster = MockCluster()
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(shared_cluster: MockCluster) -> Iterator[MockCluster]:
    """A mock cluster that the test may disturb; afterwards it is whole again."""
    yield shared_cluster
    shared_cluster.restore()


@pytest.fixture(autouse=True)
def short_sessions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of members the mock cluster's groups rest for a session less a second, whoever is there already."""
    if "noida-db" not in request.node.name:
        monkeypatch.setattr(consumer, "SESSION_TIMEOUT", 6)


class App:
    """The whole application on storage in memory, with real senders, and a host that serves its queues."""

    def __init__(self, patience: float = 10.0, **settings: Any) -> None:
        """`patience`: seconds until a message out is given up."""
        self.patience = patience
        self.clock = SystemClock()
        self.storage = memory_storage(self.clock)
        given = {"storage": "UseDevelopmentStorage=true", "admin_key": ADMIN, "signing_key": "local-signing-key", "local": True}
        self.settings = Settings(**(given | {"egress_allow": "localhost, 127.0.0.0/8"} | settings))
        self.app: Application
        self.ended: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> App:
        senders = open_senders(self.settings, self.storage.queues, self.clock, {}) | {
            "kafka": KafkaSender(self.settings, timeout=self.patience)
        }
        self.app = await Application.open(self.settings, parts=PARTS, clock=self.clock, storage=self.storage, senders=senders)
        self._start(self._host())
        return self

    async def close(self) -> None:
        self.app.leave()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.app.close()

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _host(self) -> None:
        while True:
            for queue in (QUEUE_SHARDS, QUEUE_RETRIES):
                for message in await self.storage.queues.receive(queue):
                    self._start(self._serve(queue, message))
            await asyncio.sleep(0.01)

    async def _serve(self, queue: str, message: Message) -> None:
        await self.app.scheduler.serve_message(message.text)
        await self.storage.queues.delete(queue, message)

    async def get_app(self) -> Application:
        return self.app

    async def call(self, method: str, url: str, body: Any = None, *, key: str = DEMO) -> LocalReply:
        return await LocalClient(ROUTES, self.get_app, key=key).call(method, f"/api/v1/{url}", body)

    async def channel(self, broker: Cluster, name: str = "default", **spec: Any) -> None:
        given = {"type": "kafka", "servers": broker.servers, "tls": False} | spec
        answer = await self.call("PUT", f"tenants/demo/channels/{name}", given, key=ADMIN)
        assert answer.status in (200, 201), answer

    async def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.call("GET", "stats")).json()
        return found

    async def tick(self, until: Callable[[], Any] | None = None) -> dict[str, int]:
        """Run one tick of the Kafka timer and return its counts. until: ticks follow each other until this is true. A process of its own
        runs them, because a process that leaves does not come back."""
        if until is None:
            return (await self.app.timers.run_once("ingest_kafka"))["kafka"]
        await self.app.part("kafka").close()
        sources = read_sources(self.settings.of(KafkaSettings).kafka_sources.get_secret_value(), emulated=True)
        ingest = KafkaIngest(
            sources, self.app.scheduler.intake, self.clock, self.settings.of(KafkaSettings).kafka_poll_seconds, consumer_opener(None)
        )
        counts: Counter[str] = Counter()
        left = False

        async def run() -> None:
            # A group can take longer to join than one run.
            while not left:
                counts.update(await ingest.run_once(self.clock.now()))

        running = asyncio.create_task(run())
        await eventually(until, "the end of a tick")
        left = True
        ingest.leave()
        await running
        await ingest.close()
        return counts


def source(broker: Cluster, topic: str, **more: Any) -> str:
    """The setting for one source."""
    return json.dumps([{"servers": broker.servers, "topic": topic, "tenant": "demo", "tls": False} | more])


@pytest.fixture
async def apps() -> AsyncIterator[Callable[..., Any]]:
    """Opens applications; all are closed at the end."""
    opened: list[App] = []

    async def open_app(**settings: Any) -> App:
        app = await App(**settings).open()
        opened.append(app)
        return app

    yield open_app
    for app in opened:
        await app.close()
