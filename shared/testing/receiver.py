"""What took deliveries: the kit's receiver, with times as the client has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pydantic_core import from_json

from ..client.receiving import Delivery
from ..core.clock import to_datetime
from ..delivery.channels import fake, ports
from ..delivery.channels.ports import Verdict

type Answer = Verdict | Callable[[Delivery], Verdict | Awaitable[Verdict]]
"""A verdict, or a function of the delivery that works one out, at once or awaited."""


class Received(NamedTuple):
    """One attempt to deliver: what was sent, when it began and ended (aware datetimes), and how."""

    delivery: Delivery
    began: datetime
    ended: datetime
    verdict: Verdict

    @property
    def id(self) -> str:
        """The event's id."""
        return self.delivery.id

    @property
    def payload(self) -> Any:
        """The payload's JSON, read."""
        return self.delivery.payload


class Receiver:
    """Takes deliveries that no app of yours takes, answers as scripted, and remembers every attempt in order of its end."""

    def __init__(self, taken: fake.FakeReceiver) -> None:
        self._taken = taken
        self._received: list[Received] = []
        self._otherwise: Answer = fake.DELIVERED

    @property
    def received(self) -> list[Received]:
        """Every attempt so far, those of deliveries into your own app too."""
        self._received += map(_seen, self._taken.received[len(self._received) :])
        return self._received

    @property
    def otherwise(self) -> Answer:
        """The answer where there is neither a script nor an app of yours; to set it takes deliveries away from your app."""
        return self._otherwise

    @otherwise.setter
    def otherwise(self, answer: Answer) -> None:
        self._otherwise = answer
        self._taken.otherwise = _asked(answer)

    def script(self, event_id: str, *answers: Answer) -> None:
        """Answer the attempts at this event in this order; the last answer stays for good."""
        self._taken.script(event_id, *map(_asked, answers))

    def first(self, event_id: str, *answers: Answer) -> None:
        """Answer the first attempts at this event so, and the others as usual."""
        self._taken.first(event_id, *map(_asked, answers))

    def of(self, event_id: str) -> list[Received]:
        """The attempts at one event so far."""
        return [got for got in self.received if got.id == event_id]

    def delivered(self) -> list[str]:
        """Ids of the deliveries taken, in order; an id that was taken twice is there twice."""
        return self._taken.delivered()


def _seen(taken: fake.Received) -> Received:
    began, ended = to_datetime(taken.began), to_datetime(taken.ended)
    return Received(_told(taken.target, taken.delivery), began, ended, taken.verdict)


def _told(target: ports.Target, delivery: ports.Delivery) -> Delivery:
    return Delivery(
        id=delivery.id,
        due=to_datetime(delivery.due),
        fired=to_datetime(delivery.fired),
        attempt=delivery.attempt,
        late=timedelta(milliseconds=delivery.late_ms),
        tenant=target.tenant,
        channel=target.name,
        payload=from_json(delivery.body),
        body=delivery.body,
    )


def _asked(answer: Answer) -> fake.Answer:
    """The answer as the service's own receiver takes it."""
    return answer if isinstance(answer, Verdict) else lambda target, delivery: answer(_told(target, delivery))
