"""The receiver of all deliveries: one for all instances, with a script per event."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict

if TYPE_CHECKING:
    from ..history import World
    from .instance import Instance


class Receiver:
    """Answers as the stories' scripts say."""

    def __init__(self, world: World) -> None:
        self._world = world

    def at(self, instance: Instance) -> Carrier:
        """The sender of one instance."""
        return Carrier(self._world, instance)


class Carrier:
    """A `Sender`: one instance's way to the receiver."""

    def __init__(self, world: World, instance: Instance) -> None:
        self._world, self._instance = world, instance

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        world, instance = self._world, self._instance
        fault = world.fault(instance, "deliver")
        if fault is not None:
            world.note(instance, f"delivery {fault}", delivery.id)
        if fault == "crash":
            instance.crash()
            raise asyncio.CancelledError
        body = orjson.loads(delivery.body)
        if "event" in body:
            world.oracle.told(instance, target.tenant, delivery, body)
            if fault == "crash-applied":
                instance.crash()
            await instance.ready()
            return Verdict("delivered", 200)
        step = world.oracle.started(instance, delivery)
        story = world.oracle.stories[body["e"]]
        wait = step.takes + world.latency(instance)
        if wait:
            await asyncio.sleep(wait)
        if world.ward.dead(target.name):
            step = step._replace(verdict="silent")
        if step.verdict == "ok":
            world.oracle.accepted(story)
        world.note(instance, "receiver answers", (str(story), step.verdict), None)
        if fault == "crash-applied":
            instance.crash()
        elif fault == "pause":
            instance.pause(world.long_wait())
        await instance.ready()
        match step.verdict:
            case "ok":
                return Verdict("delivered", 200)
            case "later":
                world.works.begin(story, delivery)
                return Verdict("delivered", 202, later=True)
            case "retry":
                return Verdict("retry", 503, "busy", step.retry_after)
            case "final":
                return Verdict("final", 400, "refused")
            case "gone":
                return Verdict("final", 410, "gone", gone=True)
            case "silent":
                return Verdict("retry", None, "no answer")
            case _:
                raise RuntimeError("simulated: a bug in a sender")

    async def close(self) -> None:
        """Nothing to release."""
