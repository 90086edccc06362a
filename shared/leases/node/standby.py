"""Standby assignments: before T, other servers learn which partitions of a silent server they will get, and claim them once it is fenced.

Without this, the orders after a fencing are read up to a heartbeat interval later. No partition is claimed sooner than without: the standby
server waits until the silent server's row is dead, and drops the assignment if that server returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...core.clock import Millis
from ...engine.effects import Work, get
from ...storage.names import FLEETS
from ...storage.ports import Props
from .. import rules, unreadable_rows
from ..planner_input import PlannerInput, read_planner_input
from ..protocol import takeover
from ..rows import join_expected, parse_server, server_key
from ..rules import ServerObservation
from .keeper_state import KeeperState

EXPECTED: Final = 2.0
"""Heartbeat intervals for which an assignment is valid. The silent server is fenced within 1.25 intervals, or not at all."""
TRIES: Final = 2
"""Attempts to write an assignment while the standby server sends heartbeats. The orders after the fencing cover the rest."""


class StandbyAssignments:
    """Gives and follows standby assignments. Part of one scan loop. sights: the loop's observations, which this object updates."""

    def __init__(
        self,
        key: str,
        server: str,
        keeper_state: KeeperState,
        sights: dict[str, ServerObservation],
        steady: Callable[[], float],
        wall: Callable[[], Millis],
    ) -> None:
        self._key, self._server, self._keeper_state, self._sights = key, server, keeper_state, sights
        self._steady, self._wall = steady, wall
        self._foreseen: dict[str, ServerObservation] = {}
        self._seen: dict[str, tuple[str, int]] = {}

    # -- as a scanner

    def due(self, suspects: set[str]) -> dict[str, float]:
        """Return when (steady seconds) each suspect needs standby assignments, for those that have none yet."""
        profile = self._keeper_state.fleet.profile
        after = rules.standby_after(profile)
        if after >= profile.takeover or self._keeper_state.fleet.former:
            return {}
        return {
            name: sight.first.ripens(after)
            for name, sight in self._sights.items()
            if name in suspects and self._foreseen.get(name) != sight
        }

    def foresee(self, suspects: set[str], now: float) -> Work[None]:
        """Give standby assignments for servers that have most likely ended."""
        names = sorted(name for name, at in self.due(suspects).items() if now >= at)
        if not names:
            return
        after = rules.standby_after(self._keeper_state.fleet.profile)
        silent = []
        for name in names:
            if (yield from takeover.is_still_silent(self._key, name, self._sights, after)):
                silent.append(name)
        if silent:
            foreseen = {name: sight for name, sight in self._foreseen.items() if self._sights.get(name) == sight}
            foreseen |= {name: self._sights[name] for name in silent}
            yield from self._tell(set(foreseen))
            self._foreseen = foreseen

    def _tell(self, ending: set[str]) -> Work[None]:
        facts = yield from read_planner_input(self._key, self._wall())
        # If half of all servers are silent, storage was probably unavailable.
        if facts is None or facts.fleet.former or 2 * len(ending) > len(facts.members):
            return
        self._keeper_state.counts["foreseen"] += 1
        assignments = facts.standby_assignments(ending)
        if mine := assignments.pop(self._server, None):
            self._keeper_state.set_expected(mine, self._steady() + EXPECTED * self._keeper_state.fleet.profile.beat)
        told: dict[str, tuple[Props, str]] = {
            standby: ({"expect": join_expected(expected)}, facts.etags[standby])
            for standby, expected in assignments.items()
            if facts.servers[standby].expect != expected
        }
        for standby in (yield from takeover.write_orders(self._key, told)):
            # Not `retry_steps`: a server that has ended is asked again too, which costs one read.
            for _ in range(TRIES):
                if (yield from takeover.write_expected(self._key, standby, assignments[standby])):
                    break

    # -- as a standby server

    def planned(self, facts: PlannerInput) -> None:
        """Drop assignments that a plan with these servers already covers."""
        for name in self._keeper_state.expected_servers():
            if name not in facts.servers or facts.servers[name].state == "dead":
                self._keeper_state.forget_server(name)

    def ask(self) -> Work[bool]:
        """Check whether expected servers have been fenced. Return True if one has: its partitions are wanted now."""
        limits, profile, found = self._keeper_state.fleet.limits, self._keeper_state.fleet.profile, False
        expecting = self._keeper_state.expected_servers()
        self._seen = {name: seen for name, seen in self._seen.items() if name in expecting}
        for name in expecting:
            row = yield from get(FLEETS, self._key, server_key(name))
            known, unreadable = unreadable_rows.parse_rows([row] if row is not None else [], parse_server)
            server = known[0][1] if known else None
            if unreadable:
                self._keeper_state.forget_server(name)
            elif server is None or server.state == "dead":
                self._keeper_state.inherit_partitions(name, limits.drain + profile.validity)
                found = True
            elif self._seen.setdefault(name, (server.incarnation, server.beat)) != (server.incarnation, server.beat):
                self._keeper_state.forget_server(name)
        return found
