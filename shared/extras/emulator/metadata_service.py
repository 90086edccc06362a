"""Answer a machine's request as its metadata service would. Pure: (world, machine, request) -> (world, answer).

Requests are checked in this order: rate, header, path, method, query, version, faults. Then they are answered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, unquote

from ...core.clock import Millis
from ...core.readable import count_of
from . import documents
from .model import ImdsFault, Vm, World
from .scenario import FaultSpec
from .steps import approve
from .transitions import add_log_line, listed_for, with_vms

EVENTS_PATH = "/metadata/scheduledevents"
INSTANCE_PATH = "/metadata/instance"
JSON = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class ImdsRequest:
    """A machine's request. The names in `headers` are in lower case; `query` is the text after the question mark."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class ImdsAnswer:
    """The answer to a machine, sent after `delay` milliseconds of real time. `dropped`: the connection is cut instead."""

    status: int
    body: bytes
    content_type: str = JSON
    delay: Millis = 0
    dropped: bool = False


def ask(world: World, name: str, request: ImdsRequest) -> tuple[World, ImdsAnswer]:
    """Return the world after `request` of machine `name`, and the answer."""
    vm = replace(world.vms[name], requests=world.vms[name].requests + 1)
    # Refused requests do not count: otherwise a client that keeps asking would be refused for ever.
    window = tuple(at for at in vm.window if at > world.now - 1000)
    if len(window) >= world.imds.rate:
        world = with_vms(world, [name], lambda _: replace(vm, window=window))
        return _refuse(world, name, request, 429, f"More than {world.imds.rate} a second")
    world = with_vms(world, [name], lambda _: replace(vm, window=(*window, world.now)))
    return _route(world, name, request)


def _route(world: World, name: str, request: ImdsRequest) -> tuple[World, ImdsAnswer]:
    path = request.path.rstrip("/").lower()
    pairs = parse_qsl(request.query, keep_blank_values=True)
    query = dict(pairs)
    version = query.get("api-version", "")
    if request.headers.get("metadata", "").lower() != "true" and not (path == EVENTS_PATH and version == documents.PREVIEW):
        return _refuse(world, name, request, 400, "The header Metadata: true is missing")
    if "x-forwarded-for" in request.headers:
        return _refuse(world, name, request, 400, "X-Forwarded-For: requests must not come through a proxy")
    on_instance = path == INSTANCE_PATH or path.startswith(INSTANCE_PATH + "/")
    if path != EVENTS_PATH and not on_instance:
        return _refuse(world, name, request, 404, "")
    if request.method not in (("GET",) if on_instance else ("GET", "POST")):
        return _refuse(world, name, request, 405, "")
    if len(query) != len(pairs):
        return _refuse(world, name, request, 400, "A query parameter is given twice")
    versions = documents.INSTANCE_VERSIONS if on_instance else documents.EVENT_VERSIONS
    if version not in versions:
        return _refuse(world, name, request, 400, "api-version is missing or not known", versions)
    world, fault = _fault_for(world, name, "instance" if on_instance else request.method.lower())
    if on_instance:
        answer = _instance(world.vms[name], request.path.rstrip("/"), query)
        return _answer_with_fault(world, name, request, fault.spec, answer.body) if fault else (world, answer)
    if request.method == "POST":
        return _post(world, name, request, fault.spec if fault else None)
    return _get(world, name, request, version, fault.spec if fault else None)


def _refuse(
    world: World, name: str, request: ImdsRequest, status: int, why: str, versions: tuple[str, ...] = ()
) -> tuple[World, ImdsAnswer]:
    world = add_log_line(world, "refused", vm=name, text=f"{request.method} {status}{f': {why}' if why else ''}")
    return world, ImdsAnswer(status, documents.error(status, why, versions))


def _fault_for(world: World, name: str, on: str) -> tuple[World, ImdsFault | None]:
    """The fault that takes this request, with one count less; the one that was set last goes first."""
    in_force = [fault for fault in world.faults if (fault.ends is None or world.now < fault.ends) and fault.left != 0]
    found = next((each for each in reversed(in_force) if on in each.spec.on and name in (each.spec.vms or world.vms)), None)
    if found is not None and found.left is not None:
        in_force[in_force.index(found)] = replace(found, left=found.left - 1)
    return replace(world, faults=tuple(in_force)), found


def _answer_with_fault(world: World, name: str, request: ImdsRequest, fault: FaultSpec, body: bytes) -> tuple[World, ImdsAnswer]:
    """Return the world and the answer of a fault. `body` is used if the fault has no body of its own."""
    world = add_log_line(world, "refused", vm=name, text=f"{request.method} {'cut' if fault.drop else fault.status} by a fault")
    if fault.text is not None:
        body = fault.text.encode()
    elif fault.status != 200 and fault.body == "document":
        body = documents.error(fault.status, "", documents.EVENT_VERSIONS if fault.status == 400 else ())
    return world, ImdsAnswer(fault.status, body, "text/html" if fault.body == "html" else JSON, fault.delay, fault.drop)


def _switch_on(world: World, name: str) -> tuple[World, Millis]:
    """Switch the machine's service on if it is off. Returns the world and the milliseconds that this delays the answer."""
    vm = world.vms[name]
    on_at = vm.on_at if vm.on_at is not None else world.now + world.span(world.imds.first_call)
    if vm.on_at is None:
        world = add_log_line(world, "on", vm=name)
    world = with_vms(world, [name], lambda vm: replace(vm, on_at=on_at, asked_at=world.now))
    return world, max(0, on_at - world.now)


def _get(world: World, name: str, request: ImdsRequest, version: str, fault: FaultSpec | None) -> tuple[World, ImdsAnswer]:
    if fault is not None and (fault.status != 200 or fault.drop):
        return _answer_with_fault(world, name, request, fault, b"")
    world, wait = _switch_on(world, name)
    vm = world.vms[name]
    true = documents.document(world, vm, version)
    if fault is not None and (fault.body != "document" or fault.text is not None):
        return _answer_with_fault(world, name, request, fault, documents.body_of_fault(true, fault.body))
    if vm.read != vm.incarnation:
        world = with_vms(world, [name], lambda vm: replace(vm, read=vm.incarnation))
        world = add_log_line(world, "read", vm=name, text=f"incarnation {vm.incarnation}, {count_of(len(true['Events']), 'event')}")
    return world, ImdsAnswer(200, documents.body_of_fault(true, "document"), delay=wait + (fault.delay if fault is not None else 0))


def _post(world: World, name: str, request: ImdsRequest, fault: FaultSpec | None) -> tuple[World, ImdsAnswer]:
    fails = fault is not None and (fault.status != 200 or fault.drop or fault.body != "document" or fault.text is not None)
    if fails and fault is not None and not fault.applied:
        return _answer_with_fault(world, name, request, fault, b"")
    wanted = _start_requests(request.body)
    if wanted is None:
        return _refuse(world, name, request, 400, "The body is not {'StartRequests': [{'EventId': '...'}]}")
    world, wait = _switch_on(world, name)
    world, unknown = _approve_all(world, name, wanted)
    if fails and fault is not None:
        return _answer_with_fault(world, name, request, fault, b"")
    if unknown and world.imds.unknown_event != 200:
        return _refuse(world, name, request, world.imds.unknown_event, f"No such event: {unknown[0]}")
    return world, ImdsAnswer(200, b"", delay=wait + (fault.delay if fault is not None else 0))


def _start_requests(body: bytes) -> list[str] | None:
    """Return the ids to approve, or None for a malformed body."""
    try:
        requests = json.loads(body)["StartRequests"]
        ids = [each["EventId"] for each in requests]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return ids if isinstance(requests, list) and ids and all(isinstance(each, str) for each in ids) else None


def _approve_all(world: World, name: str, wanted: list[str]) -> tuple[World, list[str]]:
    """Approve the events that the machine's document lists. Returns the world and the ids that it does not list."""
    unknown = []
    for event_id in wanted:
        listed = {event.shown.id.casefold(): event for event in listed_for(world, world.vms[name])}
        if (event := listed.get(event_id.casefold())) is None:
            unknown.append(event_id)
        else:
            world = approve(world, event, name)
    return world, unknown


def _instance(vm: Vm, path: str, query: Mapping[str, str]) -> ImdsAnswer:
    """Return the machine's data, or the part that the path selects."""
    here: Any = documents.instance(vm)
    for part in path[len(INSTANCE_PATH) :].split("/")[1:]:
        found = {key.lower(): value for key, value in here.items()} if isinstance(here, dict) else {}
        if (key := unquote(part).lower()) not in found:
            return ImdsAnswer(404, documents.error(404))
        here = found[key]
    wanted = query.get("format", "json")
    if isinstance(here, str):
        if wanted != "text":
            return ImdsAnswer(400, documents.error(400, "A single value needs format=text"))
        return ImdsAnswer(200, here.encode(), "text/plain; charset=utf-8")
    if wanted == "text":
        return ImdsAnswer(200, "\n".join(here).encode(), "text/plain; charset=utf-8")
    return ImdsAnswer(200, json.dumps(here).encode())
