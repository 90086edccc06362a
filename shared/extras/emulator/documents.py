"""Answers of the metadata service by api-version: documents of Scheduled Events, the machine's own data, errors.

Source: Azure's public pages on Scheduled Events and on the Instance Metadata Service. docs/reference/emulator.md lists what they leave
open.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from email.utils import format_datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from ...core.clock import to_datetime
from .model import ListedEvent, Vm, World
from .scenario import Body
from .transitions import listed_events

PREVIEW = "2017-03-01"
"""This version needs no `Metadata` header, and writes an underscore before the names of machines."""
LATEST = "2020-07-01"
EVENT_VERSIONS = (PREVIEW, "2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01", LATEST)
INSTANCE_VERSIONS = (
    *("2017-04-02", "2017-08-01", "2017-10-01", "2017-12-01", "2018-02-01", "2018-04-02", "2018-10-01", "2019-02-01", "2019-03-11"),
    *("2019-04-30", "2019-06-01", "2019-06-04", "2019-08-01", "2019-08-15", "2019-11-01", "2020-06-01", "2020-07-15", "2020-09-01"),
    *("2020-10-01", "2020-12-01", "2021-01-01", "2021-02-01", "2021-03-01", "2021-05-01", "2021-08-01", "2021-10-01", "2021-11-01"),
    *("2021-11-15", "2021-12-13", "2023-07-01", "2023-11-15", "2024-03-15", "2024-07-17", "2025-04-07"),
)
_FIELDS = {"Description": "2019-04-01", "EventSource": "2019-08-01", "DurationInSeconds": LATEST}
"""Members of an event that older versions lack."""
_TYPES = {"Preempt": "2017-11-01", "Terminate": "2019-01-01"}
"""Events that older versions do not list."""

PAGE = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>The network asks you to sign in.</body></html>"


def document(world: World, vm: Vm, version: str) -> dict[str, Any]:
    """Return the document that the machine gets now."""
    events = [event_document(shown, vm, version) for shown in listed_events(world, vm) if version >= _TYPES.get(shown.type, "")]
    return {"DocumentIncarnation": vm.incarnation, "Events": events}


def event_document(shown: ListedEvent, vm: Vm, version: str) -> dict[str, Any]:
    """Return an event as this version of the API writes it."""
    event_id = {"upper": shown.id.upper(), "lower": shown.id.lower()}.get(vm.spec.ids, shown.id)
    prefix = "_" if version == PREVIEW else ""
    out: dict[str, Any] = {
        "EventId": event_id,
        "EventStatus": shown.status,
        "EventType": shown.type,
        "ResourceType": "VirtualMachine",
        "Resources": [prefix + name for name in shown.resources],
        "NotBefore": "" if shown.status == "Started" else format_datetime(to_datetime(shown.not_before), usegmt=True),
        "Description": shown.description,
        "EventSource": shown.source,
        "DurationInSeconds": shown.duration,
    }
    out = {key: value for key, value in out.items() if version >= _FIELDS.get(key, "")}
    return {key: value for key, value in {**out, **shown.raw}.items() if key not in shown.omit}


def body_of_fault(true: dict[str, Any], body: Body) -> bytes:
    """Return the body of a faulty answer, or the true document for `document`."""
    text = json.dumps(true)
    match body:
        case "document":
            return text.encode()
        case "empty":
            return b""
        case "null":
            return b"null"
        case "truncated":
            return text[: max(1, len(text) * 2 // 3)].encode()
        case "html":
            return PAGE.encode()
        case "list":
            return json.dumps(true["Events"]).encode()
        case "no-events":
            return json.dumps({"DocumentIncarnation": true["DocumentIncarnation"]}).encode()
        case "events-null":
            return json.dumps({**true, "Events": None}).encode()
        case "events-object":
            return json.dumps({**true, "Events": {}}).encode()
        case "text-incarnation":
            return json.dumps({**true, "DocumentIncarnation": str(true["DocumentIncarnation"])}).encode()
        case "no-incarnation":
            return json.dumps({"Events": true["Events"]}).encode()


ERRORS = {
    400: "Bad request",
    404: "Not found",
    405: "Method not allowed",
    410: "Gone for a while: try again within 70 seconds",
    429: "Too many requests",
}


def error(status: int, why: str = "", versions: Sequence[str] = ()) -> bytes:
    """Return the body of a refusal. It lists the newest of `versions` if the version was wrong."""
    text = ERRORS.get(status, "The service failed")
    out: dict[str, Any] = {"error": f"{text}. {why}" if why else text}
    if versions:
        out["newest-versions"] = list(reversed(versions))[:3]
    return json.dumps(out).encode()


def instance(vm: Vm) -> dict[str, Any]:
    """Return the machine's own data. Every value is a string, as in Azure. The host name differs from the machine's name on purpose."""
    spec = vm.spec
    group = "emulated"
    subscription = "00000000-0000-0000-0000-000000000000"
    path = f"/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines/{spec.name}"
    compute = {
        "azEnvironment": "AzurePublicCloud",
        "location": spec.location,
        "name": spec.name,
        "osProfile": {"computerName": spec.hostname or f"{spec.name}-os"},
        "osType": "Linux",
        "placementGroupId": str(uuid5(NAMESPACE_URL, f"{spec.location}/{spec.scope}")),
        "platformFaultDomain": str(spec.fault_domain),
        "platformUpdateDomain": "0",
        "provider": "Microsoft.Compute",
        "resourceGroupName": group,
        "resourceId": path,
        "subscriptionId": subscription,
        "tags": "",
        "vmId": str(uuid5(NAMESPACE_URL, path)),
        "vmScaleSetName": spec.scope,
        "zone": "",
    }
    return {"compute": compute, "network": {"interface": []}}
