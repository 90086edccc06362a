"""Compare bookings with payments each night. Run it beside `tocsin dev`: python reconciliation.py

A failed night is repeated by the retry policy, a missed one is caught up, and a monitor tells when none has succeeded for 26 hours.
"""

from collections.abc import Mapping
from datetime import date, timedelta
from zoneinfo import ZoneInfo

import tocsin

BERLIN = ZoneInfo("Europe/Berlin")


class Reconciliation:
    def __init__(self, client: tocsin.Client, secret: str, bookings: Mapping[date, set[int]], payments: Mapping[date, set[int]]) -> None:
        self._client, self._secret, self._bookings, self._payments = client, secret, bookings, payments
        self.unpaid: dict[date, set[int]] = {}
        self.alarms: list[str] = []

    def start(self) -> None:
        """Create the schedule, or leave it as it is."""
        self._client.schedules.put(
            "reconciliation", {}, cron="30 2 * * *", timezone="Europe/Berlin", catch_up={"policy": "all", "within": timedelta(days=7)}
        )
        self._client.heartbeat("reconciliation", within=timedelta(hours=26))

    def deliver(self, headers: Mapping[str, str], body: bytes) -> int:
        """Handle a delivery and return the status to answer."""
        try:
            delivery = tocsin.verify(headers, body, self._secret)
        except tocsin.BadDelivery:
            return 401
        if delivery.payload.get("heartbeat"):
            self.alarms.append(f"no reconciliation since {delivery.payload['last']}")
            return 204
        # The day follows from the due time, so a repeated or late delivery reconciles the same day.
        day = delivery.due.astimezone(BERLIN).date() - timedelta(days=1)
        if day not in self._payments:
            return 503  # the bank's file is late: the retry policy asks again
        self.unpaid[day] = self._bookings[day] - self._payments[day]
        self._client.heartbeat("reconciliation", within=timedelta(hours=26))
        return 204


if __name__ == "__main__":
    from datetime import datetime

    from local import stage

    with stage() as local:
        yesterday = datetime.now(BERLIN).date() - timedelta(days=1)
        nightly = Reconciliation(local.client, local.secrets["default"], {yesterday: {17, 18}}, {yesterday: {17}})
        local.handlers["default"] = nightly.deliver
        nightly.start()
        print("The next nights:", *(each.at.astimezone(BERLIN) for each in local.client.schedules.preview("reconciliation", 3)), sep="\n  ")
        tonight = local.client.schedules.trigger("reconciliation")
        local.wait(lambda: local.client.get(tonight.id).state == "delivered")
        print(f"Bookings of yesterday without a payment: {nightly.unpaid[yesterday]}.")
