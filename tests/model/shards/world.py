"""The world of the shard protocol: a store that judges, messages, a clock, faults within a budget, and machines that run production code.

Faults: any write's answer may be lost, while the request stays under way and may be applied at any later time, or never; any machine may
crash between two effects; messages may be doubled or lost; an owner that is alive may be suspected dead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from shared.engine.effects import LOST, Get, Send, Write
from shared.scheduler import rules, transition_rules
from shared.scheduler.facets.finding import LABEL_ROWS, LISTED, MARK, STATE_ROWS, digests_of, has_digest, in_state, key_of, partition_of
from shared.scheduler.keys import FIRST_EVENT, GATE, MIRRORED, NEWS, index_shard, parse_address, place_of
from shared.scheduler.properties.owed import CALLBACK_OF, OWED, callback_channel
from shared.scheduler.properties.work_rows import Work, noted_work, work_of
from shared.scheduler.protocol.dispatch import ShardMessage
from shared.scheduler.protocol.moving import SOURCE, is_redriven, parse_redriven
from shared.scheduler.shard.gate import COUNTS, Gate, parse_gate
from shared.storage.names import EVENTS, IDS, LEDGER, SHARDS, SWEEPS
from shared.storage.ports import ANY, Applied, Delete, Insert, Merge, Replace, Upsert, WriteRefused

from ..checking.checker import FROM_HERE, Violation
from ..checking.machine import Machines
from ..checking.state import (
    ABSENT,
    LIVE,
    SPENT,
    Actor,
    Budget,
    Cell,
    Found,
    HasEnded,
    Now,
    Play,
    Start,
    State,
    Store,
    Sweep,
    Told,
    Until,
    describe,
    renamed,
    row_of,
    spent,
    summary,
)
from .ends import judge_counted, judge_ends
from .held import held_shard, judge_held


def judged_as(prop: str, broken: str) -> None:
    """Raise `Violation` of a property for a sentence of `transition_rules`, which judge traces of production too."""
    if broken:
        raise Violation(f"{prop}: {broken}")


class World:
    """The model that the checker explores."""

    def __init__(self, play: Play) -> None:
        self.play, self.machines = play, Machines()
        self._good: set[Hashable] = set()
        self._images: list[dict[Hashable, int]] = [{} for _ in range(1 + len(play.symmetry))]
        self._numbers: dict[Hashable, int] = {}
        self._late: dict[Hashable, Write] = {}
        self._described: dict[int, str] = {}
        self._read: tuple[Store, dict[Cell, Found]] = (frozenset(), {})
        self._applied: dict[tuple[Store, str, int], tuple[Store, Applied | WriteRefused]] = {}
        """Transactions that broke no rule: the store before, who wrote, and the write's number; the store after, and the answer."""
        self._writes: dict[Hashable, int] = {}
        """Numbers of writes by their image."""
        self.recover = True

    # -- states

    def initial(self) -> State:
        state = State(self.play.times[0], self.play.stored, (), frozenset(), frozenset(), frozenset(), 0, self.play.budget)
        return self._started(state)

    def _started(self, state: State) -> State:
        """Bring in the actors whose guard has come true."""
        for name, (kind, make, guard) in self.play.starts.items():
            if ("began", name) not in state.acked and guard(state.acked):
                number = self.machines.spawn((kind, name), make)
                state = state._replace(
                    acked=state.acked | {("began", name)}, actors=tuple(sorted((*state.actors, Actor(name, kind, number))))
                )
        return state

    def key(self, state: State) -> Hashable:
        if not self.play.symmetry:
            return state
        return min(self._image(state, known, mapping) for known, mapping in zip(self._images, ({}, *self.play.symmetry), strict=True))

    def _image(self, state: State, known: dict[Hashable, int], mapping: dict[str, str]) -> tuple[Any, ...]:
        """The state under other names, its parts by number. known: the numbers of the parts that were met before."""

        def number(part: Hashable) -> int:
            found = known.get(part)
            if found is None:
                whole = (part.name, part.kind, self.machines[part.machine].frozen) if isinstance(part, Actor) else part
                found = known[part] = self._numbers.setdefault(renamed(mapping, whole), len(self._numbers))
            return found

        parts = [number(part) for part in (state.store, state.messages, state.limbo, state.acked)]
        return (state.now, state.owners, state.budget, *parts, *sorted([number(actor) for actor in state.actors]))

    def _cells(self, state: State) -> dict[Cell, Found]:
        """The store by cell: version and properties, None where a row was deleted."""
        store, cells = self._read
        if store is not state.store:
            cells = {cell: (version, props) for cell, version, props in state.store}
            # Steps from one state are made one after the other.
            self._read = state.store, cells
        return cells

    def _describe(self, actor: Actor) -> str:
        text = self._described.get(actor.machine)
        if text is None:
            text = self._described[actor.machine] = describe(self.machines[actor.machine].effect)
        return text

    # -- steps

    def successors(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        yield from self._calm(state)
        for actor in state.actors:
            yield from self._faults(state, actor)
        for late in state.limbo:
            yield f"late request of {late[0]} arrives: {describe(self._late[late[1]])}", lambda w=late: self._arrive(state, w)
        if state.budget.double and state.budget.owners:
            for text in self._stale(state):
                label = f"a doubled message starts o{state.owners + 1}"
                yield label, lambda t=text: self._spend(self._receive(state, t, keep=True), "double")

    def _faults(self, state: State, actor: Actor) -> Iterator[tuple[str, Callable[[], State]]]:
        effect, budget = self.machines[actor.machine].effect, state.budget
        if isinstance(effect, Write) and budget.lost:
            yield f"{actor.name}: {self._describe(actor)} -> answer lost", lambda: self._lose(state, actor)
        if isinstance(effect, Send) and budget.drop:
            yield f"{actor.name}: message lost", lambda: self._spend(self._resume(state, actor, True), "drop")
        if isinstance(effect, Start) and budget.fail and state.now >= effect.due:
            yield f"{actor.name}: delivers {effect.event}: fails", lambda: self._spend(self._deliver(state, actor, False), "fail")
        if isinstance(effect, Start) and budget.later and state.now >= effect.due:
            label = f"{actor.name}: delivers {effect.event}: accepted, to be completed later"
            yield label, lambda: self._spend(self._deliver(state, actor, "later"), "later")
        if isinstance(effect, Get) and effect.rk == GATE and budget.suspect and self._alive(state, effect):
            label = f"{actor.name}: takes the living owner for dead"
            yield label, lambda: self._spend(self._look(state, actor, old=True), "suspect")
        if budget.crash and actor.kind != "user":
            yield f"{actor.name}: crashes", lambda: self._crash(state, actor)

    def _stale(self, state: State) -> list[str]:
        """Messages that may arrive once more."""
        if not self.play.direct:
            return sorted(state.messages)
        gone = (cell[2] for cell, _, props in state.store if cell[0] == SHARDS and props is None)
        return sorted(ShardMessage(index_shard(key), key).text() for key in gone)

    def _calm(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        """Steps without a fault."""
        later = [at for at in self.play.times if at > state.now]
        if later:
            yield f"the clock shows {later[0]}", lambda: state._replace(now=later[0])
        for actor in state.actors:
            effect = self.machines[actor.machine].effect
            if isinstance(effect, Write):
                yield f"{actor.name}: {self._describe(actor)}", lambda a=actor: self._write(state, a)
            elif isinstance(effect, Send):
                yield f"{actor.name}: sends a message", lambda a=actor: self._send(state, a)
            elif isinstance(effect, Start):
                if state.now >= effect.due:
                    yield f"{actor.name}: delivers {effect.event}", lambda a=actor: self._deliver(state, a, True)
            elif isinstance(effect, Until):
                if effect.at is not None and state.now >= effect.at:
                    yield f"{actor.name}: wakes", lambda a=actor: self._resume(state, a, None)
            else:
                yield f"{actor.name}: reads {self._describe(actor)}", lambda a=actor: self._look(state, a)
        if state.budget.owners:
            for text in self._asking(state):
                yield f"a message starts o{state.owners + 1}", lambda t=text: self._receive(state, t)
        if not self.play.direct and state.budget.sweeps and sum(actor.kind == "sweep" for actor in state.actors) < self.play.sweeps_at_once:
            yield "the sweep starts", lambda: self._sweep(state)

    def _asking(self, state: State) -> list[str]:
        """Messages that may arrive."""
        if not self.play.direct:
            return sorted(state.messages)
        return sorted(
            ShardMessage(index_shard(cell[2]), cell[2]).text() for cell, _, props in state.store if cell[0] == SHARDS and props is not None
        )

    def _spend(self, state: State, what: str) -> State:
        return state._replace(budget=spent(state.budget, what))

    def _sweep(self, state: State) -> State:
        number = self.machines.spawn(("sweep", state.now), lambda: self.play.sweep(state.now))
        name = next(name for name in ("sweep", "sweep'") if all(actor.name != name for actor in state.actors))
        return self._spend(state._replace(actors=tuple(sorted((*state.actors, Actor(name, "sweep", number))))), "sweeps")

    def _receive(self, state: State, text: str, *, keep: bool = False) -> State:
        name = f"o{state.owners + 1}"
        number = self.machines.spawn(("owner", name, text), lambda: self.play.owner(name, text))
        messages = state.messages if keep else state.messages - {text}
        actors = tuple(sorted((*state.actors, Actor(name, "owner", number))))
        return self._spend(state._replace(actors=actors, messages=messages, owners=state.owners + 1), "owners")

    def _crash(self, state: State, actor: Actor) -> State:
        effect = self.machines[actor.machine].effect
        state = self._spend(state._replace(actors=tuple(a for a in state.actors if a != actor)), "crash")
        if isinstance(effect, Write):
            state = self._under_way(state, actor)
        return self._pruned(state)

    def _under_way(self, state: State, actor: Actor) -> State:
        snapshot = self.machines[actor.machine]
        self._late[snapshot.asked] = snapshot.effect
        return state._replace(limbo=state.limbo | {(actor.name, snapshot.asked)})

    def _resume(self, state: State, actor: Actor, answer: Any, known: Hashable = None) -> State:
        number = self.machines.resume(actor.machine, answer, known)
        rest = [a for a in state.actors if a != actor]
        snapshot = self.machines[number]
        acked = state.acked
        messages = state.messages
        if snapshot.ended:
            for fact in snapshot.result or ():
                if fact[0] == "again":
                    messages = messages if self.play.direct else messages | {fact[1]}
                else:
                    acked = acked | {fact}
        else:
            rest.append(Actor(actor.name, actor.kind, number))
        state = state._replace(actors=tuple(sorted(rest)), acked=acked, messages=messages)
        if not snapshot.ended and isinstance(snapshot.effect, Now):
            return self._resume(state, Actor(actor.name, actor.kind, number), state.now)
        if not snapshot.ended and isinstance(snapshot.effect, Told):
            state = state._replace(acked=state.acked.union(snapshot.effect.facts))
            return self._started(self._resume(state, Actor(actor.name, actor.kind, number), None))
        return self._started(state) if snapshot.ended else state

    def _look(self, state: State, actor: Actor, *, old: bool = False) -> State:
        effect = self.machines[actor.machine].effect
        if isinstance(effect, Now):
            return self._resume(state, actor, state.now)
        if isinstance(effect, HasEnded):
            ended = all(f"process of {other.name}" != effect.process for other in state.actors)
            return self._resume(state, actor, ended, ended)
        cells = self._cells(state)
        if isinstance(effect, Get):
            cell = (effect.table, effect.pk, effect.rk)
            found = cells.get(cell, ABSENT)
            if found[1] is None:
                return self._resume(state, actor, None)
            old = old or (effect.rk == GATE and not self._alive(state, effect))
            return self._resume(state, actor, row_of(cell, found, old), (found, old))
        table, pk, first, end = (SHARDS, None, "", "~") if isinstance(effect, Sweep) else effect
        seen = tuple(
            sorted(
                (cell, found)
                for cell, found in cells.items()
                if cell[0] == table and pk in (None, cell[1]) and first <= cell[2] < end and found[1] is not None
            )
        )
        return self._resume(state, actor, [row_of(cell, found, False) for cell, found in seen], seen)

    def _alive(self, state: State, effect: Get) -> bool:
        """Return whether the holder of the gate that is read still runs."""
        for cell, _, props in state.store:
            if cell == (effect.table, effect.pk, GATE) and props is not None:
                holder = dict(props)["holder"]
                return any(actor.name == holder for actor in state.actors)
        return False

    def _send(self, state: State, actor: Actor) -> State:
        effect: Send = self.machines[actor.machine].effect
        return self._resume(state._replace(messages=state.messages | {effect.text}), actor, True)

    def _deliver(self, state: State, actor: Actor, success: bool | str) -> State:
        effect: Start = self.machines[actor.machine].effect
        event = effect.event
        if ("completed", event) in state.acked:
            raise Violation(f"W1: {actor.name} starts {event} after its completion was acknowledged")
        if any(fact == "heard" and what[0] == event and state.now < what[1] for fact, what in state.acked):
            raise Violation(f"W2: {actor.name} starts {event} before the deadline that its receiver was told")
        if ("cancelled", event) in state.acked:
            raise Violation(f"P2: {actor.name} starts {event} after its cancel was acknowledged")
        moved = {fact[1][1] for fact in state.acked if fact[0] == "moved" and fact[1][0] == event}
        if state.now < min(moved or self.play.due[event]):
            raise Violation(f"{actor.name} starts {event} early")
        row = self._row(state, effect)
        if any(fact == "edited" and what[0] == event and row.get("body") != what[1] for fact, what in state.acked):
            raise Violation(f"{actor.name} starts {event} without its acknowledged edit: {row}")
        state = state._replace(acked=state.acked | {("started", event)})
        if success == "later":
            state = state._replace(acked=state.acked | {("accepted", (event, row["tries"], row["epoch"]))})
            return self._started(self._resume(state, actor, success))
        return self._resume(state, actor, success)

    def _row(self, state: State, start: Start) -> dict[str, Any]:
        """Return the stored properties of the event that is delivered."""
        return dict(self._cells(state).get((EVENTS, start.shard, start.row), ABSENT)[1] or {})

    def _lose(self, state: State, actor: Actor) -> State:
        return self._pruned(self._spend(self._resume(self._under_way(state, actor), actor, LOST), "lost"))

    def _arrive(self, state: State, late: tuple[str, Hashable]) -> State:
        return self._apply(state._replace(limbo=state.limbo - {late}), late[0], self._late[late[1]], late[1])[0]

    def _write(self, state: State, actor: Actor) -> State:
        snapshot = self.machines[actor.machine]
        state, answer = self._apply(state, actor.name, snapshot.effect, snapshot.asked)
        return self._resume(state, actor, answer, ("applied", *answer.etags) if isinstance(answer, Applied) else answer)

    def _apply(self, state: State, who: str, write: Write, asked: Hashable) -> tuple[State, Applied | WriteRefused]:
        """Carry out a transaction as a table does. asked: the write's image."""
        key = (state.store, who, self._writes.setdefault(asked, len(self._writes)))
        # What a transaction does, and whether it may, depends on the store and on who writes: few of both make up all states.
        done = self._applied.get(key) if not self.play.owners_keep else None
        if done is None:
            after, answer = self._transact(state, who, write)
            done = self._applied[key] = after.store, answer
        store, answer = done
        if store is state.store:
            return state, answer
        return self._pruned(state._replace(store=store)), answer

    def _transact(self, state: State, who: str, write: Write) -> tuple[State, Applied | WriteRefused]:
        """Carry out a transaction, and judge it. Raises `Violation`."""
        cells = dict(self._cells(state))
        etags = []
        before, after = [], []
        judged = []
        for at, op in enumerate(write.ops):
            cell = (write.table, write.pk, op.rk)
            version, props = cells.get(cell, ABSENT)
            if isinstance(op, Insert):
                if props is not None:
                    return state, WriteRefused(at, "exists")
            elif not isinstance(op, Upsert):
                if props is None:
                    return state, WriteRefused(at, "missing")
                if op.etag not in (ANY, str(version)):
                    return state, WriteRefused(at, "changed")
            if version:
                before.append((cell, version, props))
            if isinstance(op, Delete):
                if write.table == EVENTS:
                    self._judge_removal(who, op.rk, dict(props or ()))
                cells[cell] = (version + 1, None)
                etags.append("")
            else:
                merged = {**dict(props or ()), **op.props} if isinstance(op, Merge) else dict(op.props)
                judged.append((cell, dict(props or ()), merged))
                if self.play.owners_keep:
                    self._kept(state, who, cell, dict(props or ()), merged)
                cells[cell] = (version + 1, tuple(sorted(merged.items())))
                etags.append(str(version + 1))
            after.append((cell, *cells[cell]))
        # After all operations: a gate may be done in the transaction that settles the last event.
        gate = next((parse_gate(merged) for cell, _, merged in judged if cell[0] == EVENTS and cell[2] == GATE), None)
        for cell, former, merged in judged:
            self._judge(cells, who, cell, former, merged)
            if cell[0] == EVENTS:
                self._judge_change(who, cell[2], former, merged, gate)
        if self.play.ends and write.table in (EVENTS, SWEEPS):
            for shard in {cell[1] for cell in cells if cell[0] == EVENTS}:
                judge_ends(cells, shard)
        # Set by set, not row by row: a set knows the hashes of what it holds.
        state = state._replace(store=state.store.difference(before).union(after))
        self._live(state)
        return state, Applied(etags)

    def _judge(self, cells: dict[Cell, Any], who: str, cell: Cell, before: dict[str, Any], after: dict[str, Any]) -> None:
        """P5 and P3, when the transaction is applied."""
        table, shard, rk = cell
        if table == SWEEPS and (noted := held_shard(rk)) and dict(cells[(EVENTS, noted, GATE)][1])["state"] == "resting":
            judge_held(cells, noted, self.play.held)
        if table != EVENTS:
            return
        if rk == GATE:
            self._judge_counts(cells, shard, parse_gate(after))
            return
        if before.get("state") == "firing" and after["state"] != "firing":
            gate = dict(cells[(EVENTS, shard, GATE)][1])
            if gate["holder"] != who:
                raise Violation(f"P5: {who} settles {rk}, but {gate['holder']} owns the shard")
        if before.get("work") != after.get("work") and (work := noted_work(after)) is not None:
            self._works(who, before, work)

    def _judge_change(self, who: str, rk: str, before: dict[str, Any], after: dict[str, Any], gate: Gate | None) -> None:
        """T: the rules of a row's change, by which traces of production are judged. gate: as the same transaction writes it."""
        if rk == GATE:
            judged_as("T", transition_rules.judge_gate(parse_gate(before) if before else None, parse_gate(after)))
        elif rk.startswith(FIRST_EVENT):
            judged_as("T", transition_rules.judge_event(rk, before or None, after, gate))
            judged_as("P5", transition_rules.judge_settlement(rk, before, after, gated=gate is not None))

    def _judge_removal(self, who: str, rk: str, before: dict[str, Any]) -> None:
        judged_as("T", transition_rules.judge_removal(rk, before))

    def _judge_counts(self, cells: dict[Cell, Any], shard: str, gate: Gate) -> None:
        """P3 and P1 of a gate that rests or is done."""
        rows = [dict(c[1]) for key, c in cells.items() if key[:2] == (EVENTS, shard) and key[2].startswith(FIRST_EVENT) and c[1]]
        states = [row["state"] for row in rows]
        if gate.state == "resting":
            # Rows cancelled, moved or ended by receivers since the owner last looked are counted when it, or the next one, meets them.
            unseen = Counter(row["state"] for row in rows if (work := noted_work(row)) is not None and work.end in ("completed", "failed"))
            judged_as("P3", transition_rules.judge_rest(gate, states, unseen))
            judge_held(cells, shard, self.play.held)
        if gate.state == "done":
            judged_as("P1" if gate.counts == rules.tally(states) else "P3", transition_rules.judge_done(gate, states))

    def _works(self, who: str, before: dict[str, Any], work: Work) -> None:
        """W3: a receiver ends, or extends, the work of its own attempt, and only while it goes on. Its name has attempt and epoch."""
        if who.startswith("r") and (who != f"r{work.attempt}.{work.epoch}" or work_of(before) is None):
            raise Violation(f"W3: {who} changes the work of attempt {work.attempt} of epoch {work.epoch}")

    def _kept(self, state: State, who: str, cell: Cell, before: dict[str, Any], after: dict[str, Any]) -> None:
        """P6: a wrong belief that an owner has ended takes nothing from it."""
        if cell[0] != EVENTS or cell[2] != GATE or before.get("state") != "owned" or after["holder"] == before["holder"]:
            return
        if any(actor.name == before["holder"] for actor in state.actors):
            raise Violation(f"P6: {who} takes the gate of {before['holder']}, which runs")

    def _live(self, state: State) -> None:
        """P4 and P7 to P9."""
        callbacks: list[str] = []
        count: dict[Any, int] = {}
        labelled: dict[Any, bool] = {}
        listed: dict[Any, str] = {}
        for (table, shard, rk), _, props in state.store:
            if table == EVENTS and rk.startswith(FIRST_EVENT) and props is not None:
                values = dict(props)
                if values["state"] in LIVE:
                    count[values["id"]] = count.get(values["id"], 0) + 1
                if CALLBACK_OF in values:
                    callbacks.append(values[CALLBACK_OF])
                if values["state"] in LISTED and not is_redriven(values):
                    self._found(state, shard, values, listed)
                if MARK in values and any(has_digest(values, digest) for digest in digests_of(values)):
                    labelled[values["id"]] = labelled.get(values["id"], False) or self._has_label_rows(state, shard, values)
        for event, found in labelled.items():
            if not found:
                raise Violation(f"P9: {event} has a label, and no list by the label finds it")
        for event, copies in count.items():
            if copies > self.play.live_limit:
                raise Violation(f"P4: {copies} live copies of {event}")
        for event in callbacks:
            if event in count or callbacks.count(event) > 1:
                raise Violation(f"P8: {callbacks.count(event)} callbacks of {event}, which has {count.get(event, 0)} live copies")

    def _has_label_rows(self, state: State, shard: str, values: dict[str, Any]) -> bool:
        """P9: at every instant, a list by its label finds an event; while it moves, at one of its places at least."""
        cells = self._cells(state)
        rows = [(SWEEPS, partition_of(LABEL_ROWS, shard), f"{digest}:{shard}") for digest in digests_of(values)]
        return all(cells.get(row, ABSENT)[1] is not None for row in rows)

    def _found(self, state: State, shard: str, values: dict[str, Any], listed: dict[Any, str]) -> None:
        """P7: a dead or retrying event is found by a row of its shard, at every instant, and by one shard only."""
        [name] = [each for each in LISTED if in_state(values, each)]
        if self._cells(state).get((SWEEPS, partition_of(STATE_ROWS, shard), key_of(name, shard)), ABSENT)[1] is None:
            raise Violation(f"P7: {values['id']} is {name}, and no list finds it")
        if listed.setdefault(values["id"], shard) != shard:
            raise Violation(f"P7: {values['id']} is listed twice")

    def _pruned(self, state: State) -> State:
        """Drop late requests that can never be applied: versions only grow, and rows of these tables never go away."""
        if not state.limbo:
            return state
        cells = self._cells(state)

        def hopeless(write: Write) -> bool:
            for op in write.ops:
                version, props = cells.get((write.table, write.pk, op.rk), ABSENT)
                if isinstance(op, Insert) and props is not None and write.table in (EVENTS, IDS):
                    return True
                if isinstance(op, Merge | Replace | Delete) and op.etag != ANY and int(op.etag) < version:
                    return True
            return False

        return state._replace(limbo=frozenset(late for late in state.limbo if not hopeless(self._late[late[1]])))

    # -- P1

    def check(self, state: State) -> None:
        if ("completed", "x") in state.acked and ("cancelled", "x") in state.acked:
            raise Violation("W4: x is both cancelled and completed")
        if self.play.ends:
            judge_counted(self._cells(state), state.acked)
        if self.recover:
            self._recover(state)

    def _recover(self, state: State) -> None:
        """From here, without further faults, every acknowledged event comes to a named end: make those steps and look."""
        path: list[Hashable] = []
        state = state._replace(limbo=frozenset(), budget=SPENT)
        labels: list[str] = []
        idle_rounds = 0
        while True:
            key = state
            if key in self._good:
                break
            path.append(key)
            step = None
            for step in self._calm(state):
                if not step[0].startswith("the clock"):
                    break
            if step is None:
                if self._settled(state):
                    break
                idle_rounds += 1
                if idle_rounds > 12:
                    raise Violation(f"P1: no way to an end: {summary(state)}", [f"{FROM_HERE}, in vain)", *labels[:16], "..."])
                if asking := self._asking(state):
                    later = state._replace(now=state.now + 100_000, budget=Budget(owners=1, sweeps=0))
                    state = self._receive(later, asking[idle_rounds % len(asking)])._replace(budget=SPENT)
                    continue
                # Time passes: every timer is due, and every silent owner counts as dead.
                state = self._sweep(state._replace(now=state.now + 100_000, budget=Budget(owners=0, sweeps=1)))
                continue
            labels.append(step[0])
            try:
                state = step[1]()
            except Violation as found:
                raise Violation(str(found), [f"{FROM_HERE})", *labels]) from found
        self._good.update(path)

    def _settled(self, state: State) -> bool:
        if any(actor.kind != "user" for actor in state.actors):
            return False
        cells = {cell: dict(props) for cell, _, props in state.store if props is not None}
        if any(cell[0] == SHARDS for cell in cells):
            return False
        for fact, event in state.acked:
            if fact in ("stored", "moved"):
                name = event if fact == "stored" else event[0]
                states = [props["state"] for cell, props in cells.items() if cell[0] == EVENTS and props.get("id") == name]
                ends = [s for s in states if s in rules.FINAL and s != "moved"]
                if not ends or any(s not in rules.FINAL for s in states):
                    return False
                if "delivered" in ends and ("started", name) not in state.acked:
                    raise Violation(f"P1: {name} is called delivered, but nobody delivered it")
        return self._in_order(cells)

    def _in_order(self, cells: dict[Cell, dict[str, Any]]) -> bool:
        """Every gate is done and has its ledger row with the same counts; every pointer leads to a row; redriven events are noted."""
        # Not the copies for the totals, which no redrive changes.
        entries = [(cell[2], props) for cell, props in cells.items() if cell[0] == LEDGER and not cell[2].startswith(NEWS)]
        ledger = {props.get("shard", key.partition(":")[2]): props for key, props in entries}
        for cell, props in cells.items():
            if cell[0] == EVENTS and cell[2] == GATE:
                if props["state"] != "done":
                    return False
                entry = ledger.get(cell[1])
                if entry is None or any(entry[name] != props[name] for name in COUNTS if name in entry):
                    return False
            elif cell[0] == EVENTS and "target" in props:
                place = parse_address(props["target"])
                if (EVENTS, place.shard, place.row) not in cells:
                    return False
                # In a mirrored shard only the redriver notes them: a crash before that leaves a number in `stats`, and no event.
                if is_redriven(props) and place_of(cell[1]) != MIRRORED and not parse_redriven(ledger[cell[1]]).total():
                    return False
            is_event = cell[0] == EVENTS and cell[2].startswith(FIRST_EVENT)
            if is_event and callback_channel(props, props["state"]) is not None and props.get(OWED) != "":
                return False
            if cell[0] == EVENTS and props.get(OWED) == "" and all(other.get(CALLBACK_OF) != props["id"] for other in cells.values()):
                return False
            if cell[0] == EVENTS and SOURCE in props:
                dead = parse_address(str(props[SOURCE]))
                if cells[EVENTS, dead.shard, dead.row].get("target") != f"{cell[1]}/{cell[2]}":
                    return False
        return True
