"""The fleet channel over real sockets: the request to the owner's endpoint, its header, and the answer 421."""

from __future__ import annotations

from shared.core.owner_header import OwnerClaim, verify_owner
from shared.delivery.channels.fleet import FleetSender
from shared.delivery.channels.http import HttpSender
from shared.delivery.channels.model import FleetChannel
from shared.delivery.channels.ports import Target
from shared.delivery.fleet_owners import PartitionOwner
from tests.texts import assert_text

from .conftest import OTHER_SECRET, SECRET, Listen, answer, make_delivery, url

SPEC = FleetChannel.model_validate(
    {"type": "fleet", "fleet": "search", "path": "/events", "headers": {"x-team": "blue", "Tocsin-Owner": "forged"}, "timeout": "PT2S"}
)
TARGET = Target("demo", "owners", SPEC, (SECRET, OTHER_SECRET))


def owner(endpoint: str, **change: object) -> PartitionOwner:
    return PartitionOwner("search", 3, 17, 42, "s7", "i1", endpoint)._replace(**change)  # type: ignore[arg-type]


async def test_the_owner_gets_the_request_with_its_lease(listen: Listen, sender: HttpSender) -> None:
    first, second = await listen(), await listen()
    fleet = FleetSender(sender)
    for epoch, receiver in ((42, first), (43, second), (44, first)):
        delivery = make_delivery(owner=owner(url(receiver, "").rstrip("/"), epoch=epoch))
        assert (await fleet.send(TARGET, delivery)).outcome == "delivered"
    assert (len(first.requests), len(second.requests)) == (2, 1)
    for epoch, request in ((42, first.requests[0]), (43, second.requests[0]), (44, first.requests[1])):
        assert request.line == "POST /events HTTP/1.1"
        assert (request.headers["ce-source"], request.headers["x-team"]) == ("/tenants/demo/channels/owners", "blue")
        claim = OwnerClaim("search", 3, 17, epoch, "ev-1")
        [value] = [value for name, value in request.pairs if name == "tocsin-owner"]
        assert verify_owner(value, "ev-1", [SECRET]) == verify_owner(value, "ev-1", [OTHER_SECRET]) == claim
    assert first.connections == second.connections == 1


async def test_421_is_a_stale_answer_of_a_fleet_channel_alone(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen(answer(b"HTTP/1.1 421 Misdirected Request\r\nContent-Length: 0\r\n\r\n"))
    verdict = await FleetSender(sender).send(TARGET, make_delivery(owner=owner(url(receiver, "").rstrip("/"))))
    assert (verdict.outcome, verdict.status) == ("stale", 421)
    assert_text("delivery.stale-owner", verdict.error, server="s7", partition=17, epoch=42)


async def test_an_endpoint_that_must_not_be_reached_is_another_owners_matter(sender: HttpSender) -> None:
    for endpoint in ("https://10.2.0.7:8443", "http://169.254.169.254", "gopher://x", "https://user@", "nonsense"):
        verdict = await FleetSender(sender).send(TARGET, make_delivery(owner=owner(endpoint)))
        assert (verdict.outcome, verdict.status) == ("retry", None), endpoint
