"""A price that changes at midnight, local time, in twelve time zones. Run it beside `tocsin dev`: python prices.py"""

from collections.abc import Mapping
from datetime import date, datetime, time
from zoneinfo import ZoneInfo

import tocsin

ZONES = (
    "Pacific/Auckland", "Australia/Sydney", "Asia/Tokyo", "Asia/Kolkata", "Asia/Dubai", "Europe/Helsinki",
    "Europe/Berlin", "Europe/London", "America/Sao_Paulo", "America/New_York", "America/Denver", "America/Los_Angeles",
)  # fmt: skip


class Prices:
    def __init__(self, client: tocsin.Client, secret: str) -> None:
        self._client, self._secret = client, secret
        self.current: dict[tuple[str, str], int] = {}
        """Article and time zone -> cents."""

    def change(self, article: str, cents: int, day: date) -> dict[str, datetime]:
        """Plan a price from midnight of `day` on, in each zone. The same call again, after a crash, plans nothing twice."""
        midnights = {zone: datetime.combine(day, time(), ZoneInfo(zone)) for zone in ZONES}
        done = self._client.batch(
            {
                "id": f"price:{article}:{day}:{zone.replace('/', '-')}",
                "due": midnight,
                "payload": {"article": article, "zone": zone, "cents": cents},
                "labels": {"article": article},
            }
            for zone, midnight in midnights.items()
        )
        if done.rejected:
            raise RuntimeError(f"{article} changes in {done.accepted} of {len(ZONES)} zones only: {done.rejected}")
        return midnights

    def withdraw(self, article: str, day: date) -> None:
        """Cancel the change in the zones where it is not midnight yet."""
        for event in self._client.list(labels={"article": article}, state="scheduled", id_prefix=f"price:{article}:{day}:"):
            self._client.cancel(event.id)

    def deliver(self, headers: Mapping[str, str], body: bytes) -> int:
        """Handle a delivery and return the status to answer. To set a price twice does no harm."""
        try:
            change = tocsin.verify(headers, body, self._secret).payload
        except tocsin.BadDelivery:
            return 401
        self.current[change["article"], change["zone"]] = change["cents"]
        return 204


if __name__ == "__main__":
    from datetime import UTC, timedelta

    from local import stage

    with stage() as local:
        shop = Prices(local.client, local.secrets["default"])
        local.handlers["default"] = shop.deliver
        day = datetime.now(UTC).date() + timedelta(days=2)
        for zone, midnight in shop.change("tea", 349, day).items():
            print(f"{midnight.astimezone(UTC):%Y-%m-%d %H:%M} UTC  {zone}")
        # Nobody waits two days for an example: one of them is fired now, and the others are cancelled.
        local.client.fire(f"price:tea:{day}:Asia-Tokyo")
        local.wait(lambda: bool(shop.current))
        shop.withdraw("tea", day)
        print(f"Tea costs {shop.current}.")
