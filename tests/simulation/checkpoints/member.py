"""One replica: reports, takes its turns, publishes, crashes and comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from shared.checkpoints import protocol, rules
from shared.checkpoints.node import rules as node
from shared.checkpoints.rules import AcceptedReport, Published
from shared.checkpoints.turns import TurnSettings

from .world import World

TRIES = 5
"""Seconds allowed for a publish."""


class Watch(Protocol):
    """Observes the members."""

    def begins(self, member: Member, epoch: int) -> object: ...
    def ends(self, member: Member, how: str) -> object: ...
    def published(self, member: Member, epoch: int, sequence: int, outcome: Any) -> object: ...


class Member:
    """A machine with a clock of its own (rate: its seconds in a true one), and the process on it, which comes and goes."""

    def __init__(self, world: World, key: str, name: str, settings: TurnSettings, watch: Watch, *, rate: float, every: float) -> None:
        self.world, self.key, self.name, self.settings, self.watch = world, key, name, settings, watch
        self.rate, self.every = rate, every
        self.role, self.term = "secondary", 1
        self.up = True
        self.life = 1
        self.me = node.ReplicaState()
        self.running = 0
        """The epoch whose checkpoint is being taken."""
        self.last, self.said = 0, 0
        self.lag, self.load, self.failures = 0, 0.0, 0
        self.needs: Callable[[], float] = lambda: 120.0
        """True seconds that the next checkpoint takes."""
        self._body = 0
        world.after(world.dice.random() * every, self._tick)

    def clock(self) -> float:
        """Seconds of this machine's own clock."""
        return 1000 + self.world.time.seconds * self.rate

    # -- reports

    def _tick(self) -> None:
        self.world.after(self.every * (0.9 + 0.2 * self.world.dice.random()), self._tick)
        if self.up:
            self.report()

    def report(self) -> None:
        """Send one."""
        self.me = node.start_report(self.me, self.clock())
        seq, life = self.me.seq, self.life
        told = rules.ReplicaReport(
            seq,
            "primary" if self.role == "primary" else "secondary",
            self.term,
            int(self.clock() * 1000),
            applied=int(self.world.time.seconds),
            lag=self.lag,
            load=self.load,
            failures=self.failures,
            last_checkpoint=self.said,
            taking=self.me.held.epoch if self.me.held is not None else 0,
            incarnation=f"{self.name}#{life}",
        )
        self.world.counts["reports"] += 1
        draw = self.world.dice.random()
        self.world.ask(
            lambda: protocol.report(self.key, self.name, told, self.settings, draw), lambda answer: self._heard(life, seq, answer)
        )

    def _heard(self, life: int, seq: int, answer: Any) -> None:
        if not self.up or life != self.life:
            return
        if isinstance(answer, AcceptedReport):
            turn = (answer.answer.turn[0], answer.answer.turn[1] / 1000) if answer.answer.turn is not None else None
            told = node.ReportReply(turn, frozenset(answer.answer.revoked))
            self.me, act = node.apply_answer(self.me, seq, told, self.clock(), may=self.role == "secondary")
            if isinstance(act, node.BeginTurn):
                self._begin(act.held)
            elif isinstance(act, node.StopTurn):
                self.stop("revoked")
        elif answer == "unknown-replica" and seq == self.me.seq:
            self.stop("forgotten")
            self.me = node.restart(self.me)
        elif answer in ("stale-term", "term-conflict") and self.role == "primary":
            self.role = "secondary"
        else:
            self.world.counts[f"refused: {answer}"] += 1

    # -- checkpoints

    def _begin(self, held: node.HeldTurn) -> None:
        self.running, self._body = held.epoch, self._body + 1
        body, life = self._body, self.life
        self.watch.begins(self, held.epoch)
        self.world.after(self.needs(), lambda: self._finish(body, life))
        # It looks at its clock often enough to see the very moment.
        self.world.after((held.until - self.clock()) / self.rate + 1e-6, lambda: self._limit(body))

    def _limit(self, body: int) -> None:
        if body == self._body and self.running:
            self.failures += self.up
            self._over("limit")

    def _over(self, how: str) -> None:
        self.running = 0
        self.watch.ends(self, how)
        if self.up:
            self.me, self.said = node.end_turn(self.me), self.last

    def stop(self, how: str) -> None:
        """End what is taken, now."""
        if self.running:
            self._over(how)
        self.me, self.said = node.end_turn(self.me), self.last

    def _finish(self, body: int, life: int) -> None:
        if body != self._body or not self.running:
            return
        epoch, self.running = self.running, 0
        self.watch.ends(self, "finished")
        if self.up and life == self.life:
            # Kept on disk first.
            self.last = max(self.last + 1, int(self.world.time.seconds) - self.lag)
            self.failures = 0
            self._publish(epoch, self.last, life, TRIES)

    def _publish(self, epoch: int, sequence: int, life: int, tries: int) -> None:
        if not self.up or life != self.life or self.me.held is None or self.me.held.epoch != epoch:
            return
        if not tries:
            self.stop("given up")
            return

        def heard(answer: Any) -> None:
            self.watch.published(self, epoch, sequence, answer)
            if self.up and life == self.life and self.me.held is not None and self.me.held.epoch == epoch:
                self.world.counts["published" if isinstance(answer, Published) else "late"] += 1
                self.stop("settled")

        told = rules.Publication(self.name, sequence, f"blob/{sequence}", 1)
        self.world.ask(lambda: protocol.publish(self.key, epoch, told, self.settings), heard)
        self.world.after(10.0, lambda: self._publish(epoch, sequence, life, tries - 1))

    # -- trouble

    def crash(self, *, orphan: bool) -> None:
        """The process dies. orphan: what it takes goes on without it, until its limit."""
        self.world.note(self.name, f"crashes{', and its checkpoint goes on' if orphan and self.running else ''}")
        self.up = False
        if self.running and not orphan:
            self._over("crashed")

    def restart(self) -> None:
        """Start the next process. The state file holds its last checkpoint."""
        self.up, self.life, self.me, self.role, self.said = True, self.life + 1, node.ReplicaState(), "secondary", self.last

    def promote(self, term: int) -> None:
        """It is primary from here on; what it took has ended before."""
        self.world.note(self.name, f"becomes primary of term {term}")
        if self.up:
            self.stop("promoted")
        self.role, self.term = "primary", term
