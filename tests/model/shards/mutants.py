"""Broken protocols. Each leaves out one rule of the protocol; the checker must find the hole it opens.

A mutant patches production functions while a play is explored. `plays` names those in which it must be caught.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shared.engine.effects import LOST, Get, Load, Write
from shared.scheduler import rules
from shared.scheduler.facets import FACETS, finding
from shared.scheduler.facets.finding import Labels, States
from shared.scheduler.keys import END_EVENTS, FIRST_EVENT, GATE, Address, index_partition, shard_tenant
from shared.scheduler.points import Filing
from shared.scheduler.protocol import changing, dispatch, holding, ingest, moving, owning
from shared.scheduler.shard import gate
from shared.scheduler.shard.gate import HeldGate, parse_gate
from shared.storage.names import EVENTS, IDS, LEDGER, SHARDS, SWEEPS
from shared.storage.ports import ANY, Applied, Delete, Insert, Merge, Row, Upsert

from ..checking.checker import Report, explore
from ..checking.mutants import Mutant, Patch, relay
from .callback_mutants import CALLBACK_MUTANTS
from .callbacks import CALLBACK_PLAYS
from .end_mutants import END_MUTANTS
from .end_plays import END_PLAYS
from .express import EXPRESS_PLAYS
from .express_mutants import EXPRESS_MUTANTS
from .held_mutants import HELD_MUTANTS
from .long_work import LONG_WORK_PLAYS
from .long_work_mutants import LONG_WORK_MUTANTS
from .plays import PLAYS
from .world import World


def batch_not_tied() -> list[Patch]:
    def add_ops(found: gate.Gate, held: HeldGate | None, entries: Any) -> Any:
        return (Upsert(GATE, found.props()), *(Insert(entry.row, entry.props) for entry in entries))

    return [(ingest, "add_ops", add_ops)]


def _deliver_unclaimed(states: frozenset[str]) -> list[Patch]:
    """Rows in `states` are delivered without a claim."""
    plain_plan, plain_claimed = owning.plan, owning.claimed

    def plan(session: owning.OwnerSession, outcomes: Mapping[str, Any], claims: Any) -> Any:
        claims = [rk for rk in claims if session.rows[rk].props["state"] not in states]
        changes = plain_plan(session, outcomes, claims)
        for rk, outcome in outcomes.items():
            if session.rows[rk].props["state"] in states:
                changes[rk] = {"state": outcome.state, **outcome.props}
        return changes

    def claimed(session: owning.OwnerSession, started: Any) -> list[str]:
        ready = plain_claimed(session, started)
        return ready + [rk for rk, row in session.rows.items() if row.props["state"] in states]

    return [(owning, "plan", plan), (owning, "claimed", claimed)]


def elsewhere_without_fence() -> list[Patch]:
    def fence(shard: str, held: HeldGate | None, initial: gate.Gate) -> Any:
        return None
        yield

    return [(ingest, "fence", fence)]


def read_back_without_fence() -> list[Patch]:
    def fence(shard: str, held: HeldGate | None, initial: gate.Gate) -> Any:
        row = yield Get(EVENTS, shard, GATE)
        if row is None or (held is not None and row.etag == held.etag):
            return None  # it looks as if the write was not applied: go elsewhere
        return HeldGate(parse_gate(row.props), row.etag) if row.props["holder"] == initial.holder else None

    return [(ingest, "fence", fence)]


def settlement_resent() -> list[Patch]:
    plain = owning.step

    def step(session: owning.OwnerSession, outcomes: Mapping[str, Any], claims: Any) -> Any:
        steps = plain(session, outcomes, claims)
        effect = next(steps)
        try:
            while True:
                answer = yield effect
                if answer is LOST and outcomes and isinstance(effect, Write):
                    ops = tuple(op if op.rk == GATE else Merge(op.rk, op.props, ANY) for op in effect.ops)
                    again = yield Write(effect.table, effect.pk, tuple(op for op in ops if op.rk != GATE))
                    answer = Applied([session.held.etag, *again.etags]) if isinstance(again, Applied) else again
                effect = steps.send(answer)
        except StopIteration as stop:
            return stop.value

    return [(owning, "step", step)]


def done_while_retrying() -> list[Patch]:
    plain = rules.agenda

    def agenda(rows: Any, *args: Any, **more: Any) -> rules.Agenda:
        found = plain(rows, *args, **more)
        waiting = all(props["state"] in rules.FINAL or props["state"] == "retrying" for props in rows.values())
        return found._replace(finished=found.finished or waiting, claim=[] if waiting else found.claim)

    return [(rules, "agenda", agenda)]


def unconditional_fence() -> list[Patch]:
    def fence(shard: str, held: HeldGate | None, initial: gate.Gate) -> Any:
        row = yield Get(EVENTS, shard, GATE)
        if row is not None and row.props["holder"] != initial.holder:
            return None
        found = parse_gate(row.props) if row is not None else initial
        answer = yield Write(EVENTS, shard, (Upsert(GATE, found.props()),))
        return HeldGate(found, answer.etags[0]) if isinstance(answer, Applied) else None

    return [(owning, "fence", fence), (ingest, "fence", fence)]


def unconditional_rows() -> list[Patch]:
    plain = owning.step

    def step(session: owning.OwnerSession, outcomes: Any, claims: Any) -> Any:
        def change(effect: Any) -> Any:
            if isinstance(effect, Write) and effect.table == EVENTS:
                ops = tuple(op if op.rk == GATE or not isinstance(op, Merge) else Merge(op.rk, op.props, ANY) for op in effect.ops)
                return Write(effect.table, effect.pk, ops)
            return effect

        return relay(plain(session, outcomes, claims), change)

    return [(owning, "step", step)]


def lost_claim_taken_as_done() -> list[Patch]:
    plain = owning.step

    def step(session: owning.OwnerSession, outcomes: Any, claims: Any) -> Any:
        def revise(effect: Any, answer: Any) -> Any:
            if answer is LOST and isinstance(effect, Write) and len(effect.ops) > 1 and claims:
                return Applied([session.held.etag, *(session.rows[op.rk].etag for op in effect.ops[1:])])
            return answer

        return relay(plain(session, outcomes, claims), revise=revise)

    return [(owning, "step", step)]


def firing_rows_skipped() -> list[Patch]:
    return [(rules, "needs_claim", lambda props, epoch: props["state"] in rules.WAITING)]


def index_before_ledger() -> list[Patch]:
    def close(filing: Filing, found: gate.Gate, entry: Any, named: str, *_: Any) -> Any:
        shard = filing.shard
        for key in sorted({named, found.index} - {""}):
            yield Write(SHARDS, index_partition(shard), (Delete(key, ANY),))
        props = {**entry, "shard": shard, **dict(zip(found.counts._fields, found.counts, strict=True))}
        row = Upsert(f"{filing.bucket}:{shard}", props)
        while not isinstance((yield Write(LEDGER, shard_tenant(shard), (row,))), Applied):
            pass

    return [(owning, "close", close)]


def state_row_after() -> list[Patch]:
    plain, before_settle = owning.step, States.before_settle

    def step(session: owning.OwnerSession, outcomes: Any, claims: Any) -> Any:
        held = yield from plain(session, outcomes, claims)
        yield from before_settle(States(), session.filing, owning.counted(session, {}))
        return held

    def nothing(*_: Any) -> Any:
        return
        yield

    return [(owning, "step", step), (States, "before_settle", nothing)]


def state_row_of_unfinished() -> list[Patch]:
    def remove_stale(row: Row) -> Any:
        state, _, shard = row.rk.partition(":")
        rows = yield Load(EVENTS, shard, FIRST_EVENT, END_EVENTS)
        if not any(finding.in_state(each.props, state) for each in rows):
            yield Write(SWEEPS, row.pk, (Delete(row.rk, row.etag),))

    return [(finding, "remove_stale", remove_stale)]


def state_row_without_a_gate() -> list[Patch]:
    """A state row whose shard has no gate yet is removed, although the index has the shard."""
    plain = finding.remove_stale

    def remove_stale(row: Row) -> Any:
        def revise(effect: Any, answer: Any) -> Any:
            return None if isinstance(effect, Get) and effect.table == SHARDS else answer

        return relay(plain(row), revise=revise)

    return [(finding, "remove_stale", remove_stale)]


def label_row_after() -> list[Patch]:
    """The label rows of a batch are filed after it."""
    plain = ingest.append

    def append(opened: ingest.OpenShard, entries: Any) -> Any:
        known, opened.known = opened.known, {finding.label_digest("k", "v"): ""}
        stored = yield from plain(opened, entries)
        opened.known = known
        yield from Labels().before_store(opened.filing, [entry.props for entry in entries])
        return stored

    return [(ingest, "append", append)]


def label_row_of_unfinished() -> list[Patch]:
    def remove_stale(row: Row) -> Any:
        label, _, shard = row.rk.partition(":")
        rows = yield Load(EVENTS, shard, FIRST_EVENT, END_EVENTS)
        if not any(finding.has_digest(each.props, label) for each in rows):
            yield Write(SWEEPS, row.pk, (Delete(row.rk, row.etag),))

    return [(finding, "remove_stale", remove_stale)]


def label_row_before_the_gate() -> list[Patch]:
    """The label rows of a moved event are filed before its copy, which has no index row yet."""
    plain = moving._placed

    def placed(shard: str, row: Row, *given: Any) -> Any:
        target = moving.target_shard(shard, f"move:{row.rk}", 0)
        yield from Labels().before_store(Filing(target, "197001010000", {}), (row.props,))
        return (yield from plain(shard, row, *given))

    def nothing(*_: Any) -> Any:
        return
        yield

    return [(moving, "_placed", placed), (Labels, "on_move", nothing)]


def no_flag() -> list[Patch]:
    def claim_props(props: Any, epoch: int) -> Any:
        return {"state": "firing", "epoch": epoch, "tries": int(props.get("tries", 0)) + 1}

    return [(rules, "claim_props", claim_props)]


def no_sealing() -> list[Patch]:
    def read_named(place: Address) -> Any:
        return (yield Get(EVENTS, place.shard, place.row))

    return [(ingest, "read_named", read_named)]


def delete_then_insert() -> list[Patch]:
    def move(address: Address, due: int, change: Any, nonce: str, match: Any = None) -> Any:
        asked = False
        while True:
            row = yield Get(EVENTS, address.shard, address.row)
            if row is None and not asked:
                return "missing"
            if row is None:
                break
            if changing.may_change(row.props) != "yes":
                return "already-firing"
            asked = True
            if isinstance((yield Write(EVENTS, address.shard, (Delete(row.rk, row.etag),))), Applied):
                break
        copy = {"id": "x", "state": "scheduled", "due": due}
        target = yield from moving.place(address.shard, f"move:{address.row}", {address.row: copy}, due)
        yield from changing.file_shard(target[address.row].shard, due, sent=False)
        return changing.Done((yield Get(EVENTS, *target[address.row])))

    return [(changing, "move", move)]


def joining_unsealed() -> list[Patch]:
    """A process that finds no copy of a joining event moves the event elsewhere, although its writer may still store the copy."""

    def read_named(place: Address) -> Any:
        return (yield Get(EVENTS, place.shard, place.row))

    return [(moving, "read_named", read_named)]


def joined_before_stored() -> list[Patch]:
    """A move that points to the shared shard before the copy is there."""

    def begin_join(address: Address, due: int, change: Any, nonce: str, goal: Address, match: Any = None) -> Any:
        return (yield from changing.edit(address, {"state": "moved", "target": goal.text}, match))

    def is_joining(row: Row, goal: Address) -> bool:
        return row.props.get("target") == goal.text

    def end_join(row: Row, copy: Row) -> Any:
        return changing.Done(copy, moved=True)
        yield

    return [(changing, "begin_join", begin_join), (changing, "is_joining", is_joining), (changing, "end_join", end_join)]


def moving_cancelled_in_place() -> list[Patch]:
    plain = changing.cancel

    def cancel(address: Address, now: int, nonce: str, match: Any = None) -> Any:
        row = yield Get(EVENTS, address.shard, address.row)
        if row is not None and row.props["state"] == "moving":
            answer = yield Write(EVENTS, row.pk, (Merge(row.rk, {"state": "cancelled", "by": nonce}, row.etag),))
            if isinstance(answer, Applied):
                return changing.Done(row)
        return (yield from plain(address, now, nonce, match))

    return [(changing, "cancel", cancel)]


def larger_at_former_due() -> list[Patch]:
    """A larger event moves with the due time that was read before the move."""

    def edit_or_move(address: Address, change: Any, nonce: str, match: Any = None) -> Any:
        row = yield from changing.find(address)
        if row is None:
            return "missing"
        return (yield from changing.move(address, int(row.props["due"]), change, nonce, match))

    return [(changing, "edit_or_move", edit_or_move)]


def dead_row_first() -> list[Patch]:
    def redrive(source: str, rows: Any, now: int, nonce: str, keep: Any = None) -> Any:
        shard = changing.target_shard(source, "redrive", 0)
        for rk, row in rows.items():
            yield from changing.point(source, row, Address(shard, rk), FACETS)
        yield from changing.file_shard(shard, now, sent=False)
        placed: dict[str, Address] = {}
        yield from changing.place_at(
            shard, {rk: {**changing.copied(row.props, now, FACETS), "tries": 0} for rk, row in rows.items()}, placed, now
        )
        return placed

    return [(changing, "redrive", redrive)]


def placed_before_marked() -> list[Patch]:
    """A redrive that places the copy by a mark which is not stored."""

    def mark(source: str, rows: Any, nonce: str) -> Any:
        return {rk: replace(row, props={moving.REDRIVE: nonce, **row.props}) for rk, row in rows.items()}
        yield

    return [(changing, "mark", mark)]


def mark_overwritten() -> list[Patch]:
    """A redrive that marks a dead row as it is, and not as it was read."""
    plain = changing.mark

    def mark(source: str, rows: Any, nonce: str) -> Any:
        def change(effect: Any) -> Any:
            if isinstance(effect, Write):
                return effect._replace(ops=tuple(op._replace(etag=ANY) for op in effect.ops))
            return effect

        return relay(plain(source, rows, nonce), change)

    return [(changing, "mark", mark)]


def sources_unpointed() -> list[Patch]:
    def point_sources(shard: str, rows: Any, facets: Any) -> Any:
        yield from ()
        return set()

    return [(owning, "point_sources", point_sources)]


def redriven_unnoted() -> list[Patch]:
    def note_redriven(shard: str, ledger_key: str) -> Any:
        yield from ()
        return True

    return [(owning, "note_redriven", note_redriven)]


def id_taken_over_without_etag() -> list[Patch]:
    """The id of an ended event is taken over, although another event may have taken it over since."""
    plain = changing.reuse_id

    def reuse_id(*args: Any) -> Any:
        def change(effect: Any) -> Any:
            if isinstance(effect, Write) and effect.table == IDS:
                ops = tuple(op._replace(etag=ANY) if isinstance(op, Merge) else op for op in effect.ops)
                return Write(effect.table, effect.pk, ops)
            return effect

        return relay(plain(*args), change)

    return [(changing, "reuse_id", reuse_id)]


def mark_without_etag() -> list[Patch]:
    plain = dispatch.dispatch

    def marked(row: Any, now: int) -> Any:
        def change(effect: Any) -> Any:
            if isinstance(effect, Write):
                return Write(effect.table, effect.pk, tuple(Merge(op.rk, op.props, ANY) for op in effect.ops))
            return effect

        return relay(plain(row, now), change)

    return [(dispatch, "dispatch", marked)]


def counts_added() -> list[Patch]:
    def counted(session: owning.OwnerSession, changes: Mapping[str, Any]) -> gate.Counts:
        counts = session.held.gate.counts._asdict()
        for rk, change in changes.items():
            before, after = session.rows[rk].props["state"], change["state"]
            for state, by in ((before, -1), (after, 1)):
                if state in counts:
                    counts[state] += by
        return gate.Counts(**counts)

    return [(owning, "counted", counted)]


def rest_counts_invented() -> list[Patch]:
    plain = owning.rest

    def rest(session: owning.OwnerSession, wake: int, **options: Any) -> Any:
        def change(effect: Any) -> Any:
            if isinstance(effect, Write) and effect.ops[0].rk == GATE:
                (op,) = effect.ops
                return Write(effect.table, effect.pk, (Merge(GATE, {**op.props, "accepted": 77}, op.etag),))
            return effect

        return relay(plain(session, wake, **options), change)

    # `holding` has a name of its own for it.
    return [(owning, "rest", rest), (holding, "rest", rest)]


def ended_without_name() -> list[Patch]:
    """A proof that an owner has ended opens the gate, also when another owner holds it by now."""
    plain = owning.take

    def take(shard: str, named: str, owner: str, facets: Any, *, process: str = "", ended: str = "") -> Any:
        row = yield Get(EVENTS, shard, GATE)
        holder = str(row.props["holder"]) if row is not None and ended else ""
        return (yield from plain(shard, named, owner, facets, row, process=process, ended=holder))

    return [(owning, "take", take)]


def process_without_holder() -> list[Patch]:
    """The recorded process counts for any holder: also for one of a release that left the property as it was."""

    def process_of(found: gate.Gate) -> str:
        return (found.process or "").partition(" ")[2] if found.state == "owned" else ""

    return [(gate, "process_of", process_of)]


MUTANTS = [
    Mutant("a proof that counts for any owner", "dead process", ended_without_name),
    Mutant("a process that counts for any holder", "dead process", process_without_holder),
    Mutant("a batch not tied to the gate", "ingest", batch_not_tied),
    Mutant("claim skipped", "cancel", lambda: _deliver_unclaimed(frozenset({"scheduled"}))),
    Mutant("a retry unclaimed", "retry", lambda: _deliver_unclaimed(frozenset({"retrying"}))),
    Mutant("a lost answer retried without fencing", "ingest", elsewhere_without_fence),
    Mutant("read back without a fence", "ingest", read_back_without_fence),
    Mutant("a settlement re-sent without a fence", "owners", settlement_resent),
    Mutant("done with an event retrying", "retry", done_while_retrying),
    Mutant("an unconditional fence", "owners", unconditional_fence, strands=True),
    Mutant("a gate adopted while rows are written unconditionally", "cancel", unconditional_rows),
    Mutant("a timed-out claim taken as done", "cancel", lost_claim_taken_as_done),
    Mutant("a new owner skipping firing rows", "owners", firing_rows_skipped, strands=True),
    Mutant("index row deleted before the ledger", "owners", index_before_ledger, strands=True),
    Mutant("cancel after a claim of a former epoch", "cancel", no_flag),
    Mutant("id row without sealing", "creators", no_sealing),
    Mutant("a withdrawal without sealing", "withdraw", no_sealing),
    Mutant("delete-then-insert move", "move", delete_then_insert, strands=True),
    Mutant("a joining event moved elsewhere without sealing", "join", joining_unsealed),
    Mutant("a pointer into a shared shard before the copy", "join", joined_before_stored, strands=True),
    Mutant("cancel of a moving row in place", "move and cancel", moving_cancelled_in_place),
    Mutant("a larger event at the due time read before", "move and edit", larger_at_former_due),
    Mutant("redrive that turns the dead row first", "redrive", dead_row_first, strands=True),
    Mutant("a redrive that places before it has marked", "redrive", placed_before_marked),
    Mutant("a mark of a redrive that replaces another", "redrive", mark_overwritten),
    Mutant("a redrive left half-way by the copies' owner", "redrive", sources_unpointed, strands=True),
    Mutant("redriven events not noted in the ledger", "redrive", redriven_unnoted, strands=True),
    Mutant("an id taken over without ETag", "reuse", id_taken_over_without_etag),
    Mutant("a sent mark without ETag", "punctual", mark_without_etag, strands=True),
    Mutant("wrong counts while resting", "retry", rest_counts_invented),
    Mutant("counts added to a former owner's", "two events", counts_added),
    Mutant("a state row after its event", "lists", state_row_after),
    Mutant("a state row of an unfinished shard removed", "lists", state_row_of_unfinished),
    Mutant("a state row of a shard without a gate removed", "lists of late events", state_row_without_a_gate),
    Mutant("a label row after its event", "labels", label_row_after),
    Mutant("a label row of an unfinished shard removed", "labels", label_row_of_unfinished),
    Mutant("a moved event's label row before its copy", "labels", label_row_before_the_gate),
    *EXPRESS_MUTANTS,
    *CALLBACK_MUTANTS,
    *LONG_WORK_MUTANTS,
    *HELD_MUTANTS,
    *END_MUTANTS,
]


def hunt(mutant: Mutant, level: int = 0) -> Report:
    """Hunt the mutant: first for a broken safety property, with the shortest trace; then for a state from which no end can be reached."""
    with mutant.applied():
        for recover in (True,) if mutant.strands else (False, True):
            world = World((PLAYS | EXPRESS_PLAYS | CALLBACK_PLAYS | LONG_WORK_PLAYS | END_PLAYS)[mutant.play](level))
            world.recover = recover
            report = explore(world)
            if report.violation is not None:
                break
    return report
