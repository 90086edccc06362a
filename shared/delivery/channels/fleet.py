"""The fleet channel: signed CloudEvents by POST to the server that owns the partition of the event's ordering key.

`delivery.fleet_owners` chooses the owner before; a delivery carries it. The request is that of an http channel, to the owner's endpoint and
the channel's path, with the header `tocsin-owner`. Egress rules apply to each request, as with any URL.
"""

from __future__ import annotations

from dataclasses import replace

from .http import HttpSender
from .model import FleetChannel, HttpChannel
from .ports import OutgoingDelivery, Target, Verdict

_MOST_SPECS = 10_000


def http_target(target: Target, delivery: OutgoingDelivery, spec: HttpChannel | None = None) -> Target:
    """Return the target as an http channel for the owner of one delivery. spec: its settings, if they were made before."""
    return replace(target, spec=http_spec(target, delivery) if spec is None else spec)


def http_spec(target: Target, delivery: OutgoingDelivery) -> HttpChannel:
    """Return the settings of an http channel for one delivery. Raises TypeError for another channel or without an owner."""
    spec, owner = target.spec, delivery.owner
    if not isinstance(spec, FleetChannel) or owner is None:
        raise TypeError(f"not a delivery to the owner of a partition: {spec.type}")
    # Not validated again: an endpoint that somebody wrote into a row by hand is refused when the request is planned.
    return HttpChannel.model_construct(
        type="http",
        url=owner.endpoint + spec.path,
        headers=spec.headers,
        timeout=spec.timeout,
        answers=spec.answers,
        answer_headers=spec.answer_headers,
        final_statuses=spec.final_statuses,
    )


class FleetSender:
    """Sends fleet deliveries with the http channel's sender, which has the connections and stays open when this one is closed."""

    def __init__(self, http: HttpSender) -> None:
        self._http = http
        self._http_specs: dict[tuple[str, str, str], tuple[FleetChannel, HttpChannel]] = {}
        """By tenant, channel and endpoint: the fleet channel's settings, and the http channel's that were made of them."""

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        """Send one request to the owner that the delivery names; see `HttpSender.send`."""
        verdict = await self._http.send(http_target(target, delivery, self._spec(target, delivery)), delivery)
        if verdict.outcome == "final" and verdict.status is None:
            # The egress rules, for example, forbid this server's endpoint. That of the next owner may be allowed.
            return Verdict("retry", None, verdict.error)
        return verdict

    def _spec(self, target: Target, delivery: OutgoingDelivery) -> HttpChannel | None:
        if delivery.owner is None or not isinstance(target.spec, FleetChannel):
            return None
        key = (target.tenant, target.name, delivery.owner.endpoint)
        kept = self._http_specs.get(key)
        if kept is None or kept[0] is not target.spec:
            if len(self._http_specs) >= _MOST_SPECS:
                self._http_specs.clear()
            kept = self._http_specs[key] = (target.spec, http_spec(target, delivery))
        return kept[1]

    async def close(self) -> None:
        """Do nothing: the connections belong to the http channel's sender."""
