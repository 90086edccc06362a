"""Broken HTTP leases. Each leaves out one sentence of docs/reference/fleets.md; the checker must find the two owners it leads to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from shared.engine.effects import Write
from shared.leases import rules
from shared.leases.protocol import http_servers
from shared.leases.rows import Server, parse_partition
from shared.storage.ports import ANY, Merge, Replace
from tests.model.checking.checker import Report, explore
from tests.model.checking.mutants import Mutant, Patch, relay

from .remote import PLAYS, ClientRules, RemoteWorld


def hunt(mutant: Mutant, limit: int = 1_000_000) -> Report:
    """Explore the mutant's play with the hole in it."""
    with mutant.applied():
        play: Any = PLAYS[mutant.play](0)
        return explore(RemoteWorld(mutant.change(play)), limit=limit)


def _written(name: str, change: Callable[[Write], Write]) -> list[Patch]:
    """The generator `http_servers.{name}`, with its writes changed."""
    plain = getattr(http_servers, name)

    def steps(*args: Any) -> Any:
        return relay(plain(*args), lambda effect: change(effect) if isinstance(effect, Write) else effect)

    return [(http_servers, name, steps)]


def unconditional_beat() -> list[Patch]:
    def change(write: Write) -> Write:
        op = write.ops[0]
        return write._replace(ops=(op._replace(etag=ANY),)) if isinstance(op, Merge) else write

    return _written("beat", change)


def fenced_renewed() -> list[Patch]:
    plain = rules.judge_heartbeat

    def heard(server: Server | None, incarnation: str, seq: int, silent: bool, keep: bool) -> Any:
        live = dataclasses.replace(server, state="live") if server is not None and server.incarnation == incarnation else server
        return plain(live, incarnation, seq, silent, keep)

    return [(rules, "judge_heartbeat", heard)]


def registered_at_once() -> list[Patch]:
    plain = rules.judge_heartbeat
    return [(rules, "judge_heartbeat", lambda server, incarnation, seq, silent, keep: plain(server, incarnation, seq, True, keep))]


def released_whatever_the_epoch() -> list[Patch]:
    plain = http_servers.release

    def release(key: str, name: str, incarnation: str, number: int, epoch: int, now: int) -> Any:
        def revise(effect: Any, answer: Any) -> Any:
            if not getattr(effect, "rk", "").startswith("p:"):
                return answer
            found = parse_partition(answer)
            if found.owner != name:
                return answer
            return dataclasses.replace(answer, props=dataclasses.replace(found, epoch=epoch).props())

        return relay(plain(key, name, incarnation, number, epoch, now), revise=revise)

    return [(http_servers, "release", release)]


def claim_without_its_etag() -> list[Patch]:
    """A partition that was free when it was read counts as free still."""

    def change(write: Write) -> Write:
        return write._replace(ops=tuple(op._replace(etag=ANY) if isinstance(op, Replace) else op for op in write.ops))

    return _written("claim", change)


def evicted_is_dead() -> list[Patch]:
    """The partitions of an evicted server are taken at once."""

    def change(write: Write) -> Write:
        op = write.ops[0]
        return write._replace(ops=(op._replace(props={"state": "dead"}),)) if isinstance(op, Merge) and "evicted" in op.props else write

    return _written("beat", change)


def kept_by_any_incarnation() -> list[Patch]:
    """The last beat of a former incarnation ends the one that is live."""
    plain = rules.judge_heartbeat

    def judge(server: Server | None, incarnation: str, seq: int, silent: bool, keep: bool) -> Any:
        return plain(server, server.incarnation if keep and server is not None else incarnation, seq, silent, keep)

    return [(rules, "judge_heartbeat", judge)]


def kept_is_free() -> list[Patch]:
    """A live row is replaced as if it were kept."""
    plain = rules.judge_heartbeat

    def judge(server: Server | None, incarnation: str, seq: int, silent: bool, keep: bool) -> Any:
        other = server is not None and server.incarnation != incarnation
        return plain(dataclasses.replace(server, kept=True) if server is not None and other else server, incarnation, seq, silent, keep)

    return [(rules, "judge_heartbeat", judge)]


def _last_try(play: Any) -> Any:
    return dataclasses.replace(play, rules=ClientRules(first_try=False))


def _takes_back(play: Any) -> Any:
    return dataclasses.replace(play, rules=ClientRules(gives_up=False))


def _serves_on(play: Any) -> Any:
    return dataclasses.replace(play, rules=ClientRules(stops=False))


MUTANTS = [
    Mutant("a beat without its ETag", "remote take over", unconditional_beat),
    Mutant("a fenced row renewed", "remote take over", fenced_renewed),
    Mutant("validity from the last try", "remote take over", list, _last_try),
    Mutant("registration without silence", "remote successor", registered_at_once),
    Mutant("a release whatever the epoch", "remote hand-over", released_whatever_the_epoch),
    Mutant("what is being released taken back", "remote hand-over", list, _takes_back),
    Mutant("a claim without the partition's ETag", "remote contest", claim_without_its_etag),
    Mutant("evicted and taken at once", "remote ignores", evicted_is_dead),
    Mutant("kept before the server has stopped", "remote keeps", list, _serves_on),
    Mutant("kept by a former incarnation", "remote keeps", kept_by_any_incarnation),
    Mutant("a live row replaced like a kept one", "remote keeps", kept_is_free),
]
