"""What the application is told, and what it asks: the view that `owns` reads, and the callbacks that follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from .callback_threads import URGENT

_NEVER: Final = float("-inf")


class OwnershipView(NamedTuple):
    """What `owns` reads: the epochs of what is held, and until when (steady seconds, exclusive)."""

    epochs: dict[int, int]
    until: float


class KeySpread(NamedTuple):
    """How keys are spread over partitions: `hash mod partitions`."""

    generation: int
    partitions: int


class CallbackRunner(Protocol):
    """What runs callbacks: see `calls.Calls`."""

    def put(self, partition: int, call: Callable[[], object], done: Callable[[], object] | None = None) -> None:
        """Run `call`, then `done`, after what was put for this partition before."""

    def between(self, call: Callable[[], object]) -> None:
        """Run `call` after all that was put before, and before all that is put after."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The application's, as `LeaseKeeper` describes them. joined: the server is in, for the first time or again."""

    gained: Callable[[int, int], object] = lambda partition, epoch: None
    lost: Callable[[int, str], object] = lambda partition, reason: None
    danger: Callable[[float], object] = lambda seconds: None
    exit: Callable[[], object] = lambda: None
    joined: Callable[[], object] = lambda: None
    resized: Callable[[int, int], object] = lambda generation, partitions: None


class ApplicationNotifier:
    """One per keeper. `view` may be read at any time; the rest belongs to the loop that beats."""

    def __init__(self, calls: CallbackRunner, callbacks: Callbacks) -> None:
        self._calls, self.callbacks = calls, callbacks
        self.view = OwnershipView({}, _NEVER)
        self.spread: KeySpread | None = None
        """As the application has been told; set before the first partition of a generation is published."""
        self.warned = False
        self._told: dict[int, int] = {}

    @property
    def serving(self) -> bool:
        """Whether the application takes something for its own."""
        return bool(self._told)

    def publish(self, epochs: dict[int, int], until: float) -> None:
        """This is owned, until then."""
        self.view = OwnershipView(epochs, until)

    def report_changes(self, now: float, reason: str) -> None:
        """Tell what has changed. reason: of what is owned no longer."""
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
        """Warn once when `left` seconds of validity are not more than `danger`, and there is something to lose."""
        if not self._told or left > danger:
            self.warned = False
        elif not self.warned:
            self.warned = True
            self._calls.put(URGENT, partial(self.callbacks.danger, left))

    def hand_off(self, partition: int, done: Callable[[], object], reason: str = "handed-off") -> None:
        """Have the application end what it does with the partition, then call `done`."""
        if self._told.pop(partition, None) is not None:
            self._calls.put(partition, partial(self.callbacks.lost, partition, reason), done)
        else:
            done()

    def report_loss_of_all(self, reason: str) -> None:
        """Nothing is owned any more."""
        self.view = OwnershipView({}, _NEVER)
        self.report_changes(_NEVER, reason)

    def report_resize(self, spread: KeySpread) -> bool:
        """Keys are spread so from here on; what was owned has been handed off before. False when that is known, or the first that is."""
        before, self.spread = self.spread, spread
        if before is None or before == spread:
            return False
        self._calls.between(partial(self.callbacks.resized, *spread))
        return True

    def report_exit(self) -> None:
        """The process is to end."""
        self._calls.put(URGENT, self.callbacks.exit)
