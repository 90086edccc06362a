"""Two accounts: the world of `world`, twice, with a fence between them.

The first account's tables are those of the plain world; the second's have `second:` before their names. At any step the first may be lost
for good: the fence is raised, and some time later the second serves. A former owner of the first starts nothing once the second serves:
that is what the two waits (30 s for who must stop, 45 s for who takes over) are for; nothing else is assumed of it.

From every state two ways must lead to an end: the one without a failure, and the one where the first account is lost at this very moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from shared.engine.effects import Get, Write
from shared.scheduler import rules
from shared.scheduler.facets.finding import STATE_ROWS, in_state, key_of, partition_of
from shared.scheduler.keys import GATE, index_shard, parse_address
from shared.scheduler.protocol.dispatch import ShardMessage
from shared.scheduler.protocol.mirroring import FENCE_PK, FENCE_ROW, SECOND, Fence
from shared.storage.names import EVENTS, IDS, SHARDS, SWEEPS
from shared.storage.ports import Delete, Insert, Merge, Replace

from ..checking.checker import Violation
from ..shards.world import LIVE, Actor, Budget, Cell, Start, State, World

SERVES = ("serves", "second")
FENCE: Cell = (SECOND + SWEEPS, FENCE_PK, FENCE_ROW)


class PairWorld(World):
    """The model of a mirrored pair that the checker explores."""

    follows: Callable[[str, str], Any]
    """Makes an owner on the second."""

    def serves(self, state: State) -> bool:
        """Return whether the second serves."""
        return SERVES in state.acked

    # -- steps

    def _calm(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        yield from super()._calm(state)
        if self.serves(state):
            return
        if self.raised(state):
            yield "the second serves", lambda: self._serve(state)
        elif state.budget.sweeps:
            yield "the fence is raised", lambda: self._spend(self._raise(state), "sweeps")

    def raised(self, state: State) -> bool:
        """Return whether the fence is up."""
        return any(cell == FENCE for cell, _, _ in state.store)

    def _raise(self, state: State) -> State:
        fence = Fence("second", 1)
        return state._replace(store=state.store | {(FENCE, 1, tuple(sorted(fence.props().items())))})

    def _serve(self, state: State) -> State:
        # Whoever was about to start a delivery on the first does so no more; all else of theirs may still happen.
        actors = tuple(actor for actor in state.actors if not isinstance(self.machines[actor.machine].effect, Start))
        return self._started(state._replace(acked=state.acked | {SERVES}, actors=actors))

    def _asking(self, state: State) -> list[str]:
        table = SECOND + SHARDS if self.serves(state) else SHARDS
        return sorted(
            ShardMessage(index_shard(cell[2]), cell[2]).text() for cell, _, props in state.store if cell[0] == table and props is not None
        )

    def _receive(self, state: State, text: str, *, keep: bool = False) -> State:
        if not self.serves(state):
            return super()._receive(state, text, keep=keep)
        name = f"p{state.owners + 1}"
        number = self.machines.spawn(("second", name, text), lambda: self.follows(name, text))
        actors = tuple(sorted((*state.actors, Actor(name, "owner", number))))
        return self._spend(state._replace(actors=actors, owners=state.owners + 1), "owners")

    def _deliver(self, state: State, actor: Actor, success: bool) -> State:
        if self.serves(state) and actor.name.startswith("o"):
            # It came to this point after the others had been stopped: its last look at the fence is too long ago.
            return state._replace(actors=tuple(a for a in state.actors if a != actor))
        return super()._deliver(state, actor, success)

    def _alive(self, state: State, effect: Get) -> bool:
        mark = "p" if effect.table.startswith(SECOND) else "o"
        for cell, _, props in state.store:
            if cell == (effect.table, effect.pk, GATE) and props is not None:
                holder = dict(props)["holder"]
                return any(actor.name == holder and holder.startswith(mark) for actor in state.actors)
        return False

    # -- checks

    def _judge(self, cells: dict[Cell, Any], who: str, cell: Cell, before: dict[str, Any], after: dict[str, Any]) -> None:
        super()._judge(cells, who, cell, before, after)
        table, shard, rk = cell
        if table != SECOND + EVENTS:
            return
        if rk != GATE and before.get("state") in rules.FINAL and after["state"] != before["state"]:
            raise Violation(f"a final state was left in the copy: {before['state']} -> {after['state']}")
        if rk != GATE and before.get("state") == "firing" and after["state"] != "firing" and who.startswith("p"):
            gate = dict(cells[(table, shard, GATE)][1])
            if gate["holder"] != who:
                raise Violation(f"P5: {who} settles {rk}, but {gate['holder']} owns the copy")

    def _live(self, state: State) -> None:
        super()._live(state)
        count: dict[Any, int] = {}
        for (table, shard, rk), _, props in state.store:
            if table == SECOND + EVENTS and props is not None:
                values = dict(props)
                if rk == GATE and values["state"] == "done":
                    self._done(state, shard)
                if rk != GATE and values["state"] in LIVE:
                    count[values["id"]] = count.get(values["id"], 0) + 1
        for event, copies in count.items():
            if copies > self.play.live_limit:
                raise Violation(f"P4: {copies} live copies of {event} in the second")

    def _done(self, state: State, shard: str) -> None:
        states = [
            dict(props)["state"]
            for (table, pk, rk), _, props in state.store
            if (table, pk) == (SECOND + EVENTS, shard) and rk != GATE and props is not None
        ]
        if any(each not in rules.FINAL for each in states):
            raise Violation(f"P1: the copy is done with open events: {states}")

    def _pruned(self, state: State) -> State:
        if not state.limbo:
            return state
        cells = {cell: (version, props) for cell, version, props in state.store}

        def hopeless(write: Write) -> bool:
            for op in write.ops:
                version, props = cells.get((write.table, write.pk, op.rk), (0, None))
                if isinstance(op, Insert) and props is not None and write.table.removeprefix(SECOND) in (EVENTS, IDS):
                    return True
                if isinstance(op, Merge | Replace | Delete) and op.etag != "*" and int(op.etag) < version:
                    return True
            return False

        return state._replace(limbo=frozenset(late for late in state.limbo if not hopeless(self._late[late[1]])))

    def check(self, state: State) -> None:
        if not self.recover:
            return
        if not self.serves(state) and not self.raised(state):
            self._recover(state)
        self._recover(self.lost_first(state))

    def lost_first(self, state: State) -> State:
        """The first account and everybody who works on it are gone, and the second serves."""
        raised = state if self.raised(state) else self._raise(state)
        actors = tuple(actor for actor in raised.actors if actor.name.startswith("p"))
        return raised._replace(actors=actors, acked=raised.acked | {SERVES}, budget=Budget(owners=0, sweeps=0))

    def _settled(self, state: State) -> bool:
        if any(actor.kind != "user" for actor in state.actors):
            return False
        if not self.serves(state):
            return super()._settled(state) and self._in_step(state)
        return self._ended(state, SECOND)

    def _ended(self, state: State, prefix: str) -> bool:
        """Return whether all that was acknowledged has come to an end on the side."""
        cells = {cell: dict(props) for cell, _, props in state.store if props is not None}
        if any(cell[0] == prefix + SHARDS for cell in cells):
            return False
        for fact, event in state.acked:
            if fact in ("stored", "moved"):
                name = event if fact == "stored" else event[0]
                states = [props["state"] for cell, props in cells.items() if cell[0] == prefix + EVENTS and props.get("id") == name]
                ends = [each for each in states if each in rules.FINAL and each != "moved"]
                if not ends or any(each not in rules.FINAL for each in states):
                    return False
                if "delivered" in ends and ("started", name) not in state.acked:
                    raise Violation(f"P1: {name} is called delivered, but nobody delivered it")
        for cell, props in cells.items():
            if cell[0] == prefix + EVENTS and cell[2] == GATE and props["state"] != "done":
                return False
            if cell[0] == prefix + EVENTS and cell[2] != GATE and in_state(props, "dead"):
                # This side may have begun without state rows: its finisher files them.
                found = (prefix + SWEEPS, partition_of(STATE_ROWS, cell[1]), key_of("dead", cell[1]))
                if found not in cells:
                    return False
            if cell[0] == prefix + EVENTS and "target" in props:
                place = parse_address(props["target"])
                if (prefix + EVENTS, place.shard, place.row) not in cells:
                    return False
        return True

    def _in_step(self, state: State) -> bool:
        """At the end the copy says what the first says, and is closed too: nothing finished fires again after a failover."""
        cells = {cell: dict(props) for cell, _, props in state.store if props is not None}
        for cell in cells:
            # A late index row costs one read after a failover. A place with an open copy would be served again.
            if cell[0] == SECOND + SHARDS and cells.get((SECOND + EVENTS, index_shard(cell[2]), GATE), {"state": ""})["state"] != "done":
                return False
        acked = {event for fact, event in state.acked if fact == "stored"}
        for cell, props in cells.items():
            if cell[0] == EVENTS and cell[2] != GATE and props["id"] in acked:
                copy = cells.get((SECOND + EVENTS, cell[1], cell[2]))
                if copy is None or copy["state"] != props["state"]:
                    return False
        return True


class BackWorld(PairWorld):
    """The way back: no process serves until the first account is up to date; then its owners serve."""

    def _asking(self, state: State) -> list[str]:
        return super()._asking(state) if self.restored(state) else []

    def restored(self, state: State) -> bool:
        """Return whether the fence lets the first serve again."""
        return any(cell == FENCE and props is not None and not dict(props)["syncing"] for cell, _, props in state.store)

    def raised(self, state: State) -> bool:
        return False

    def _found(self, state: State, shard: str, values: dict[str, Any], listed: dict[Any, str]) -> None:
        """The first account lists nothing before it is up to date."""

    def _judge(self, cells: dict[Cell, Any], who: str, cell: Cell, before: dict[str, Any], after: dict[str, Any]) -> None:
        """States that only the first account reached are overruled by those of the second."""
        if who.startswith("o"):
            super()._judge(cells, who, cell, before, after)

    def _judge_change(self, who: str, *change: Any) -> None:
        if who.startswith("o"):
            super()._judge_change(who, *change)

    def _judge_removal(self, who: str, *row: Any) -> None:
        if who.startswith("o"):
            super()._judge_removal(who, *row)

    def check(self, state: State) -> None:
        if self.recover:
            self._recover(state)
