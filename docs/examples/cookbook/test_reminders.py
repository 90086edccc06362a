"""With async and plain pytest: a reminder comes after a month."""

import asyncio
from datetime import timedelta

import httpx
import tocsin
from tocsin.testing import Tocsin


async def a_month() -> list[str]:
    taken: list[str] = []

    async def hook(request: httpx.Request) -> int:
        delivery = tocsin.verify(request.headers, request.content, kit.secret)
        taken.append(delivery.payload["text"])
        return 204

    async with Tocsin(deliver_to=hook, url="http://shop.test/hooks/reminders") as kit:
        event = await kit.client.schedule({"text": "water the plants"}, delay=timedelta(days=30))
        [received] = await kit.advance(days=30)
        assert received.delivery.fired == event.due
    return taken


def test_reminder_comes_after_a_month() -> None:
    assert asyncio.run(a_month()) == ["water the plants"]
