"""Queues and tasks of Google Cloud Tasks, as `gcloud tasks queues describe` and `gcloud tasks list` print them as JSON. Pure."""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from ...delivery.channels.content import is_content_type
from ...delivery.channels.event_target import BODILESS, METHODS
from ...delivery.channels.model import LONGEST_TIMEOUT
from ..declared.references import escaped
from ..terminal.documents import parse_sendable
from .carried import Carried, Source, documents_of, free_name, object_of, text_of, to_channel

_NAME: Final = re.compile(r"projects/[^/]+/locations/[^/]+/queues/([^/]+)(?:/tasks/([^/]+))?")
_OTHER_BODIES: Final = ("application/json", "application/cloudevents")
"""Content types that an event with a body of bytes cannot have."""
_UNTYPED: Final = "application/octet-stream"
"""Type of a body for which a task names none that an event takes; Cloud Tasks sends it for a task without one."""
_SECONDS: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")
_OWN_HEADERS: Final = frozenset({"user-agent", "content-type", "content-length", "host"})
_SECRET_HEADER: Final = re.compile(r"authorization|cookie|token|secret|key|password|signature|auth", re.I)
_FREE_HEADER: Final = re.compile(r"x-(?!goog-|appengine-|cloudtasks-|forwarded-|real-|original-|http-|user|auth)[a-z0-9-]{1,100}", re.I)
"""Headers that an event may set; the service refuses some of them, too."""


class _Queue(NamedTuple):
    name: str
    entry: Mapping[str, Any]


def carry(sources: Sequence[Source], carried: Carried) -> None:
    """Carry queues and tasks over. Raises ValueError for what is not JSON."""
    queues: dict[str, _Queue] = {}
    tasks: list[tuple[str, str, str, Mapping[str, Any]]] = []
    for source in sources:
        for entry in _entries(source):
            carried.enter()
            found = _NAME.fullmatch(text_of(entry, "name")) if isinstance(entry, dict) else None
            if found is None:
                do = "Give what gcloud tasks list or gcloud tasks queues describe prints with --format=json."
                carried.lost(source.name, "this is neither a queue nor a task: its name is no name of Cloud Tasks", do)
            elif found[2] is None:
                queues[found[1]] = _Queue(found[1], entry)
            else:
                tasks.append((f"{source.name}: {found[2]}", found[1], found[2], entry))
    channels: dict[tuple[str, str], str] = {}
    for queue in queues.values():
        _queue(queue, carried)
    for where, queue_name, id, entry in tasks:
        _task(where, queues.get(queue_name, _Queue(queue_name, {})), id, entry, channels, carried)
    for queue in queues.values():
        if not any(name == queue.name for name, _ in channels):
            if carried.target.url:
                _channel(queue, carried.target.url, channels, carried)
            else:
                carried.lost(f"queue {queue.name}", "no task shows the address of its endpoint", "Give --to URL.")


def _entries(source: Source) -> Iterator[Any]:
    for document in documents_of(source):
        listed = document.get("tasks", document.get("queues")) if isinstance(document, dict) else document
        yield from listed if isinstance(listed, list) else [document]


def _queue(queue: _Queue, carried: Carried) -> None:
    where = f"queue {queue.name}"
    if text_of(queue.entry, "state") not in ("", "RUNNING"):
        carried.part(where, f"it is {queue.entry['state'].lower()}", "Pause the channel: tocsin tenants channels pause.")
    if object_of(queue.entry, "rateLimits").get("maxBurstSize") is not None:
        carried.part(where, "maxBurstSize", "Nothing: a channel's rate has no burst of its own.")
    if object_of(queue.entry, "retryConfig").get("maxDoublings") is not None:
        carried.part(where, "maxDoublings", "Nothing: pauses double until the longest one.")


def _channel(queue: _Queue, url: str, channels: dict[tuple[str, str], str], carried: Carried) -> str:
    """Return the channel of a queue to a host. The first one is named as the queue."""
    if (known := channels.get((queue.name, url))) is not None:
        return known
    name = free_name(to_channel(queue.name), carried.channels)
    rates = object_of(queue.entry, "rateLimits")
    limits: dict[str, Any] = {}
    if isinstance(rate := rates.get("maxDispatchesPerSecond"), int | float) and 0 < rate <= 1_000_000:
        limits["deliveries_per_second"] = rate
    if isinstance(most := rates.get("maxConcurrentDispatches"), int) and 0 < most <= 10_000:
        limits["concurrency"] = most
    carried.channels[name] = {"type": "http", "url": url, **({"limits": limits} if limits else {})}
    channels[queue.name, url] = name
    return name


def _task(where: str, queue: _Queue, id: str, entry: Mapping[str, Any], channels: dict[tuple[str, str], str], carried: Carried) -> None:
    request = object_of(entry, "httpRequest")
    method = text_of(request, "httpMethod") or "POST"
    try:
        address = urlsplit(text_of(request, "url"))
        if not address.hostname or address.scheme not in ("http", "https"):
            raise ValueError("it has no httpRequest with a URL")
        due = _time(text_of(entry, "scheduleTime"))
        if method not in METHODS:
            raise ValueError(f"its method is {method}")
        query = _query(address.query)
        content = _content(request, entry, method)
    except ValueError as wrong:
        carried.lost(where, str(wrong), "Create an event by hand, or let Cloud Tasks deliver it.")
        return
    host = carried.target.url or escaped(f"{address.scheme}://{address.netloc.rpartition('@')[2]}/")
    target: dict[str, Any] = {"path": address.path or "/"}
    if address.query:
        target["query"] = query
    if method != "POST":
        target["method"] = method
    if headers := _headers(request, where, carried):
        target["headers"] = headers
    event: dict[str, Any] = {"due": due, "channel": _channel(queue, host, channels, carried), **content, "target": target}
    deadline = _duration(text_of(entry, "dispatchDeadline"), LONGEST_TIMEOUT / 1000)
    if deadline:
        event["timeout"] = deadline
    elif text_of(entry, "dispatchDeadline"):
        carried.part(where, f"its dispatchDeadline of {entry['dispatchDeadline']}", "Let the receiver answer sooner: see long work.")
    if retry := _retry(object_of(queue.entry, "retryConfig")):
        event["retry"] = retry
    carried.add_event(id, event)
    for token in ("oidcToken", "oauthToken"):
        if request.get(token) is not None:
            carried.part(where, f"its {token}", "Verify the signature, or give the channel entra_audience.")


def _query(text: str) -> dict[str, str]:
    """Return the parameters of a URL. Raises ValueError if one is repeated, which an event cannot do."""
    pairs = parse_qsl(text, keep_blank_values=True)
    query = dict(pairs)
    if len(query) < len(pairs):
        raise ValueError("its URL repeats a parameter")
    return query


def _time(text: str) -> str:
    """Return the time if it is one with an offset. Raises ValueError."""
    with contextlib.suppress(ValueError):
        if datetime.fromisoformat(text).tzinfo is not None:
            return text
    raise ValueError(f"its scheduleTime is no time with an offset: {text or 'there is none'}")


def _content(request: Mapping[str, Any], entry: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Return the fields of an event for a task's body. Raises ValueError."""
    body = text_of(request, "body")
    if not body:
        if method not in BODILESS and text_of(entry, "view") == "BASIC":
            raise ValueError("its body is not in the list: print the tasks with --response-view=full")
        return {} if method in BODILESS else {"payload": {}}
    if method == "GET":
        raise ValueError("it is a GET with a body")
    try:
        content = base64.b64decode(body, validate=True)
    except binascii.Error:
        raise ValueError("its body is not base64") from None
    kind = _type(object_of(request, "headers"))
    if kind == _UNTYPED:
        # Other types keep their bytes: a receiver of text/plain must not get a number as application/json.
        with contextlib.suppress(ValueError):
            return {"payload": parse_sendable(content.decode("utf-8"))}
    return {"payload": base64.b64encode(content).decode(), "content_type": kind}


def _type(headers: Mapping[str, Any]) -> str:
    """Return the content type of a body: that of the task, if events accept it."""
    for name, value in headers.items():
        if name.lower() == "content-type" and isinstance(value, str) and is_content_type(value):
            return _UNTYPED if value.lower().startswith(_OTHER_BODIES) else value
    return _UNTYPED


def _duration(text: str, most: float) -> str:
    """Return a number of seconds as a duration; an empty text if it is none, shorter than a millisecond or longer than `most`."""
    found = _SECONDS.fullmatch(text)
    return f"PT{float(found[1]):.3f}".rstrip("0").rstrip(".") + "S" if found and 0.001 <= float(found[1]) <= most else ""


def _headers(request: Mapping[str, Any], where: str, carried: Carried) -> dict[str, str]:
    found = {}
    for name, value in object_of(request, "headers").items():
        if _SECRET_HEADER.search(name):
            carried.part(where, f"its header {name}, which may be a secret", "Set it as a header of the channel.")
        elif _FREE_HEADER.fullmatch(name) and isinstance(value, str):
            found[name.lower()] = value
        elif name.lower() not in _OWN_HEADERS:
            carried.part(where, f"its header {name}, which an event cannot set", "Set it as a header of the channel.")
    return found


def _retry(config: Mapping[str, Any]) -> dict[str, Any]:
    retry: dict[str, Any] = {}
    if isinstance(attempts := config.get("maxAttempts"), int) and 1 <= attempts <= 100:
        retry["attempts"] = attempts
    for theirs, ours, most in (("minBackoff", "first", 86_400), ("maxBackoff", "max", 604_800), ("maxRetryDuration", "within", 604_800)):
        if found := _duration(text_of(config, theirs), most):
            retry[ours] = found
    return retry
