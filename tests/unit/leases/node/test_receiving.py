"""`OwnerGuard`: a server takes only the deliveries of partitions that it owns, under the epoch that it has."""

from __future__ import annotations

import pytest

from shared.core.clock import Millis
from shared.core.owner_header import STALE
from shared.delivery.channels.fleet import http_target
from shared.delivery.channels.http import post_of
from shared.delivery.channels.model import FleetChannel
from shared.delivery.channels.ports import OutgoingDelivery, Target
from shared.delivery.egress_guard import Egress
from shared.delivery.fleet_owners import PartitionOwner
from shared.leases.node.keeper import LeaseKeeper
from shared.leases.node.notifications import ApplicationNotifier, Callbacks, KeySpread
from shared.leases.node.receiving import OwnedDelivery, OwnerGuard, RefusedDelivery
from shared.storage.blocking import MemoryBlockingTables
from shared.storage.memory import MemoryTables
from tests.simulation.checks.truth import Time

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW: Millis = 1_800_000_000_000
SPEC = FleetChannel.model_validate({"type": "fleet", "fleet": "search", "path": "/events", "headers": {"x-team": "blue"}})
OWNER = PartitionOwner("search", 3, 17, 42, "s7", "i1", "https://s7.example:8443")


class Keeper:
    """Owns partition 17 of generation 3 under epoch 42 until second 10."""

    fleet = "search"

    def __init__(self) -> None:
        self.now = 0.0
        self.notifier = ApplicationNotifier(Calls(), Callbacks())
        self.notifier.spread = KeySpread(3, 64)
        self.notifier.publish({17: 42}, 10.0)

    def holds(self, generation: int, partition: int, epoch: int) -> bool:
        return self.notifier.holds(generation, partition, epoch, lambda: self.now)


class Calls:
    def put(self, *_: object) -> None: ...
    def between(self, *_: object) -> None: ...


def request(owner: PartitionOwner = OWNER, body: bytes = b'{"n":1}') -> tuple[dict[str, str], bytes]:
    target = Target("demo", "owners", SPEC, (SECRET,))
    delivery = OutgoingDelivery("order-17", NOW, NOW, 1, body, ordering_key="customer-7", owner=owner)
    post = post_of(http_target(target, delivery), delivery, Egress())
    assert post.url == f"{owner.endpoint}/events"
    return dict(post.headers), post.body


def check(headers: dict[str, str], body: bytes, keeper: Keeper | None = None) -> OwnedDelivery | RefusedDelivery:
    return OwnerGuard(keeper or Keeper(), [SECRET], wall=lambda: NOW).check(headers, body)


def test_the_owner_takes_the_delivery() -> None:
    found = check(*request())
    assert found == OwnedDelivery("order-17", 17, 42, b'{"n":1}', 3)
    assert isinstance(found, OwnedDelivery) and found.payload == {"n": 1}


@pytest.mark.parametrize("change", [{"epoch": 41}, {"epoch": 43}, {"partition": 16}, {"generation": 2}, {"fleet": "other"}])
def test_another_lease_is_stale(change: dict[str, object]) -> None:
    found = check(*request(OWNER._replace(**change)))  # type: ignore[arg-type]
    assert isinstance(found, RefusedDelivery) and found.status == STALE == 421


def test_a_lease_whose_validity_is_over_is_stale() -> None:
    keeper = Keeper()
    keeper.now = 10.0
    found = check(*request(), keeper)
    assert isinstance(found, RefusedDelivery) and found.status == STALE


def test_what_the_service_did_not_sign_is_refused() -> None:
    headers, body = request()
    assert check({}, body) == RefusedDelivery(401, "the signature is not valid")
    assert check(headers, body + b" ") == RefusedDelivery(401, "the signature is not valid")
    without = {name: value for name, value in headers.items() if name != "tocsin-owner"}
    no_owner = check(without, body)
    assert isinstance(no_owner, RefusedDelivery) and no_owner.status == 401 and "tocsin-owner" in no_owner.reason
    other = {**headers, "tocsin-owner": headers["tocsin-owner"].replace("epoch=42", "epoch=43")}
    assert check(other, body) == no_owner


def test_the_signature_of_the_standard_is_unchanged() -> None:
    headers, body = request()
    assert check({name.upper(): value for name, value in headers.items()}, body) == check(headers, body)
    plain = {name: value for name, value in headers.items() if name.startswith("webhook-")}
    assert set(plain) == {"webhook-id", "webhook-timestamp", "webhook-signature"}


def test_a_keeper_refuses_an_endpoint_that_is_none() -> None:
    tables = MemoryBlockingTables(MemoryTables(Time()))
    with pytest.raises(ValueError, match=r"endpoint must be .* not 's7:8443'"):
        LeaseKeeper("search", "s7", tables, endpoint="s7:8443")


def test_a_malformed_secret_is_noticed_at_the_start() -> None:
    with pytest.raises(ValueError, match="not a webhook secret"):
        OwnerGuard(Keeper(), ["whsec_%"])
