"""The eventgrid channel: CloudEvents published to an Event Grid topic through azure-eventgrid, with the app's identity.

Deliveries to one endpoint within a few milliseconds share a request (at most 100 events, 1 MiB). All events of a batch get its verdict.
Only if the service rejects the content (400, 413), the batch is halved until the invalid event is alone.

The identity's token goes to Azure's own domains only. An endpoint elsewhere must be on the egress allow-list and gets a placeholder key;
that is for emulators.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.core.messaging import CloudEvent
from azure.core.serialization import NULL
from yarl import URL

from ...core.clock import Clock, SystemClock, to_datetime
from ...core.settings import Settings
from ..egress_guard import Egress, grid_problem, is_azure
from . import cloudevents, rules
from .content import JSON
from .model import EventGridChannel
from .ports import OutgoingDelivery, Target, Verdict

MAX_BATCH = 100
MAX_BATCH_BYTES = 1024 * 1024
LINGER = 0.002
"""Seconds that a first event waits for others."""
TIMEOUT = 15.0
"""Time limit of one request in seconds, including the connection."""
_ENVELOPE = 512
"""Bytes allowed for the attributes before the payload, in addition to id and source."""


class TopicPublisher(Protocol):
    """The used part of `azure.eventgrid.aio.EventGridPublisherClient`."""

    def send(self, events: list[CloudEvent[Any]], /) -> Awaitable[None]:
        """Publish one batch. Raises AzureError if it was not accepted."""

    async def close(self) -> None:
        """Release connections."""


type Publishers = Callable[[str], TopicPublisher]
"""Opens a publisher for an endpoint."""


@dataclass(slots=True)
class _Item:
    event: CloudEvent[Any]
    size: int
    verdict: asyncio.Future[Verdict]


@dataclass(slots=True)
class _Batch:
    items: list[_Item] = field(default_factory=list)
    size: int = 0


class AzurePublishers:
    """Publishers of the SDK, which share one credential that is made when first needed."""

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        self._credential: Any = None

    def __call__(self, endpoint: str) -> TopicPublisher:
        # Imported here, because it costs half a second of start-up that an app without such channels need not spend.
        from azure.eventgrid.aio import EventGridPublisherClient
        from azure.identity.aio import DefaultAzureCredential

        credential: Any = AzureKeyCredential("none")
        if is_azure(URL(endpoint)):
            if self._credential is None:
                self._credential = DefaultAzureCredential(managed_identity_client_id=self._client_id)
            credential = self._credential
        # Retries are the scheduler's task; a redirect could carry events out of the domain.
        client: TopicPublisher = EventGridPublisherClient(
            endpoint, credential, retry_total=0, permit_redirects=False, connection_timeout=TIMEOUT, read_timeout=TIMEOUT
        )
        return client

    async def close(self) -> None:
        """Close the credential, after the publishers."""
        credential, self._credential = self._credential, None
        if credential is not None:
            await credential.close()


class EventGridSender:
    """Sends eventgrid deliveries. `publishers` opens clients and is replaced in tests; `close` closes all of them."""

    def __init__(
        self, settings: Settings, clock: Clock | None = None, *, publishers: Publishers | None = None, linger: float = LINGER
    ) -> None:
        self._egress = Egress(settings.egress_names)
        self._clock: Clock = clock or SystemClock()
        self._azure = AzurePublishers(settings.client_id)
        self._open: Publishers = publishers or self._azure
        self._linger = linger
        self._clients: dict[str, TopicPublisher] = {}
        self._waiting: dict[str, _Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def problem(self, spec: EventGridChannel) -> str | None:
        """Return the reason why a channel with these settings can never deliver, or None."""
        return grid_problem(spec.endpoint, self._egress)

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        """Publish the event together with others for the same endpoint and return the verdict of that batch."""
        spec = target.spec
        if not isinstance(spec, EventGridChannel):
            raise TypeError(f"not an eventgrid channel: {spec.type}")
        if problem := self.problem(spec):
            return Verdict("final", None, problem)
        try:
            if delivery.content_type != JSON:
                # The SDK writes bytes as `data_base64`.
                data: Any = delivery.body
                size = (len(data) + 2) // 3 * 4 + len(delivery.content_type)
            else:
                data = json.loads(delivery.body or b"null")
                # The SDK writes it the same way: ASCII only, with a space after each comma and colon.
                size = len(json.dumps(data, allow_nan=False))
            size += len(delivery.id) + _ENVELOPE
        except (ValueError, RecursionError):
            return Verdict("final", None, "the payload cannot be sent to Event Grid: too deep, or a number beyond its range")
        if size > MAX_BATCH_BYTES:
            return Verdict("final", None, f"the event is about {size} bytes; Event Grid takes {MAX_BATCH_BYTES}")
        event: CloudEvent[Any] = CloudEvent(
            source=cloudevents.source(target),
            type=cloudevents.TYPE,
            id=delivery.id,
            time=to_datetime(delivery.due),
            datacontenttype=delivery.content_type,
            data=NULL if data is None else data,
            extensions=cloudevents.extensions(delivery),
        )
        item = _Item(event, size, asyncio.get_running_loop().create_future())
        self._join(spec.endpoint, item)
        return await item.verdict

    def _join(self, endpoint: str, item: _Item) -> None:
        batch = self._waiting.get(endpoint)
        if batch is not None and batch.size + item.size > MAX_BATCH_BYTES:
            batch = None  # the full one is left to its own task, which holds it
        if batch is None:
            batch = self._waiting[endpoint] = _Batch()
            self._start(self._publish_soon(endpoint, batch))
        batch.items.append(item)
        batch.size += item.size
        if len(batch.items) >= MAX_BATCH:
            del self._waiting[endpoint]

    def _start(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish_soon(self, endpoint: str, batch: _Batch) -> None:
        try:
            await self._clock.sleep(self._linger)
            if self._waiting.get(endpoint) is batch:
                del self._waiting[endpoint]
            await self._publish(endpoint, [item for item in batch.items if not item.verdict.done()])
        except BaseException as error:
            # No delivery may be left waiting, whatever happened: the attempts end with an unknown result and are repeated.
            for item in batch.items:
                if not item.verdict.done():
                    item.verdict.set_result(Verdict("retry", None, f"event grid: {type(error).__name__} before an answer"))
            if not isinstance(error, Exception):
                raise

    async def _publish(self, endpoint: str, items: list[_Item]) -> None:
        if not items:
            return
        verdict = await self._attempt(endpoint, [item.event for item in items])
        if verdict.outcome == "final" and verdict.status in (None, 400, 413) and len(items) > 1:
            half = len(items) // 2
            await self._publish(endpoint, items[:half])
            await self._publish(endpoint, items[half:])
            return
        for item in items:
            if not item.verdict.done():
                item.verdict.set_result(verdict)

    async def _attempt(self, endpoint: str, events: list[CloudEvent[Any]]) -> Verdict:
        client = self._clients.get(endpoint)
        if client is None:
            client = self._clients[endpoint] = self._open(endpoint)
        try:
            async with asyncio.timeout(TIMEOUT):
                await client.send(events)
        except HttpResponseError as error:
            return self._judge(error)
        except TimeoutError:
            return Verdict("retry", None, f"event grid: no answer within {TIMEOUT:g} s")
        except (AzureError, OSError) as error:
            return Verdict("retry", None, f"event grid cannot be reached: {type(error).__name__}")
        except (ValueError, TypeError, RecursionError):
            return Verdict("final", None, "the payload cannot be sent to Event Grid: the client library refuses it")
        return Verdict("delivered", 200)

    def _judge(self, error: HttpResponseError) -> Verdict:
        status = error.status_code
        if status is None:
            what = "no token for the identity" if isinstance(error, ClientAuthenticationError) else "no answer"
            return Verdict("retry", None, f"event grid: {what}")
        if status in (401, 403):
            # A new role assignment takes minutes to work; a final verdict would turn a slow deployment into dead letters.
            return Verdict("retry", status, f"answered {status}: the identity lacks the role EventGrid Data Sender on this topic")
        if status == 404:
            return Verdict("retry", status, "answered 404: no such topic")
        headers = getattr(error.response, "headers", None) or {}
        return rules.judge(status, headers.get("Retry-After"), self._clock.now())

    async def close(self) -> None:
        """Wait for running requests, then close the clients."""
        while pending := [task for task in self._tasks if not task.done()]:
            await asyncio.gather(*pending, return_exceptions=True)
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close()
        await self._azure.close()
