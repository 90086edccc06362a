"""Known bugs of deliveries to the owner of a partition, to be planted one at a time: the histories must find each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.core.partition_hash import partition_of_key
from shared.delivery import fleet_owners
from shared.delivery.channels import rules as verdicts
from shared.delivery.channels.ports import Verdict
from shared.delivery.fleet_owners import OwnerDecision
from shared.leases.node.notifications import ApplicationNotifier
from shared.leases.service import owner_lookup
from shared.leases.service.owner_lookup import OwnerLookup
from tests.model.checking.mutants import Patch


def ignores_the_epoch() -> list[Patch]:
    """The receiver's helper asks whether the server owns the partition, whatever the epoch."""

    def holds(self: ApplicationNotifier, generation: int, partition: int, epoch: int, steady: Callable[[], float]) -> bool:
        same = self.spread is not None and self.spread.generation == generation
        return same and partition in self.view.epochs and steady() < self.view.until

    return [(ApplicationNotifier, "holds", holds)]


def ignores_the_validity() -> list[Patch]:
    def holds(self: ApplicationNotifier, generation: int, partition: int, epoch: int, steady: Callable[[], float]) -> bool:
        return self.spread is not None and self.spread.generation == generation and self.view.epochs.get(partition) == epoch

    return [(ApplicationNotifier, "holds", holds)]


def ignores_the_lease() -> list[Patch]:
    """The helper checks the signatures alone."""
    return [(ApplicationNotifier, "holds", lambda self, generation, partition, epoch, steady: True)]


def lookups_never_expire() -> list[Patch]:
    plain = OwnerLookup.__init__

    def begin(self: OwnerLookup, runner: Any, clock: Any) -> None:
        plain(self, runner, clock, fresh=1e9)

    return [(OwnerLookup, "__init__", begin)]


def stale_counts_as_delivered() -> list[Patch]:
    return [(verdicts, "stale", lambda owner: Verdict("delivered", 421))]


def stale_is_final() -> list[Patch]:
    """A stale answer is judged as any other 4xx."""
    return [(verdicts, "stale", lambda owner: Verdict("final", 421, "refused"))]


def maps_by_the_former_count() -> list[Patch]:
    def partition_in_force(state: Any, key: str) -> int:
        return partition_of_key(key, state.fleet.former or state.fleet.partitions) if state.fleet is not None else 0

    return [(owner_lookup, "partition_in_force", partition_in_force)]


def waits_for_ever() -> list[Patch]:
    """A partition that was seen without an owner is not looked at again."""
    plain = fleet_owners.decide

    def decide(owner: Any, since: int, punctual: int, now: int) -> OwnerDecision:
        found = plain(owner, since, punctual, now)
        return found._replace(look=now + 3_600_000) if found.action == "wait" else found

    return [(fleet_owners, "decide", decide)]


def asks_again_for_ever() -> list[Patch]:
    """After a stale answer the next attempt never comes."""
    return [(fleet_owners, "stale_pause", lambda count: 3_600_000)]


PLANTED: dict[str, Callable[[], list[Patch]]] = {
    "the helper ignores the epoch": ignores_the_epoch,
    "the helper ignores the validity": ignores_the_validity,
    "the helper ignores the lease": ignores_the_lease,
    "lookups never expire": lookups_never_expire,
    "a stale answer counts as delivered": stale_counts_as_delivered,
    "a stale answer is final": stale_is_final,
    "keys map by the former count": maps_by_the_former_count,
    "waits are not looked at again": waits_for_ever,
    "the owner is not asked for again": asks_again_for_ever,
}
