"""Takes a Cassandra node out of service before an impact and puts it back: clients first, then gossip; back in the opposite order.

Only what was on is switched off, and only that is switched on again. After a reboot nothing is switched on: Cassandra comes up whole,
and what is off then was switched off by an operator. Each step may be done twice.

Settings: nodetool, arguments (of nodetool, for a host or credentials), finish (nothing, flush, or drain: then `service` is restarted to
come back), thrift (Cassandra before 4.0).
"""

from __future__ import annotations

from typing import Any

from .note import Note, StepFailed, do, options, report_failure

_CLIENTS = ("thrift", "binary")


class _Node:
    def __init__(self) -> None:
        self.settings = options()
        self._tool = (self.settings["nodetool"], *self.settings["arguments"])

    def do(self, verb: str) -> str:
        return do(*self._tool, verb)

    def is_on(self, part: str) -> bool:
        output = self.do(f"status{part}").strip().splitlines()
        match output[-1].strip() if output else "":
            case "running":
                return True
            case "not running":
                return False
            case other:
                raise StepFailed(f"status{part} says {other!r}, which is neither running nor not running")


def prepare(event: dict[str, Any]) -> bool:
    """Take the node out of service."""
    try:
        _leave(_Node(), finish=True)
    except StepFailed as error:
        return report_failure("prepare", error)
    return True


def emergency(event: dict[str, Any]) -> bool:
    """Take the node out of service without slow steps, because the impact may come at any moment."""
    try:
        _leave(_Node(), finish=False)
    except StepFailed as error:
        return report_failure("emergency", error)
    return True


def _leave(node: _Node, *, finish: bool) -> None:
    note = Note.read("cassandra")
    if note is None or note.restored or not note.of_this_boot:
        parts = (*(_CLIENTS if node.settings["thrift"] else _CLIENTS[1:]), "gossip")
        note = Note.of("cassandra", [part for part in parts if node.is_on(part)])
        if not note.on:
            print("the node was out of service already, so this hook changes nothing, and the restore hook will not either")
    for part in note.on:
        node.do(f"disable{part}")
    if finish and note.on and node.settings["finish"] != "nothing":
        note.drained = node.settings["finish"] == "drain"
        note.save()
        node.do(node.settings["finish"])


def restore(event: dict[str, Any]) -> bool:
    """Put back into service what `prepare` or `emergency` took out."""
    note = Note.read("cassandra")
    if note is None or note.restored:
        print("the prepare hook switched nothing off")
        return True
    try:
        node = _Node()
        if not note.of_this_boot:
            print("the machine has booted since its preparation: Cassandra starts by itself")
        elif note.drained:
            do("systemctl", "restart", node.settings["service"])
        else:
            for part in reversed(note.on):
                node.do(f"enable{part}")
    except StepFailed as error:
        return report_failure("restore", error)
    note.restored = True
    note.save()
    return True


def verify(event: dict[str, Any]) -> bool:
    """Return true if everything that was on is on again, and the ring shows the node as up and normal."""
    note = Note.read("cassandra")
    if note is not None and not note.on:
        print("the node was out of service before its preparation: there is nothing to verify")
        return True
    try:
        node = _Node()
        off = [part for part in (note.on if note else ("binary", "gossip")) if not node.is_on(part)]
        if off:
            raise StepFailed(f"still off: {', '.join(off)}")
        own = next((line.partition(":")[2].strip() for line in node.do("info").splitlines() if line.partition(":")[0].strip() == "ID"), "")
        lines = [line.split() for line in node.do("status").splitlines()]
        states = [words[0] for words in lines if own and own in words]
        if states != ["UN"]:
            raise StepFailed(f"the ring shows host {own or '(without an ID)'} as {states or 'unknown'}, not UN")
    except StepFailed as error:
        return report_failure("verify", error)
    return True
