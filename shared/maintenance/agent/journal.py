"""The agent's files: its state, the mark of a node that it took out of service, and reports that wait for the app.

A file is written beside the old one, flushed, and renamed over it; then the folder is flushed. So a crash leaves the old or the new state,
and never a part. A file that cannot be read, or has a wrong checksum, is set aside for an operator.

The mark is a file of its own. It exists from before the first hook that takes the node out of service until after the node is restored. It
is used only when the state is lost.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

from ..rule_settings import GuardMode
from .model import AppState, EventPhase, EventRecord, NodeState, ScheduledEvent
from .policy import ActionRule, FleetPolicy

STATE: Final = "state.json"
MARK: Final = "disabled"
REPORTS: Final = "reports.jsonl"
MOST_REPORTS = 1000
"""Reports that are kept while the app cannot be reached. The oldest are dropped first, because later ones replace them."""
_VOLATILE: Final = (
    *("at_once", "tries", "retry_at", "hurry", "hook_wanted", "unsure"),
    *("posts", "refusals", "posting", "look_first", "post_at"),
)
_SAVED: Final = tuple(each.name for each in fields(EventRecord) if each.name not in (*_VOLATILE, "event", "phase", "notes"))


class Disk(Protocol):
    """A folder, with the steps between which a machine may stop. Data that was not flushed may then be lost, in part or as a whole."""

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes; None if it does not exist."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file with this content, without flushing it."""

    def append(self, name: str, data: bytes) -> None:
        """Append to a file, without flushing it."""

    def flush(self, name: str) -> None:
        """Flush the file's content to disk."""

    def rename(self, name: str, new: str) -> None:
        """Rename a file, replacing any file of that name, without flushing the folder."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists, without flushing the folder."""

    def flush_names(self) -> None:
        """Flush the folder's list of files to disk."""


def make_private_folder(path: Path) -> None:
    """Create a folder for its owner alone if it does not exist. Missing folders above it get mode 0755 at most. Raises `OSError`."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(mode=0o700 if folder == path else 0o755, exist_ok=True)


class DiskFolder:
    """A real folder, created if needed, readable by its owner alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        make_private_folder(path)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        self._put(name, os.O_TRUNC, data)

    def append(self, name: str, data: bytes) -> None:
        self._put(name, os.O_APPEND, data)

    def flush(self, name: str) -> None:
        _fsync(self._path / name)

    def rename(self, name: str, new: str) -> None:
        os.replace(self._path / name, self._path / new)

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def flush_names(self) -> None:
        _fsync(self._path)

    def _put(self, name: str, flags: int, data: bytes) -> None:
        handle = os.open(self._path / name, os.O_WRONLY | os.O_CREAT | flags, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace(disk: Disk, name: str, data: bytes) -> None:
    """Replace a file atomically. After a crash it is the old or the new one; once this returns, it is the new one."""
    beside = f"{name}.new"
    disk.write(beside, data)
    disk.flush(beside)
    disk.rename(beside, name)
    disk.flush_names()


def _remove(disk: Disk, name: str) -> None:
    disk.remove(name)
    disk.flush_names()


class LoadedState(NamedTuple):
    """The loaded state, the result of reading its file, and whether the mark exists. StartUp carries all three."""

    state: NodeState
    found: Literal["kept", "none", "corrupt"]
    marker: bool


class Journal:
    """Keeps the state file and the mark. Raises the disk's OSError, because without a saved state the agent must not act."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._saved: bytes | None = None
        self._last: NodeState | None = None

    def load(self) -> LoadedState:
        """Return the state as last saved, or a new one. A file that cannot be read is set aside."""
        marker = self._disk.read(MARK) is not None
        data = self._disk.read(STATE)
        if data is None:
            return LoadedState(NodeState(), "none", marker)
        try:
            state = decode(data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._set_aside()
            return LoadedState(NodeState(), "corrupt", marker)
        if marker and not state.disabled:
            # A crash happened between the two writes: before a hook that never ran, or after the node was restored.
            _remove(self._disk, MARK)
        return LoadedState(state, "kept", marker)

    def save(self, state: NodeState) -> bool:
        """Save a state before its effects are carried out. Returns false if the saved state is the same already."""
        last = self._last
        if last is not None and last.events is state.events and _beside(last) == _beside(state):
            return False
        data = encode(state)
        if data == self._saved:
            self._last = state
            return False
        # In this order no crash leaves a node out of service without the mark.
        if state.disabled:
            if self._disk.read(MARK) is None:
                replace(self._disk, MARK, b"The agent took this node out of service.\n")
            replace(self._disk, STATE, data)
        else:
            replace(self._disk, STATE, data)
            if self._disk.read(MARK) is not None:
                _remove(self._disk, MARK)
        self._saved, self._last = data, state
        return True

    def _set_aside(self) -> None:
        number = 1
        while self._disk.read(f"{STATE}.bad-{number}") is not None:
            number += 1
        self._disk.rename(STATE, f"{STATE}.bad-{number}")
        self._disk.flush_names()


def _beside(state: NodeState) -> object:
    """Return the saved fields except the events."""
    return state.boot_id, state.disabled, state.policy, state.in_step, state.app.holds, state.restores


def encode(state: NodeState) -> bytes:
    """Encode the saved part of a state: one line of JSON, and one with its checksum."""
    body = {
        "format": 1,
        "boot_id": state.boot_id,
        "disabled": state.disabled,
        "in_step": state.in_step,
        "restores": list(state.restores),
        "holds": dict(state.app.holds),
        "policy": None if state.policy is None else _policy_out(state.policy),
        "events": [_record_out(record) for record in state.events.values()],
    }
    data = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    return data + f"\n{zlib.crc32(data):08x}\n".encode()


def decode(data: bytes) -> NodeState:
    """Decode a state file. Raises ValueError, KeyError, TypeError or AttributeError if it is invalid."""
    body, _, rest = data.partition(b"\n")
    if rest != f"{zlib.crc32(body):08x}\n".encode():
        raise ValueError("the checksum is wrong")
    raw = json.loads(body.decode("utf-8", "surrogatepass"))
    if raw["format"] != 1:
        raise ValueError("the file has the format of another version")
    records = [_record_in(each) for each in raw["events"]]
    # An agent of an earlier release did not write the fields that are read with `get`.
    policy = raw.get("policy")
    return NodeState(
        raw["boot_id"],
        raw["disabled"],
        {record.event.event_id: record for record in records},
        None if policy is None else _policy_in(policy),
        raw.get("in_step", False),
        tuple(float(each) for each in raw.get("restores", ())),
        app=AppState(holds={str(event_id): str(reason) for event_id, reason in raw.get("holds", {}).items()}),
    )


def _policy_out(policy: FleetPolicy) -> dict[str, Any]:
    rules = [{"action": rule.action, "type": rule.type, "source": rule.source, "max_seconds": rule.max_seconds} for rule in policy.rules]
    return {
        "of": policy.of,
        "lead": policy.lead,
        "leads": dict(policy.leads),
        "require_central": policy.require_central,
        "rules": rules,
        "guard": policy.guard,
        "catch_up": policy.catch_up,
    }


def _policy_in(raw: dict[str, Any]) -> FleetPolicy:
    # Fields of a later release are ignored. A former release stored neither guard nor catch-up time.
    known = {each.name: raw[each.name] for each in fields(FleetPolicy) if each.name not in ("guard", "catch_up")}
    rules = tuple(ActionRule(rule["action"], rule["type"], rule["source"], rule["max_seconds"]) for rule in raw["rules"])
    guard: GuardMode = "prepare" if raw.get("guard") == "prepare" else "approve"
    return FleetPolicy(**{**known, "rules": rules, "guard": guard, "catch_up": float(raw.get("catch_up", 0))})


def _record_out(record: EventRecord) -> dict[str, Any]:
    event = {each.name: getattr(record.event, each.name) for each in fields(ScheduledEvent)}
    return {"event": event, "phase": record.phase, "notes": sorted(record.notes), **{name: getattr(record, name) for name in _SAVED}}


def _record_in(raw: dict[str, Any]) -> EventRecord:
    event = ScheduledEvent(**{**raw["event"], "resources": tuple(raw["event"]["resources"])})
    return EventRecord(event=event, phase=EventPhase(raw["phase"]), notes=frozenset(raw["notes"]), **{name: raw[name] for name in _SAVED})


class ReportBacklog:
    """Reports that could not be delivered, oldest first, kept on disk. Each is one line. A line cut by a crash is dropped."""

    def __init__(self, disk: Disk, most: int = MOST_REPORTS) -> None:
        self._disk, self._most = disk, most
        kept = disk.read(REPORTS) or b""
        self._lines = [line for line in kept.splitlines(keepends=True) if _whole(line)]
        self._cut = b"".join(self._lines) != kept
        """The file ends in a cut line, and is written anew with the next report: an agent on a full disk starts."""

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, report: dict[str, Any]) -> None:
        """Add a report."""
        line = json.dumps(report, separators=(",", ":")).encode() + b"\n"
        self._lines.append(line)
        if self._cut or len(self._lines) > self._most:
            # Drop half of them at once, so that not every further report rewrites the file.
            if len(self._lines) > self._most:
                del self._lines[: len(self._lines) - max(1, self._most // 2)]
            self._rewrite()
        else:
            # If the disk fails, a part of the line may be there.
            self._cut = True
            self._disk.append(REPORTS, line)
            self._disk.flush(REPORTS)
            if len(self._lines) == 1:
                self._disk.flush_names()
            self._cut = False

    def first(self, count: int) -> Sequence[dict[str, Any]]:
        """Return the oldest `count` reports."""
        return [json.loads(line) for line in self._lines[:count]]

    def delivered(self, count: int) -> None:
        """Remove the oldest `count` reports, which were delivered."""
        if count > 0:
            del self._lines[:count]
            self._rewrite()

    def _rewrite(self) -> None:
        if self._lines:
            replace(self._disk, REPORTS, b"".join(self._lines))
        else:
            _remove(self._disk, REPORTS)
        self._cut = False


def _whole(line: bytes) -> bool:
    try:
        return line.endswith(b"\n") and isinstance(json.loads(line), dict)
    except ValueError:
        return False
