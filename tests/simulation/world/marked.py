"""The way to the receiver for events that a history has beside those of its plan: a mark in the payload tells them apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import orjson

from shared.delivery.channels import Sender
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict

if TYPE_CHECKING:
    from ..history import World
    from .instance import Instance

ACCEPTED = Verdict("delivered", 200)


class PlannedAnswer(NamedTuple):
    """The receiver's answer to a delivery, after so many seconds. take: called at the moment of the answer."""

    take: Callable[[], None]
    seconds: float = 0.0
    verdict: Verdict = ACCEPTED


class MarkedSender:
    """A `Sender` that answers deliveries whose payload has the mark, and gives all others to another sender."""

    def __init__(
        self, world: World, instance: Instance, others: Sender, mark: str, arrived: Callable[[Instance, OutgoingDelivery], PlannedAnswer]
    ) -> None:
        """arrived: checks a delivery that begins, and plans its answer."""
        self._world, self._instance, self._others, self._mark, self._arrived = world, instance, others, mark, arrived

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        world, instance = self._world, self._instance
        if self._mark not in orjson.loads(delivery.body):
            return await self._others.send(target, delivery)
        fault = world.fault(instance, "deliver")
        if fault == "crash":
            instance.crash()
            raise asyncio.CancelledError
        answer = self._arrived(instance, delivery)
        if wait := answer.seconds + world.latency(instance):
            await asyncio.sleep(wait)
        answer.take()
        if fault == "crash-applied":
            instance.crash()
        elif fault == "pause":
            instance.pause(world.long_wait())
        await instance.ready()
        return answer.verdict

    async def close(self) -> None:
        """Nothing to release."""
