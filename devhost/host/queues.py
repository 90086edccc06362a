"""Queue triggers: polls Azure Storage queues and runs one invocation a message, with the host's semantics.

A message is leased for ten minutes and the lease renewed at half time. Success deletes it. A failure makes it visible again
after host.json's `visibilityTimeout`, or, at `maxDequeueCount`, moves it to `<queue>-poison`, where it lives for seven days. A
queue that does not exist is polled until it does, with a warning each time. Messages whose functions run when the host ends stay hidden for
the rest of their lease. Whatever goes wrong with storage is logged and tried again; only an endpoint that refuses connections for as long
as the host's six tries take ends the host, as `Refused` says.
"""

import asyncio
import base64
import binascii
import contextlib
import errno
import json
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from azure.core.exceptions import AzureError, ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import QueueMessage
from azure.storage.queue.aio import QueueClient, QueueServiceClient

from devhost.flex import RefusedTries
from devhost.host.settings import QueueOptions, connection, resolve
from devhost.worker.model import FunctionInfo, Invoker, TypedValue

log = logging.getLogger("devhost.queues")
storage_log = logging.getLogger("Azure.Core")
"""The category in which the host's storage client logs; host.json chooses its level."""

LEASE = 600.0  # seconds, hard-coded in the host as well
FIRST_DELAY = 0.1  # seconds, the first pause after an empty poll
STOP_TIMEOUT = 5.0  # seconds for the last poll to come back
POISON = "-poison"
TAKEN_OVER = ("MessageNotFound", "PopReceiptMismatch")  # errors when the message is no longer the host's


@dataclass(frozen=True)
class Refused:
    """The consequence for the host when an endpoint refuses connections."""

    ends: float
    """Seconds of refusals without an answer after which the host ends."""
    end: Callable[[str], None]
    """Ends the host; takes the reason, and returns at once."""


class QueueFunctions:
    """All queue-triggered functions; owns the storage clients, one a connection string."""

    def __init__(
        self,
        worker: Invoker,
        functions: list[FunctionInfo],
        options: QueueOptions,
        *,
        lease: float = LEASE,
        refused: Refused | None = None,
        stuck: float = 0.0,
    ) -> None:
        """Reads connections and queue names from the environment; SettingsError when one is missing. refused: by default, refused
        connections end nothing. stuck: share of the messages that are taken and never begun."""
        self._services: dict[str, QueueServiceClient] = {}
        self._refused, self._stuck = refused, stuck
        self.listeners = [
            self._listener(worker, function, options, lease) for function in functions if function.trigger["type"] == "queueTrigger"
        ]

    def _listener(self, worker: Invoker, function: FunctionInfo, options: QueueOptions, lease: float) -> "QueueListener":
        text = connection(function.trigger.get("connection", ""))
        service = self._services.get(text)
        if service is None:
            # Short retries for settling messages: shutdown must not wait for the SDK's default of minutes.
            service = self._services[text] = QueueServiceClient.from_connection_string(
                text, initial_backoff=1, increment_base=1, retry_total=2, random_jitter_range=0, connection_timeout=5
            )
        queue = resolve(function.trigger["queueName"])
        return QueueListener(worker, function, service, queue, options, lease, self._refused, self._stuck)

    def start(self) -> None:
        """Starts polling, one task a function."""
        for listener in self.listeners:
            listener.start()

    async def stop_polling(self) -> None:
        """Fetches no more; messages that are being worked on go on."""
        await asyncio.gather(*(listener.stop_polling() for listener in self.listeners))

    async def close(self) -> None:
        """Waits for finished messages to be settled, abandons the others, then closes the clients."""
        await self.stop_polling()
        await asyncio.gather(*(listener.settled() for listener in self.listeners))
        await self._close_services()

    async def cut(self) -> None:
        """End as a host that is killed, without a word to storage: messages that were taken stay hidden for the rest of their lease."""
        await asyncio.gather(*(listener.cut() for listener in self.listeners))
        await self._close_services()

    async def _close_services(self) -> None:
        for service in self._services.values():
            await service.close()


@dataclass
class _Held:
    """A message whose function runs. The pop receipt changes with each renewal."""

    message: QueueMessage
    pop_receipt: str


class QueueListener:
    """Polls the queue of one function."""

    def __init__(
        self,
        worker: Invoker,
        function: FunctionInfo,
        service: QueueServiceClient,
        queue: str,
        options: QueueOptions,
        lease: float,
        refused: Refused | None = None,
        stuck: float = 0.0,
    ) -> None:
        self.queue = queue
        self._refused, self._stuck = refused, stuck
        self._tries = RefusedTries(refused.ends) if refused is not None else None
        self._worker = worker
        self._function = function
        self._service = service
        self._client: QueueClient = service.get_queue_client(queue)
        self._options = options
        self._lease = lease
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._stop = asyncio.Event()
        self._down = False
        self._poller: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the polling task."""
        self._poller = asyncio.create_task(self._poll(), name=f"poll {self.queue}")

    async def stop_polling(self) -> None:
        """Ends polling. A poll under way may come back, or its messages would be hidden for the whole lease."""
        self._stop.set()
        self._room.set()
        if self._poller is not None:
            await asyncio.wait({self._poller}, timeout=STOP_TIMEOUT)
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)

    async def cut(self) -> None:
        """End at once, without a word to storage."""
        self._stop.set()
        tasks = [*self._tasks, *([self._poller] if self._poller is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def settled(self) -> None:
        """Waits until every message taken so far is deleted, given back or moved."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _poll(self) -> None:
        delay = FIRST_DELAY
        while not self._stop.is_set():
            if len(self._tasks) > self._options.new_batch_threshold:
                self._room.clear()
                await self._room.wait()
                continue
            batch = await self._receive()
            for message in batch:
                self._take(message)
            if batch:
                delay = FIRST_DELAY
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), delay)
            delay = min(delay * 2, self._options.max_polling_interval)

    async def _receive(self) -> list[QueueMessage]:
        try:
            # The poll loop is the retry; one inside the SDK as well would only hold up a shutdown.
            pages = self._client.receive_messages(
                messages_per_page=self._options.batch_size, visibility_timeout=int(self._lease), retry_total=0
            ).by_page()
            messages = [message async for message in await anext(pages)]
        except ResourceNotFoundError as error:
            storage_log.warning("queue %s: %s", self.queue, _line(error))
            messages = []
        except StopAsyncIteration:
            messages = []
        except Exception as error:  # nothing may end the poll loop
            if not self._down:
                log.warning("queue %s: storage does not answer, trying again: %s", self.queue, _line(error))
            self._down = True
            self._note(refused=is_refused(error), error=_line(error))
            return []
        self._note(refused=False)
        if self._down:
            log.info("queue %s: storage answers again", self.queue)
        self._down = False
        return messages

    def _note(self, *, refused: bool, error: str = "") -> None:
        if self._tries is None or self._refused is None:
            return
        if not refused:
            self._tries.answered()
        elif self._tries.refused(time.monotonic()):
            self._refused.end(f"queue {self.queue}: {error}")

    def _take(self, message: QueueMessage) -> None:
        if self._stuck and random.random() < self._stuck:
            log.info("queue %s: message %s is taken and not begun; it stays hidden", self.queue, message.id)
            return
        held = _Held(message, message.pop_receipt or "")
        task = asyncio.create_task(self._work(held))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if len(self._tasks) <= self._options.new_batch_threshold:
            self._room.set()
        if not task.cancelled() and task.exception() is not None:
            log.error("queue %s: a message could not be settled", self.queue, exc_info=task.exception())

    async def _work(self, held: _Held) -> None:
        message = held.message
        count, limit = message.dequeue_count or 0, self._options.max_dequeue_count
        has_poison = not self.queue.endswith(POISON)
        if has_poison and count > limit:  # its earlier tries ended without an answer, with the process
            await self._poison(held, f"it was taken {count} times")
            return
        try:
            body = self._decode(message.content)
        except (binascii.Error, ValueError):
            if has_poison:
                await self._poison(held, "it is not base64")
            else:
                log.error("queue %s: Message decoding has failed: message %s is not base64, it stays hidden", self.queue, message.id)
            return
        succeeded = await self._invoke(held, body)
        if succeeded is None:
            return  # cut off by the end of the host, which says nothing to storage either
        if succeeded:
            await self._delete(held)
        elif not has_poison:
            # The host leaves these to their lease, or they would come back at once and for ever.
            log.error("queue %s: message %s failed; it has no poison queue, it stays hidden", self.queue, message.id)
        elif count >= limit:
            await self._poison(held, f"it failed {count} times")
        else:
            await self._give_back(held, self._options.visibility_timeout)

    def _decode(self, content: str) -> bytes:
        return base64.b64decode(content, validate=True) if self._options.base64 else content.encode()

    async def _invoke(self, held: _Held, body: bytes) -> bool | None:
        """Runs the function and keeps the lease meanwhile; whether it succeeded, None when it was cancelled."""
        text = _text(body)
        if str(self._function.trigger.get("dataType", "")).lower() == "binary":
            data: TypedValue = "bytes", body
        elif text is not None:
            data = "string", text
        else:
            log.error("function %s failed: message %s is not UTF-8, it cannot be bound to text", self._function.name, held.message.id)
            return False
        run = asyncio.create_task(self._worker.invoke(self._function, data, _metadata(held.message, text)))
        # Renewing between waits instead of in a task of its own: a renewal never races with the final delete.
        while not (await asyncio.wait({run}, timeout=self._lease / 2))[0]:
            await self._renew(held)
        if run.cancelled():
            return None
        return run.result().error is None

    async def _renew(self, held: _Held) -> None:
        try:
            updated = await self._client.update_message(held.message.id, held.pop_receipt, visibility_timeout=int(self._lease))
            held.pop_receipt = updated.pop_receipt or held.pop_receipt
        except (AzureError, OSError, TimeoutError) as error:
            log.warning("queue %s: message %s was not renewed: %s", self.queue, held.message.id, _line(error))

    async def _give_back(self, held: _Held, delay: float) -> None:
        try:
            await self._client.update_message(held.message.id, held.pop_receipt, visibility_timeout=int(delay))
        except (AzureError, OSError, TimeoutError) as error:
            level = logging.DEBUG if getattr(error, "error_code", None) in TAKEN_OVER else logging.WARNING
            log.log(level, "queue %s: message %s was not given back: %s", self.queue, held.message.id, _line(error))

    async def _delete(self, held: _Held) -> None:
        try:
            await self._client.delete_message(held.message.id, held.pop_receipt)
        except (AzureError, OSError, TimeoutError) as error:
            # A function that takes a lease of its own deletes its message. The host logs this at debug level too.
            level = logging.DEBUG if getattr(error, "error_code", None) in TAKEN_OVER else logging.WARNING
            log.log(level, "queue %s: finished message %s was not deleted: %s", self.queue, held.message.id, _line(error))

    async def _poison(self, held: _Held, reason: str) -> None:
        target = self._service.get_queue_client(self.queue + POISON)
        log.error("queue %s: message %s moves to %s: %s", self.queue, held.message.id, target.queue_name, reason)
        try:
            try:
                await target.send_message(held.message.content)
            except ResourceNotFoundError:
                await _create(target)
                await target.send_message(held.message.content)
        except (AzureError, OSError, TimeoutError) as error:
            log.error("queue %s: message %s was not moved: %s", self.queue, held.message.id, _line(error))
            return
        await self._delete(held)


async def _create(client: QueueClient) -> None:
    try:
        await client.create_queue()
    except ResourceExistsError:
        log.debug("queue %s was created meanwhile", client.queue_name)


def _metadata(message: QueueMessage, text: str | None) -> dict[str, TypedValue]:
    return {
        **({"QueueTrigger": ("string", text)} if text is not None else {}),
        "Id": ("string", message.id or ""),
        "DequeueCount": ("json", str(message.dequeue_count or 0)),
        "InsertionTime": _moment(message.inserted_on),
        "ExpirationTime": _moment(message.expires_on),
        "NextVisibleTime": _moment(message.next_visible_on),
        "PopReceipt": ("string", message.pop_receipt or ""),
    }


def _moment(moment: datetime | None) -> TypedValue:
    return "json", json.dumps(moment.isoformat() if moment is not None else None)


def _text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def is_refused(error: BaseException | None) -> bool:
    """Return True if a connection was refused: nothing listens at the endpoint."""
    while error is not None:
        if getattr(error, "errno", None) == errno.ECONNREFUSED:
            return True
        error = error.__cause__ or error.__context__
    return False


def _line(error: BaseException) -> str:
    """The first line of an error; the SDK's go on with request ids and XML."""
    return (str(error).splitlines() or [type(error).__name__])[0]
