"""Processes of a history that can see each other's end: every second one runs on the same machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.core.process_identity import ProcessIdentity

if TYPE_CHECKING:
    from .instance import Instance

SHARE = 8
"""One history in this many has processes that can prove that another process of their machine has ended."""


class SimProcess(ProcessIdentity):
    """The identity of an instance. It judges as the real one does: by what the machine knows for certain."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._box = _box_of(instance)
        host = instance.world.host
        self.first = not any(_box_of(each) == self._box for each in (*host.instances, *host.graves) if each is not instance)

    @property
    def name(self) -> str:
        return f"{self._box} {self._instance.name}"

    def has_ended(self, name: str) -> bool:
        box, _, number = name.partition(" ")
        return box == self._box and self.gone(number)

    def gone(self, name: str) -> bool:
        """Return whether the instance of that name is dead. One that stands still is not."""
        return any(each.name == name for each in self._instance.world.host.graves)


def _box_of(instance: Instance) -> str:
    return f"m{sum(map(ord, instance.name)) % 2}"


def process_of(instance: Instance) -> SimProcess | None:
    """Return the identity of an instance, if its history has identities."""
    return SimProcess(instance) if instance.world.seed % SHARE == SHARE - 1 else None
