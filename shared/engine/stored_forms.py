"""The number of the stored forms: which versions of the service may work on a storage account.

    TocsinSweeps, ticks    stored-forms    `number`: the stored forms that processes may rely on

A change of a stored form that a former version cannot live with raises `STORED_FORMS`. The row keeps the lower number until an operator
raises it, after the last process of the former version has ended; until then the new version writes forms that the former one can read. A
process that finds a higher number than its own, as after a roll-back, neither delivers nor claims nor writes: it would misread rows and
store some that the newer version misreads.

The row is beside the timers' ticks, which each sweep reads in any case. A process reads it at its start, and from then on when it is about
to work and its last look is older than `LOOK_EVERY`; so an idle app makes no request for it. The first process that finds no row makes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ..core.clock import Clock, Millis
from ..core.errors import Problem, StorageError, Unavailable, text_of
from ..storage.names import PK_TICKS, SWEEPS
from ..storage.ports import Applied, Insert, Props, Replace, Row, RowQuery, TableRequest, Tables, WrappedTables, Write
from .effects import load_rows
from .row_codec import RowCodec

log = logging.getLogger(__name__)

STORED_FORMS: Final = 1
"""The stored forms of this version."""
FORMS_ROW: Final = "stored-forms"
LOOK_EVERY: Final = 60.0
"""Seconds for which a process believes what it has read."""
LOOK_FOR: Final = 2.0
"""Seconds that the call at hand waits for a look."""
LOOK_AGAIN: Final = 5.0
"""Seconds after a look that failed until the next one."""
RETRY_AFTER: Final = 30
"""Seconds after which a caller repeats a write that was refused: another process may serve it."""


TICK_FORMS: Final = "forms"
"""Property of a timer's tick: the stored forms of the process that stored it."""
OLDER_WITHIN: Millis = 900_000
"""Time after the last tick of an older version's process by which its other processes have ended too."""


class OlderProcess(NamedTuple):
    """A process of an older version worked `ago` milliseconds ago."""

    ago: Millis


@dataclass(frozen=True, slots=True)
class FormsRow:
    """The stored number. Every version, former or later, must be able to read this row."""

    number: int

    def props(self) -> Props:
        """Return the row's properties."""
        return _FORMS.encode(self)


_FORMS: Final = RowCodec(FormsRow)


def number_of(row: Row) -> int | None:
    """Return the number of a row; None for a row that cannot be read."""
    try:
        return _FORMS.decode(row.props).number
    except (KeyError, TypeError, ValueError):
        return None


def may_serve(found: int | None, own: int) -> bool:
    """Return True if a version with the forms `own` may work where `found` is stored. A row that cannot be read is a later version's."""
    return found is not None and found <= own


class StoredForms:
    """One account's number, as this process knows it. One per process and account."""

    def __init__(self, tables: Tables, clock: Clock, own: int = STORED_FORMS, on_newer: Callable[[], None] = lambda: None) -> None:
        """own: the stored forms of this process's version. on_newer: is called once, when the process finds a higher number."""
        self._tables, self._clock, self._on_newer = tables, clock, on_newer
        self.own = own
        self.newer = False
        """True once a higher number was found. It stays true: numbers only grow."""
        self.found: int | None = None
        """The number of the last look; None before it, and if the row cannot be read."""
        self._looked: float | None = None
        """Monotonic time of the last look; None while this process has not begun to look."""

    async def begin(self, number: int | None = None) -> None:
        """Read the row, and make it if there is none: with `number`, or with this version's own. Raises `StorageError`.

        Without a call of this, the process does not look. After one that failed, it looks when it is about to work.
        """
        self._looked = self._clock.monotonic() - LOOK_EVERY
        row = await self._tables.get(SWEEPS, PK_TICKS, FORMS_ROW)
        while row is None:
            # Losing the race is normal: the winner's number counts.
            await self._tables.write(SWEEPS, PK_TICKS, (Insert(FORMS_ROW, FormsRow(number or self.own).props()),))
            row = await self._tables.get(SWEEPS, PK_TICKS, FORMS_ROW)
        self.watch([row])

    def watch(self, rows: Iterable[Row]) -> None:
        """Look at rows of the ticks' partition that were just read."""
        row = next((row for row in rows if row.rk == FORMS_ROW), None)
        if row is None:
            return
        self._looked = self._clock.monotonic()
        self.found = number_of(row)
        if not may_serve(self.found, self.own) and not self.newer:
            self.newer = True
            log.warning(
                "Storage has the stored forms %s of a newer version, and this process knows %d: it serves reads, delivers and claims "
                "nothing, and refuses writes. Deploy the newer version",
                self.found if self.found is not None else "(unreadable)",
                self.own,
                extra={"action": "newer_stored_forms", "found": self.found, "own": self.own},
            )
            self._on_newer()

    async def is_newer(self) -> bool:
        """Return True if this process must not work, by a look that is at most `LOOK_EVERY` old while storage answers."""
        now = self._clock.monotonic()
        if not self.newer and self._looked is not None and now - self._looked >= LOOK_EVERY:
            # Set before the request: calls that come meanwhile go by the former look.
            self._looked = now
            try:
                async with asyncio.timeout(LOOK_FOR):
                    row = await self._tables.get(SWEEPS, PK_TICKS, FORMS_ROW)
                self.watch([row] if row is not None else [])
            except (StorageError, TimeoutError) as error:
                self._looked = now - LOOK_EVERY + LOOK_AGAIN
                log.debug("The number of the stored forms could not be read: %s", text_of(error), extra={"action": "stored_forms_unread"})
        return self.newer

    async def raise_to_own(self) -> int | OlderProcess:
        """Store this version's number unless a higher one is stored. Return the number that was stored before (0: none), or the trace of a
        process of an older version that worked a short while ago. Raises `StorageError`."""
        while True:
            rows = {row.rk: row for row in await load_rows(self._tables, RowQuery(SWEEPS, PK_TICKS, "", "~"))}
            row, now = rows.get(FORMS_ROW), self._clock.now()
            before = number_of(row) if row is not None else 0
            if not may_serve(before, self.own) or before == self.own:
                self.watch(rows.values())
                return before if before is not None else self.own
            older = [int(tick.props["at"]) for tick in rows.values() if int(tick.props.get(TICK_FORMS, self.own)) < self.own]
            if older and now - max(older) < OLDER_WITHIN:
                return OlderProcess(now - max(older))
            props = FormsRow(self.own).props()
            op = Insert(FORMS_ROW, props) if row is None else Replace(FORMS_ROW, props, row.etag)
            if isinstance(await self._tables.write(SWEEPS, PK_TICKS, (op,)), Applied):
                self.found = self.own
                return before or 0


def newer_forms(forms: StoredForms) -> Problem:
    """Return the 503 of a call that this process refuses because storage has the forms of a newer version."""
    detail = f"{sentence(forms)} It changes nothing. Repeat the call: another process may serve it."
    return Problem(
        503,
        "newer-stored-forms",
        detail,
        title="Newer stored forms",
        headers={"retry-after": str(RETRY_AFTER)},
        outcome="unchanged",
    )


def sentence(forms: StoredForms) -> str:
    """Return the sentence that says why a process does not work."""
    found = f"number {forms.found}" if forms.found is not None else "that this version cannot read"
    return f"Storage has stored forms {found} of a newer version; this process knows number {forms.own}."


class ReadOnlyOnceNewer(WrappedTables):
    """Tables for calls that read and repair on their way: it refuses the repairs once storage has the forms of a newer version."""

    def __init__(self, tables: Tables, forms: StoredForms) -> None:
        super().__init__(tables)
        self._forms = forms

    async def perform(self, request: TableRequest) -> Any:
        if isinstance(request, Write) and self._forms.newer:
            raise Unavailable(sentence(self._forms))
        return await self.inner.perform(request)
