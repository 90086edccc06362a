"""Who this machine is: what the file says, else what the metadata service says, else what it said last time."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Final

from ..config.config import NodeSettings
from ..http_exchange import TransportFailure
from ..journal import MARK, REPORTS, STATE, Disk, replace
from .client import Imds, Machine

MACHINE: Final = "machine.json"


def identify(node: NodeSettings, imds: Imds, disk: Disk) -> Machine | TransportFailure:
    """This machine. What the service says is kept for the start when it says nothing; Silence: nobody knows the machine's name."""
    told = imds.machine()
    known = remembered(disk)
    if isinstance(told, Machine):
        replace(disk, MACHINE, json.dumps(asdict(told)).encode())
    elif known is None:
        if not node.vm:
            return told
        told = Machine(node.vm)
    else:
        told = known
    return Machine(*(getattr(node, each.name, "") or getattr(told, each.name) for each in fields(Machine)))


def remembered(disk: Disk) -> Machine | None:
    """What the service said last."""
    try:
        return Machine(**{key: str(value) for key, value in json.loads(disk.read(MACHINE) or b"").items()})
    except (ValueError, TypeError, AttributeError):
        return None


def disown(disk: Disk, before: Machine | None, now: Machine) -> bool:
    """Set aside a state that came here in an image of another machine: its events and its mark are not ours. Whether there was one."""
    if before is None or before.vm == now.vm:
        return False
    for name in (STATE, MARK, REPORTS):
        if disk.read(name) is not None:
            disk.rename(name, f"{name}.of-another")
    disk.flush_names()
    return True
