"""The kit's receiver of deliveries. Times are datetimes, as in the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pydantic_core import from_json

from ..client.receiving import Delivery
from ..core.clock import to_datetime
from ..delivery.channels import fake, ports
from ..delivery.channels.content import JSON
from ..delivery.channels.ports import Verdict

type ReceiverAnswer = Verdict | Callable[[Delivery], Verdict | Awaitable[Verdict]]
"""A verdict, or a function of the delivery that returns one, directly or as an awaitable."""


class Received(NamedTuple):
    """One attempt to deliver: the delivery, when the attempt began and ended (with time zones), and the verdict."""

    delivery: Delivery
    began: datetime
    ended: datetime
    verdict: Verdict

    @property
    def id(self) -> str:
        """Id of the event."""
        return self.delivery.id

    @property
    def payload(self) -> Any:
        """The payload, decoded from JSON; None for a request without one."""
        return self.delivery.payload


class Receiver:
    """Receives deliveries that no app of yours receives, answers as scripted, and records every attempt in the order of their ends."""

    def __init__(self, fake_receiver: fake.FakeReceiver) -> None:
        self._fake = fake_receiver
        self._received: list[Received] = []
        self._otherwise: ReceiverAnswer = fake.DELIVERED

    @property
    def received(self) -> list[Received]:
        """All attempts so far, including deliveries into your own app."""
        self._received += map(_to_received, self._fake.received[len(self._received) :])
        return self._received

    @property
    def otherwise(self) -> ReceiverAnswer:
        """The answer without a script and without an app of yours. Setting it ends deliveries into your app."""
        return self._otherwise

    @otherwise.setter
    def otherwise(self, answer: ReceiverAnswer) -> None:
        self._otherwise = answer
        self._fake.otherwise = _to_fake_answer(answer)

    def script(self, event_id: str, *answers: ReceiverAnswer) -> None:
        """Answer the attempts of this event in this order. The last answer repeats."""
        self._fake.script(event_id, *map(_to_fake_answer, answers))

    def first(self, event_id: str, *answers: ReceiverAnswer) -> None:
        """Answer the first attempts of this event in this order, and later ones as usual."""
        self._fake.first(event_id, *map(_to_fake_answer, answers))

    def of(self, event_id: str) -> list[Received]:
        """Return the attempts of one event so far."""
        return [got for got in self.received if got.id == event_id]

    def delivered(self) -> list[str]:
        """Return the ids of the accepted deliveries, in order. An id that was delivered twice occurs twice."""
        return self._fake.delivered()


def _to_received(attempt: fake.ReceivedAttempt) -> Received:
    began, ended = to_datetime(attempt.began), to_datetime(attempt.ended)
    return Received(_client_delivery(attempt.target, attempt.delivery), began, ended, attempt.verdict)


def _client_delivery(target: ports.Target, delivery: ports.OutgoingDelivery) -> Delivery:
    return Delivery(
        id=delivery.id,
        due=to_datetime(delivery.due),
        fired=to_datetime(delivery.fired),
        attempt=delivery.attempt,
        late=timedelta(milliseconds=delivery.late_ms),
        tenant=target.tenant,
        channel=target.name,
        payload=delivery.body if delivery.content_type != JSON else from_json(delivery.body) if delivery.body else None,
        body=delivery.body,
        content_type=delivery.content_type,
    )


def _to_fake_answer(answer: ReceiverAnswer) -> fake.ScriptedAnswer:
    """Return the answer in the form that `FakeReceiver` takes."""
    return answer if isinstance(answer, Verdict) else lambda target, delivery: answer(_client_delivery(target, delivery))
