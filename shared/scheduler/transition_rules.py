"""Judges which changes of a gate and of its event rows are legal. Pure: the model checker judges its worlds by these functions, and
`tocsin verify-trace` judges what production has logged.

Each function returns a sentence that names the broken rule, or '' for a legal change. A change that no rule of
the protocol makes is illegal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..core.clock import Millis
from .rules import FINAL, may_take, tally
from .shard.gate import Gate, process_of


def judge_gate(before: Gate | None, after: Gate, age: Millis | None = None) -> str:
    """Judge a write of a gate. before: None if there was none. age: of the gate when the writer read it; None if that is not known."""
    if before is None:
        if after.state == "open" or (after.state == "owned" and after.epoch == 1):
            return ""
        return f"a new gate is {after.state} at epoch {after.epoch}: only an open one, or one owned at epoch 1, can be made"
    if after.epoch == before.epoch:
        return _judge_holder(before, after)
    if after.epoch != before.epoch + 1:
        return f"the epoch goes from {before.epoch} to {after.epoch}: each take adds 1"
    if after.state != "owned" or not after.holder:
        return f"epoch {after.epoch} begins {after.state}: an epoch begins with a take"
    if before.state == "done":
        return f"{after.holder} takes a gate that is done"
    if age is not None and not may_take(before, age) and not process_of(before):
        return f"{after.holder} takes the gate of {before.holder}, which was written {age} ms before, and whose end is not proven"
    return ""


def _judge_holder(before: Gate, after: Gate) -> str:
    """Judge a write within an epoch: its holder's, or a seal."""
    sealed = before.state == after.state == "open" and not after.holder
    if after.holder != before.holder and not sealed:
        return f"the gate's holder goes from {before.holder or 'none'} to {after.holder or 'none'} at epoch {before.epoch}, without a take"
    if before.state != after.state and (before.state != "owned" or after.state == "open"):
        return f"the gate goes from {before.state} to {after.state} at epoch {before.epoch}, without a take"
    if before.state == "done" and after.counts != before.counts:
        return f"the counts of a done gate change from {tuple(before.counts)} to {tuple(after.counts)}"
    return ""


def judge_owner(epochs: Mapping[tuple[str, int], str], shard: str, gate: Gate) -> str:
    """Judge that an epoch of a shard has one owner. epochs: the owners known so far."""
    known = epochs.get((shard, gate.epoch))
    if gate.epoch and gate.holder and known not in (None, gate.holder):
        return f"epoch {gate.epoch} has two owners: {known} and {gate.holder}"
    return ""


def judge_event(rk: str, before: Mapping[str, Any] | None, after: Mapping[str, Any], gate: Gate | None) -> str:
    """Judge a write of an event row. before: None if the row is new or not known. gate: of the same transaction; None without one."""
    state = str(after.get("state", ""))
    former = str(before.get("state", "")) if before is not None else ""
    if former in FINAL and state != former:
        return f"{rk} leaves the final state {former} for {state}"
    if state == "firing" and former != "firing" and (gate is None or gate.state != "owned" or after.get("epoch") != gate.epoch):
        held = f"owned at epoch {gate.epoch}" if gate is not None else "not written with it"
        return f"{rk} is claimed under epoch {after.get('epoch')}, while the gate is {held}"
    if state in ("delivered", "dead") and former in ("scheduled", "retrying") and before is not None and not before.get("work"):
        return f"{rk} is {state} without a claim: it was {former}"
    return ""


def judge_settlement(rk: str, before: Mapping[str, Any] | None, after: Mapping[str, Any], *, gated: bool, works: bool = False) -> str:
    """Judge that only the owner settles a claimed event. gated: its gate is part of the transaction. works: a receiver has the event."""
    if before is not None and before.get("state") == "firing" and after.get("state") != "firing" and not gated and not works:
        return f"{rk} is settled as {after.get('state')} without the gate of its shard"
    return ""


def judge_rest(gate: Gate, states: Iterable[str], unseen: Mapping[str, int] = Counter()) -> str:
    """Judge the counts of a gate that rests. states: of all its event rows. unseen: numbers of rows that receivers have ended since the
    owner last looked. Rows that users have cancelled or moved since are counted by the next owner."""
    listed = sorted(states)
    found, after = tally(listed), gate.counts
    fits = after.accepted == found.accepted and found.delivered - unseen.get("delivered", 0) <= after.delivered <= found.delivered
    if not fits or not found.dead - unseen.get("dead", 0) <= after.dead <= found.dead:
        return f"the gate rests with {tuple(after)}, the rows are {dict(Counter(listed))}"
    return ""


def judge_done(gate: Gate, states: Iterable[str], *, complete: bool = True) -> str:
    """Judge a gate that is done. states: of all its event rows. complete: False if users' last changes of rows may be missing there: they
    cancel and move events without the gate."""
    listed = sorted(states)
    found, after = tally(listed), gate.counts
    rows = dict(Counter(listed))
    if after.open:
        return f"the gate is done with {after.open} open events: {tuple(after)}"
    if complete and any(state not in FINAL for state in listed):
        return f"the gate is done with open events: {rows}"
    fits = (after.accepted, after.delivered, after.dead) == (found.accepted, found.delivered, found.dead)
    unseen = (after.cancelled - found.cancelled, after.moved - found.moved, after.lapsed - found.lapsed)
    if not fits or min(unseen) < 0 or sum(unseen) != found.open:
        return f"the gate is done with {tuple(after)}, the rows are {rows}"
    return ""


def judge_removal(rk: str, before: Mapping[str, Any] | None) -> str:
    """Judge that a row is removed. Retention removes a finished shard's rows, and the gate last. before: None if it is not known."""
    state = before.get("state") if before is not None else None
    if state is not None and state not in FINAL | {"done"}:
        return f"{rk} is removed while it is {state}"
    return ""
