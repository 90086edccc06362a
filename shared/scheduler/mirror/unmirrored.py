"""A scheduler without a mirrored pair: every shard is served, and nothing is copied. `mirror.pair` has the same with a pair."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from ...core.clock import Millis
from ...engine.async_runner import AsyncRunner
from ...engine.effects import Steps
from ...storage.ports import Props
from ..keys import Address

if TYPE_CHECKING:
    from ..protocol.ingest import KnownId
    from ..protocol.mirroring import Side, Way
    from ..rows import EventToStore


class ShardOperation:
    """An operation on a shard: on a mirrored one, it is copied to the other account before it is acknowledged. This one is not copied."""

    way: Way | None = None
    """The direction of the copy; None if nothing is copied."""

    async def copy(self, steps_of: Callable[[Way], Steps[bool]]) -> None:
        """Copy what was just done. Raises `OutcomeUnknown` if this fails: the operation is done but must not be acknowledged."""

    def keep(self, shard: str) -> Steps[bool]:
        """Make sure that the other account has what is stored of a shard, or gets it before it serves, whatever becomes of this process.

        Returns False if this side no longer serves.
        """
        yield from ()
        return True

    async def copy_id(self, tenant: str, event_id: str) -> None:
        """Copy the row of an id, and the rows beside it. Raises as `copy` does."""


class ShardGuard:
    """One owner's permission to serve a shard, beside its ownership. This one is for shards that are not mirrored: it always holds."""

    stopped: Millis = 0
    """Owners with an older last heartbeat, by the store's time, have stopped: they were the other side's."""

    @property
    def may_start(self) -> bool:
        """True if the last observation still covers a delivery that starts now."""
        return True

    def note_change(self) -> None:
        """Note that the copy lacks changes."""

    async def look(self, *, copy: bool = True) -> bool:
        """Observe the fence, and copy if `copy` is set; return False if the other side has taken over. Raises `StorageError`."""
        return True

    def start_watch(self, lost: Callable[[], None], renewed: Callable[[], None]) -> asyncio.Task[None] | None:
        """Observe the fence repeatedly, in a task. It calls `lost` if the other side has taken over, and `renewed` after each observation
        that shows it has not."""
        return None

    def before_end(self, entry: Props) -> Steps[bool]:
        """Return the steps between a done gate and its ledger row."""
        yield from ()
        return True


UNGUARDED: Final = ShardGuard()
_ALONE: Final = nullcontext(ShardOperation())


class Mirror:
    """The mirrored pair as a scheduler sees it. This one is for a scheduler without a pair."""

    side: Side = "first"
    paired = False
    """True if there is a pair."""
    whole = False
    """True if every new event of this side is stored as a mirrored one, without which it could not be copied back to the first account."""

    def __init__(self, runner: AsyncRunner) -> None:
        self._runner = runner

    def mirrors(self, event: EventToStore) -> bool:
        """Return True if a new event is stored as a mirrored one."""
        return False

    def term(self, since: Millis | None = None) -> int:
        """Return the epoch under which this side, the second, accepts an event; 0 if the first account may have it too.

        since: time at which the event came, by the second account's time; None for one that comes now. Within one epoch of the second, no
        process that knows the fence stores anything from a queue in the first account.
        """
        return 0

    async def known_before(self, tenant: str, event: EventToStore, name: str) -> KnownId | None:
        """Return the event that has `name`, an id of `event`, in the first account; None if there is none, or if it does not answer.

        Only the second side asks. Raises `Unavailable` if that account does not answer and an event of the ingest queue may be there:
        otherwise it would be delivered twice, or after its cancel.
        """
        return None

    def file_copy(self, shard: str, wake: Millis) -> Steps[None]:
        """File the copy's index row of a shard that is about to be filled."""
        yield from ()

    def serving(self, shard: str) -> AbstractAsyncContextManager[ShardOperation]:
        """Surround an operation on a shard that is acknowledged at the end.

        Raises `Unavailable` before the operation if this side does not serve the shard or may not. Raises `OutcomeUnknown` at the end if it
        took so long that the other side may have taken over.
        """
        return _ALONE

    async def carry[T](self, address: Address, steps: Steps[T], acknowledges: Callable[[T], bool]) -> T:
        """Apply a change to an event. A mirrored event's copy is changed too, before the caller gets an answer that `acknowledges` it."""
        return await self._runner.run(steps)

    async def before_redrive(self, shard: str) -> None:
        """Store what must be there before dead events of the shard are redriven."""

    async def guard(self, shard: str) -> ShardGuard | float | None:
        """Return permission to serve a shard; seconds after which to ask again; or None if the other side serves it.

        Raises `Unavailable`.
        """
        return UNGUARDED
