"""Calls to a partner's API that is down for hours now and then. Run it beside `tocsin dev`: python partner.py

The event *is* the call: the channel `partner` has the partner's URL, and the retry policy repeats it until the partner accepts it. The two
callbacks tell the shop how it ended, so the shop keeps no queue, no thread and no state of a retry.
"""

from collections.abc import Mapping
from datetime import timedelta

import tocsin


class Shipments:
    def __init__(self, client: tocsin.Client, secret: str) -> None:
        """secret: of the channel `default`, which gets the callbacks."""
        self._client, self._secret = client, secret
        self.state: dict[str, str] = {}

    def announce(self, parcel: str, first: timedelta = timedelta(seconds=30)) -> None:
        """Send a parcel's announcement now, and again for a day if the partner does not accept it."""
        self.state[parcel] = "announced"
        self._client.schedule(
            {"parcel": parcel},
            id=f"shipment-{parcel}",
            channel="partner",
            delay=timedelta(0),
            retry={"attempts": 12, "first": first, "within": timedelta(days=1)},
            on_delivered="default",
            on_dead="default",
        )

    def outcome(self, headers: Mapping[str, str], body: bytes) -> int:
        """Handle a callback and return the status to answer."""
        try:
            outcome = tocsin.verify(headers, body, self._secret).payload
        except tocsin.BadDelivery:
            return 401
        parcel = outcome["event"].removeprefix("shipment-")
        self.state[parcel] = "accepted" if outcome["type"] == "event.delivered" else f"refused: {outcome['error']}"
        return 204


if __name__ == "__main__":
    from local import stage

    with stage("default", "partner") as local:
        shop = Shipments(local.client, local.secrets["default"])
        answers = iter([503, 503, 200])
        local.handlers |= {"default": shop.outcome, "partner": lambda headers, body: next(answers)}
        shop.announce("A1", first=timedelta(seconds=1))
        local.wait(lambda: shop.state["A1"] != "announced")
        statuses = [str(each.status) for each in local.client.get("shipment-A1").attempts]
        print(f"Parcel A1 is {shop.state['A1']}. The partner answered {', '.join(statuses)}.")
