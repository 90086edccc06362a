"""The keeper's interface to the application: the view that `owns` reads, and the callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from .callback_threads import URGENT

_NEVER: Final = float("-inf")


class OwnershipView(NamedTuple):
    """The owned partitions with their epochs. until: end of the validity, steady seconds, exclusive."""

    epochs: dict[int, int]
    until: float


class KeySpread(NamedTuple):
    """The mapping of keys to partitions: `hash mod partitions`."""

    generation: int
    partitions: int


class CallbackRunner(Protocol):
    """Runs callbacks (`CallbackThreads`)."""

    def put(self, partition: int, call: Callable[[], object], done: Callable[[], object] | None = None) -> None:
        """Run `call`, then `done`, after the callbacks that were added for this partition before."""

    def between(self, call: Callable[[], object]) -> None:
        """Run `call` after all callbacks that were added before, and before all that are added later."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The application's callbacks (see `LeaseKeeper`). joined: the server has registered, for the first time or again."""

    gained: Callable[[int, int], object] = lambda partition, epoch: None
    lost: Callable[[int, str], object] = lambda partition, reason: None
    danger: Callable[[float], object] = lambda seconds: None
    exit: Callable[[], object] = lambda: None
    joined: Callable[[], object] = lambda: None
    resized: Callable[[int, int], object] = lambda generation, partitions: None


class ApplicationNotifier:
    """Notifies the application. One per keeper. `view` may be read at any time; the rest belongs to the heartbeat loop."""

    def __init__(self, calls: CallbackRunner, callbacks: Callbacks) -> None:
        self._calls, self.callbacks = calls, callbacks
        self.view = OwnershipView({}, _NEVER)
        self.spread: KeySpread | None = None
        """The mapping that the application knows; set before the first partition of a generation is published."""
        self.warned = False
        self._told: dict[int, int] = {}

    @property
    def serving(self) -> bool:
        """Return True if the application believes that it owns a partition."""
        return bool(self._told)

    def holds(self, generation: int, partition: int, epoch: int, steady: Callable[[], float]) -> bool:
        """Return True if the server may act on the partition of this generation under this epoch now. For any thread."""
        spread, (epochs, until) = self.spread, self.view
        if spread is None or spread != self.spread or spread.generation != generation:
            return False
        return epochs.get(partition) == epoch and steady() < until

    def publish(self, epochs: dict[int, int], until: float) -> None:
        """Publish the owned partitions and the end of their validity."""
        self.view = OwnershipView(epochs, until)

    def report_changes(self, now: float, reason: str) -> None:
        """Call `lost` and `gained` for all changes. reason: for lost partitions."""
        epochs: Mapping[int, int] = self.view.epochs if now < self.view.until else {}
        for partition, epoch in list(self._told.items()):
            if epochs.get(partition) != epoch:
                del self._told[partition]
                self._calls.put(partition, partial(self.callbacks.lost, partition, reason))
        for partition, epoch in epochs.items():
            if partition not in self._told:
                self._told[partition] = epoch
                self._calls.put(partition, partial(self.callbacks.gained, partition, epoch))

    def warn(self, left: float, danger: float) -> None:
        """Call `danger` once when `left` seconds of validity are at most `danger` and a partition is owned."""
        if not self._told or left > danger:
            self.warned = False
        elif not self.warned:
            self.warned = True
            self._calls.put(URGENT, partial(self.callbacks.danger, left))

    def hand_off(self, partition: int, done: Callable[[], object], reason: str = "handed-off") -> None:
        """Make the application stop using the partition, then call `done`."""
        if self._told.pop(partition, None) is not None:
            self._calls.put(partition, partial(self.callbacks.lost, partition, reason), done)
        else:
            done()

    def report_loss_of_all(self, reason: str) -> None:
        """Report that no partition is owned any more."""
        self.view = OwnershipView({}, _NEVER)
        self.report_changes(_NEVER, reason)

    def report_resize(self, spread: KeySpread) -> bool:
        """Set the mapping of keys and call `resized`. Return False if the mapping is known or the first one.

        The partitions of the former generation must have been handed off.
        """
        before, self.spread = self.spread, spread
        if before is None or before == spread:
            return False
        self._calls.between(partial(self.callbacks.resized, *spread))
        return True

    def report_exit(self) -> None:
        """Report that the process must end."""
        self._calls.put(URGENT, self.callbacks.exit)
