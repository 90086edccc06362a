"""Broken mirroring. Each leaves out one rule of the protocol; the checker must find the hole it opens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shared.engine.effects import Get, Load, Write
from shared.scheduler.protocol import changing, mirroring, owning
from shared.scheduler.protocol.mirroring import SECOND, Way
from shared.scheduler.shard.gate import parse_gate
from shared.storage.names import EVENTS
from shared.storage.ports import ANY, Merge

from ..checking.checker import Report, explore
from ..checking.mutants import Mutant, Patch, relay
from .plays import PAIR_PLAYS, world


def fence_unread() -> list[Patch]:
    def still_serves(way: Way) -> Any:
        return True
        yield

    return [(mirroring, "still_serves", still_serves)]


def original_read_first() -> list[Patch]:
    plain = mirroring.copy_shard

    def copy_shard(shard: str, way: Way, only: Any, ready: set[str]) -> Any:
        """The original's rows are read before the copy, and used after it."""
        early = yield Load(way.source + EVENTS, shard, "e", "f")
        steps = plain(shard, way, only, ready)
        answer: Any = None
        while True:
            try:
                effect = steps.send(answer)
            except StopIteration as stop:
                return stop.value
            if isinstance(effect, Load) and effect.table == way.source + EVENTS:
                answer = list(early)
            elif isinstance(effect, Get) and effect.table == way.source + EVENTS and effect.rk.startswith("e"):
                answer = next((row for row in early if row.rk == effect.rk), None)
            else:
                answer = yield effect

    return [(mirroring, "copy_shard", copy_shard)]


def acknowledged_early() -> list[Patch]:
    def append_copy(*args: Any) -> Any:
        return "0"
        yield

    return [(mirroring, "append_copy", append_copy)]


def cancel_acknowledged_early() -> list[Patch]:
    def mirror_event(*args: Any) -> Any:
        return True
        yield

    return [(mirroring, "mirror_event", mirror_event)]


def first_closed_before_second() -> list[Patch]:
    plain = owning.finish

    def finish(session: owning.OwnerSession, entry: Any, before: Any = None) -> Any:
        done = yield from plain(session, entry)
        return done and (before is None or (yield from before))

    return [(owning, "finish", finish)]


def second_closed_before_done() -> list[Patch]:
    plain = owning.finish

    def finish(session: owning.OwnerSession, entry: Any, before: Any = None) -> Any:
        gate = session.held.gate
        yield from mirroring.on_side(SECOND, owning.close(session.filing, gate, entry, session.named, session.facets))
        return (yield from plain(session, entry, before))

    return [(owning, "finish", finish)]


def gate_unconditional() -> list[Patch]:
    plain = mirroring.write_copy

    def write_copy(*args: Any, **options: Any) -> Any:
        def change(effect: Any) -> Any:
            if isinstance(effect, Write) and isinstance(effect.ops[0], Merge):
                return effect._replace(ops=(effect.ops[0]._replace(etag=ANY), *effect.ops[1:]))
            return effect

        return relay(plain(*args, **options), change)

    return [(mirroring, "write_copy", write_copy)]


def target_after_source() -> list[Patch]:
    def pointed_shards(row: Any, have: Any) -> list[str]:
        return []

    return [(mirroring, "pointed_shards", pointed_shards)]


def alive_at_both() -> list[Patch]:
    def set_going(parent: Any, way: Way) -> Any:
        return True
        yield

    return [(mirroring, "set_going", set_going)]


def _keeps_only(kept: Callable[[str, str], bool]) -> list[Patch]:
    """A redrive that keeps only some of what is stored. kept: is asked with a place, and the shard of the dead rows."""
    plain = changing.redrive

    def redrive(source: str, rows: Any, now: int, nonce: str, keep: Any = None) -> Any:
        def some(place: str) -> Any:
            return (yield from keep(place)) if kept(place, source) else True

        return (yield from plain(source, rows, now, nonce, some))

    return [(changing, "redrive", redrive)]


def shut_place_untold() -> list[Patch]:
    return _keeps_only(lambda place, source: place == source)


def mark_untold() -> list[Patch]:
    return _keeps_only(lambda place, source: place != source)


def id_uncopied() -> list[Patch]:
    def mirror_id(*args: Any) -> Any:
        return True
        yield

    return [(mirroring, "mirror_id", mirror_id)]


def source_unsealed() -> list[Patch]:
    def seal(shard: str) -> Any:
        return None
        yield

    return [(mirroring, "seal", seal)]


def index_unfiled() -> list[Patch]:
    def file_copy(shard: str, way: Way) -> Any:
        source = yield Get(way.source + EVENTS, shard, "gate")
        return source is not None and bool(parse_gate(source.props).bucket)

    return [(mirroring, "file_copy", file_copy)]


def place_unfiled() -> list[Patch]:
    def unfiled(shard: str, way: Way, gate: Any) -> Any:
        return gate is None
        yield

    return [(mirroring, "unfiled", unfiled)]


PAIR_MUTANTS = [
    Mutant("the fence not read", "pair: cancel there", fence_unread),
    Mutant("the original read before the copy", "pair: cancel and owner", original_read_first),
    Mutant("an event acknowledged before the copy has it", "pair: ingest", acknowledged_early),
    Mutant("a cancel acknowledged before the copy has it", "pair: cancel", cancel_acknowledged_early),
    Mutant("the first closed before the second", "pair: owners", first_closed_before_second),
    Mutant("the second closed before the first is done", "pair: owners", second_closed_before_done),
    Mutant("the copy's gate written without its ETag", "pair: owners", gate_unconditional),
    Mutant("a target copied after its source", "pair: move", target_after_source),
    Mutant("a moved event alive at both places of the copy", "pair: move and owner", alive_at_both),
    Mutant("a place found shut that is not copied", "pair: redrive", shut_place_untold),
    Mutant("a redrive by a mark that is not copied", "pair: redrive", mark_untold),
    Mutant("an id row not copied before the event", "pair: ids", id_uncopied),
    Mutant("a source not sealed on the way back", "pair: failback", source_unsealed),
    Mutant("a copy begun before its index row", "pair: move and cancel", index_unfiled),
    Mutant("a place that was cut off not filed on the way back", "pair: failback of a place", place_unfiled),
]


def hunt_pair(mutant: Mutant, levels: Iterable[int] = (0, 1)) -> Report:
    """Look for the hole, in the quick play first; a broken safety property before a lost way to an end."""
    with mutant.applied():
        for level in levels:
            for recover in (False, True):
                found = world(PAIR_PLAYS[mutant.play](level))
                found.recover = recover
                report = explore(found)
                if report.violation is not None:
                    return report
    return report
