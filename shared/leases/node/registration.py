"""Registration of a server: reads the fleet, registers an incarnation, ends it. Part of the heartbeat loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...core.errors import StorageError, TocsinError
from ...core.ids import Ids
from ...engine.effects import Work, wait
from ..planner_input import read_fleet
from ..profiles import PROFILES, Profile, unsafe_reason
from ..protocol import membership
from ..protocol.membership import AwaitingTakeover, IncarnationFenced, LiveNamesake, Registered, ServerReport
from ..rows import Fleet
from ..rules import ServerObservation, ServerSession
from .failures import RequestFailures
from .keeper_state import KeeperState
from .state_file import NameInUse

_REMEMBERED: Final = 16
"""Ended incarnations of this process that are remembered."""


class FleetMissing(TocsinError):
    """The fleet does not exist, or its profile is unsafe."""


class Registration:
    """Registers one server. One per keeper."""

    def __init__(
        self, key: str, server: str, keeper_state: KeeperState, failures: RequestFailures, steady: Callable[[], float], ids: Ids
    ) -> None:
        self._key, self._server, self._keeper_state, self._failures = key, server, keeper_state, failures
        self._steady, self._ids = steady, ids
        self._ended: tuple[str, ...] = ()

    @property
    def _profile(self) -> Profile:
        return self._keeper_state.fleet.profile

    def open(self) -> Work[Fleet | None]:
        """Read the fleet, however long it takes. Return None if the keeper is stopped meanwhile. Raises `FleetMissing`."""
        while not self._keeper_state.stopping:
            try:
                fleet = yield from read_fleet(self._key)
            except StorageError as error:
                self._failures.failed(error)
                yield from self.pause(1.0)
                continue
            if fleet is None:
                raise FleetMissing(f"fleet {self._key!r} does not exist; create it with `tocsin leases create`")
            if fleet.closed:
                # The fleet is about to change its profile or to end.
                yield from self.pause(1.0)
                continue
            name = next((name for name, known in PROFILES.items() if known == fleet.profile), "")
            if problem := unsafe_reason(fleet.profile, fleet.limits.drain, name=name):
                raise FleetMissing(f"the fleet's profile is unsafe: {problem}")
            self._keeper_state.fleet, self._keeper_state.failures = fleet, 0
            return fleet
        return None

    def pause(self, seconds: float) -> Work[None]:
        """Wait, unless the keeper is stopped."""
        if seconds > 0 and not self._keeper_state.stopping:
            yield from wait(self._steady() + seconds)

    def join(self, publish: Callable[[], ServerReport], proof: Callable[[str], tuple[str, ...]]) -> Work[ServerSession | None]:
        """Register a new incarnation. Return None if the keeper is stopped meanwhile.

        publish: returns the server's report at that time. proof: see `HeartbeatLoop.serve`. Raises `NameInUse`.
        """
        session = self._incarnation()
        proven = (*proof(session.incarnation), *self._ended)
        before: ServerObservation | None = None
        while not self._keeper_state.stopping:
            try:
                found = yield from membership.register(session, publish(), before, proven, self._profile.takeover)
            except StorageError as error:
                self._failures.failed(error)
                found = None
            match found:
                case Registered():
                    return session
                case LiveNamesake():
                    raise NameInUse(f"another live server has the name {self._server!r}; choose another name or stop that server")
                case IncarnationFenced():
                    session = self._incarnation()
                    proven = (*proof(session.incarnation), *self._ended)
                case AwaitingTakeover(sight):
                    before = sight
            yield from self.pause(self._profile.beat / 4)
        return None

    def record_end(self, session: ServerSession) -> None:
        """Record that an incarnation of this process will never act again: its row may be replaced at once if it still is in the table."""
        self._ended = (session.incarnation, *self._ended)[:_REMEMBERED]

    def _incarnation(self) -> ServerSession:
        return ServerSession(self._key, self._server, self._ids.name(), generation=self._keeper_state.fleet.generation)

    def confirm(self) -> Work[bool]:
        """Read the fleet again, now that the server's row is visible to writers that close the fleet (`protocol.resizing`).

        Return False if the fleet is closed, gone or has another profile; True otherwise, also if the keeper is stopped meanwhile.
        """
        while not self._keeper_state.stopping:
            try:
                fleet = yield from read_fleet(self._key)
            except StorageError as error:
                self._failures.failed(error)
                yield from self.pause(self._profile.beat / 4)
                continue
            if fleet is None or fleet.closed or fleet.profile != self._profile:
                return False
            self._keeper_state.update_fleet(fleet)
            break
        return True

    def leave(self, session: ServerSession, *, keep: bool = False) -> Work[None]:
        """End the incarnation, so that other servers need not wait T. Gives up after three attempts; other servers wait T then.

        keep: its partitions stay this server's for T (`membership.leave`).
        """
        for _ in range(3):
            try:
                if (yield from membership.leave(session, keep=keep)) != "again":
                    return
            except StorageError as error:
                self._failures.failed(error)
            yield from wait(self._steady() + 0.1)
