"""Identifies this machine: from the file, else from the metadata service, else from its last answer."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Final

from ....core.http_exchange import TransportFailure
from ...azure_names import same_name
from ..journal import MARK, REPORTS, STATE, Disk, replace
from .client import Imds, Machine

MACHINE: Final = "machine.json"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The identity of this node. IMDS supplies the fields that are empty."""

    name: str = ""
    vm: str = ""
    scope: str = ""
    location: str = ""
    fault_domain: str = ""


def identify(node: NodeSettings, imds: Imds, disk: Disk) -> Machine | TransportFailure:
    """Return this machine. The service's answer is saved for a start without one. TransportFailure: the machine's name is unknown.

    Raises the disk's OSError.
    """
    machine = imds.machine()
    known = remembered(disk)
    if isinstance(machine, Machine):
        # An agent on a full disk starts if nothing has changed.
        if machine != known:
            replace(disk, MACHINE, json.dumps(asdict(machine)).encode())
    elif known is None:
        if not node.vm:
            return machine
        machine = Machine(node.vm)
    else:
        machine = known
    return Machine(*(getattr(node, each.name, "") or getattr(machine, each.name) for each in fields(Machine)))


def remembered(disk: Disk) -> Machine | None:
    """Return the last answer of the service; None if there is none."""
    try:
        return Machine(**{key: str(value) for key, value in json.loads(disk.read(MACHINE) or b"").items()})
    except (ValueError, TypeError, AttributeError):
        return None


def _is_same(before: Machine, now: Machine) -> bool:
    """Return true if two answers are about one machine: the names of machines are unique in a resource group only."""
    same_resource = not (before.resource_id and now.resource_id) or same_name(before.resource_id, now.resource_id)
    return same_resource and same_name(before.vm, now.vm)


def disown(disk: Disk, before: Machine | None, now: Machine) -> bool:
    """Set aside the state of another machine, from which this one's image was made. Returns true if there was one."""
    if before is None or _is_same(before, now):
        return False
    for name in (STATE, MARK, REPORTS):
        if disk.read(name) is not None:
            disk.rename(name, f"{name}.of-another")
    disk.flush_names()
    return True
