"""A shop that cancels orders that were not paid within 30 days."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

import tocsin


class Orders:
    def __init__(self, client: tocsin.Client, secret: str) -> None:
        self._client, self._secret = client, secret
        self.state: dict[int, str] = {}

    def place(self, order: int) -> None:
        self.state[order] = "open"
        self._client.schedule({"order": order}, id=f"order-{order}:unpaid", delay=timedelta(days=30))

    def pay(self, order: int) -> None:
        self.state[order] = "paid"
        with suppress(tocsin.Conflict):  # it is being delivered at this moment: `unpaid` looks at the state
            self._client.cancel(f"order-{order}:unpaid")

    def unpaid(self, headers: Mapping[str, str], body: bytes) -> int:
        """Handle a delivery from the web framework and return the status to answer."""
        try:
            delivery = tocsin.verify(headers, body, self._secret)
        except tocsin.BadDelivery:
            return 401
        order = delivery.payload["order"]
        if self.state[order] == "open":
            self.state[order] = "cancelled"
        return 204
