"""A shop that cancels orders that were not paid within 30 days. Run it beside `tocsin dev`: python orders.py"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

import tocsin


class Orders:
    def __init__(self, client: tocsin.Client, secret: str, patience: timedelta = timedelta(days=30)) -> None:
        self._client, self._secret, self._patience = client, secret, patience
        self.state: dict[int, str] = {}

    def place(self, order: int) -> None:
        self.state[order] = "open"
        self._client.schedule({"order": order}, id=f"order-{order}:unpaid", delay=self._patience)

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


if __name__ == "__main__":
    from local import stage

    with stage() as local:
        shop = Orders(local.client, local.secrets["default"], patience=timedelta(seconds=3))
        local.handlers["default"] = shop.unpaid
        shop.place(17)
        shop.place(18)
        shop.pay(18)
        local.wait(lambda: shop.state[17] != "open")
        print(f"Order 17 is {shop.state[17]}, order 18 is {shop.state[18]}.")
