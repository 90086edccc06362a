"""Run the model checker and print its findings: `python -m tests.model --help` lists the options."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.status import Status
from rich.table import Table

from .approvals import mutants as approval_mutants
from .approvals import plays as approval_plays
from .approvals import world as approval_world
from .changes import mutants as change_mutants
from .changes import plays as change_plays
from .checking.checker import Report, explore
from .checkpoint_design import endless as endless_design
from .checkpoint_design import mutants as design_mutants
from .checkpoint_design import plays as design_plays
from .checkpoint_design import story
from .guard import mutants as guard_mutants
from .guard import plays as guard_plays
from .guard import world as guard_world
from .keys import mutants as key_mutants
from .keys import plays as key_plays
from .keys import skips
from .leases import mutants as lease_mutants
from .leases import plays as lease_plays
from .leases import remote as remote_leases
from .leases import remote_mutants, resizing, resizing_mutants
from .leases import rollback as rollback_leases
from .leases import world as lease_world
from .locks import mutants as lock_mutants
from .locks import plays as lock_plays
from .locks import world as lock_world
from .maintenance import mutants as maintenance_mutants
from .maintenance import plays as maintenance_plays
from .maintenance import world as maintenance_world
from .notices import mutants as notice_mutants
from .notices import plays as notice_plays
from .pairs import mutants as pair_mutants
from .pairs import plays as pair_plays
from .shards import added, callbacks, end_plays, express, long_work, mutants, plays, world
from .stored import PROJECTIONS, StoredStates, write_golden
from .turns import endless
from .turns import mutants as turn_mutants
from .turns import plays as turn_plays
from .turns import world as turn_world
from .wakes import mutants as wake_mutants
from .wakes import plays as wake_plays
from .wakes import world as wake_world

EVERY = "every mutant"
"""The value of `--trace` without a name."""
LIMIT = 5_000_000
"""States of one play: about 2 KiB each."""


class Protocol(NamedTuple):
    """One protocol to check: its plays by name, the world they are played in, its mutants and how to hunt one."""

    plays: Mapping[str, Callable[[int], Any]]
    world: Callable[[Any], Any]
    mutants: Sequence[Any]
    hunt: Callable[[Any], Report]
    tell: Callable[[Any, Report], Any] = lambda mutant, report: f"[b]{mutant.name}[/b]\n{report}"
    """A mutant's trace, to be printed."""
    explore: Callable[..., Report] = explore


PROTOCOLS = {
    "shard": Protocol(
        plays.PLAYS | express.EXPRESS_PLAYS | callbacks.CALLBACK_PLAYS | long_work.LONG_WORK_PLAYS | end_plays.END_PLAYS,
        world.World,
        mutants.MUTANTS,
        mutants.hunt,
    ),
    "facet": Protocol(added.ADDED_PLAYS, added.AddedWorld, added.ADDED_MUTANTS, added.hunt_added, explore=added.explore),
    "change": Protocol(change_plays.PLAYS, change_plays.ChangeWorld, change_mutants.MUTANTS, change_mutants.hunt),
    "pair": Protocol(pair_plays.PAIR_PLAYS, pair_plays.world, pair_mutants.PAIR_MUTANTS, pair_mutants.hunt_pair),
    "lease": Protocol(lease_plays.PLAYS, lease_world.World, lease_mutants.MUTANTS, lease_mutants.hunt),
    "rollback": Protocol(rollback_leases.PLAYS, rollback_leases.RollbackWorld, (), lease_mutants.hunt),
    "resize": Protocol(resizing.RESIZES, resizing.ResizeWorld, resizing_mutants.RESIZE_MUTANTS, resizing_mutants.hunt_resize),
    "remote": Protocol(remote_leases.PLAYS, remote_leases.RemoteWorld, remote_mutants.MUTANTS, remote_mutants.hunt),
    "agent": Protocol(maintenance_plays.PLAYS, maintenance_world.AgentWorld, maintenance_mutants.MUTANTS, maintenance_mutants.hunt),
    "guard": Protocol(guard_plays.PLAYS, guard_world.GuardWorld, guard_mutants.MUTANTS, guard_mutants.hunt),
    "approval": Protocol(approval_plays.PLAYS, approval_world.ApprovalWorld, approval_mutants.MUTANTS, approval_mutants.hunt),
    "checkpoint-design": Protocol(design_plays.PLAYS, design_plays.world, design_mutants.MUTANTS, design_mutants.hunt, story.tell),
    "endless design": Protocol(
        endless_design.PLAYS, endless_design.EndlessDesign, endless_design.MUTANTS, endless_design.hunt, explore=endless_design.follow
    ),
    "key": Protocol(key_plays.PLAYS, key_plays.KeyWorld, key_mutants.MUTANTS, key_mutants.hunt),
    "lock": Protocol(lock_plays.PLAYS, lock_world.LockWorld, lock_mutants.MUTANTS, lock_mutants.hunt),
    "notice": Protocol(notice_plays.PLAYS, notice_plays.NoticeWorld, notice_mutants.MUTANTS, notice_mutants.hunt),
    "skip": Protocol(skips.PLAYS, skips.SkipWorld, skips.MUTANTS, skips.hunt),
    "turns": Protocol(turn_plays.PLAYS, turn_world.World, turn_mutants.MUTANTS, turn_mutants.hunt),
    "endless turns": Protocol(
        endless.PLAYS, endless.Endless, turn_mutants.ENDLESS_MUTANTS, turn_mutants.hunt_endless, explore=endless.follow
    ),
    "wake": Protocol(wake_plays.PLAYS, wake_world.WakeWorld, wake_mutants.MUTANTS, wake_mutants.hunt),
}


def main() -> int:
    """0 when the protocols hold in every play and every mutant is caught; 1 otherwise."""
    names = sorted({name for protocol in PROTOCOLS.values() for name in protocol.plays})
    parser = argparse.ArgumentParser(prog="python -m tests.model", description="Exhaustive checks of the protocols.")
    parser.add_argument("--full", action="store_true", help="the large plays: more faults at once (many minutes)")
    parser.add_argument("--of", choices=list(PROTOCOLS), help="this protocol only")
    parser.add_argument("--play", choices=names, help="this play only")
    parser.add_argument("--mutants", action="store_true", help="the mutants only")
    parser.add_argument("--stored-states", metavar="FOLDER", help="write the count and the hash of each play's stored states into FOLDER")
    parser.add_argument("--trace", nargs="?", const=EVERY, metavar="MUTANT", help="print the mutants' traces, or hunt this one only")
    asked = parser.parse_args()
    chosen = [asked.of] if asked.of else list(PROTOCOLS)
    holes = [mutant.name for name in chosen for mutant in PROTOCOLS[name].mutants]
    if asked.trace not in (None, EVERY, *holes):
        parser.error(f"argument --trace: no mutant of that name, but: {', '.join(holes)}")
    console = Console()
    failed = 0
    for name in chosen:
        stored: dict[str, Any] = {}
        if not asked.mutants and asked.trace in (None, EVERY):
            only = [asked.play] if asked.play else None
            failed += _check(console, name, only, int(asked.full), stored if asked.stored_states else None)
        if asked.stored_states:
            write_golden(Path(asked.stored_states), name, stored)
        elif not asked.play:
            failed += _hunt(console, name, asked.trace)
    return 1 if failed else 0


def _check(console: Console, name: str, only: list[str] | None, level: int, stored: dict[str, Any] | None) -> int:
    protocol, failed = PROTOCOLS[name], 0
    table = Table("play", "states", "depth", "seconds", "result", title=f"The {name} protocol")
    for play in [each for each in protocol.plays if only is None or each in only]:
        with console.status(f"exploring {play} ...") as status:
            try:
                model = protocol.world(protocol.plays[play](level))
                model = model if stored is None else StoredStates(model, PROJECTIONS[name])
                report = protocol.explore(model, limit=LIMIT, progress=_teller(status, play))
                if stored is not None:
                    stored[play] = model.result()
            except OverflowError as unfinished:
                # Not a proof, and not to be taken for one.
                failed += 1
                table.add_row(play, str(unfinished), "", "", "NOT FINISHED")
                continue
        failed += report.violation is not None
        table.add_row(play, f"{report.states:,}", str(report.depth), f"{report.seconds:.1f}", report.violation or "holds")
        if report.violation:
            console.print(str(report))
    if table.rows:
        console.print(table)
    return failed


def _hunt(console: Console, name: str, trace: str | None) -> int:
    protocol, failed = PROTOCOLS[name], 0
    table = Table("left out", "play", "caught as", "steps", "states", title=f"Mutants of the {name} protocol")
    for mutant in [each for each in protocol.mutants if trace in (None, EVERY, each.name)]:
        report = protocol.hunt(mutant)
        failed += report.violation is None
        caught = (report.violation or "NOT CAUGHT").partition(":")[0]
        table.add_row(mutant.name, mutant.play, caught, str(report.steps), f"{report.states:,}")
        if trace:
            console.print(protocol.tell(mutant, report), highlight=False)
    if table.rows:
        console.print(table)
    return failed


def _teller(status: Status, name: str) -> Callable[[Report], None]:
    def tell(report: Report) -> None:
        status.update(f"exploring {name}: {report.states:,} states, depth {report.depth}")

    return tell


if __name__ == "__main__":
    sys.exit(main())
