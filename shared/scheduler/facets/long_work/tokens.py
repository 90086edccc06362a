"""The token and the URL of an attempt that a receiver may complete later.

    URL      {base}/api/v1/work/{tenant}/{place}/{attempt}        place: the shard's name and the event's number, as in ids of the service
    token    tct_{epoch}_{43 letters}: an HMAC-SHA256 over the place, the epoch and the attempt

So a call with a token that this service has not made is refused before anything is read. A row holds only the hash of its attempt's token.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from functools import partial
from hashlib import sha256

from ....core.clock import Millis
from ....core.long_work import TOKEN
from ....delivery.channels.ports import CompletionOffer
from ...keys import Address, server_id, shard_tenant
from .rules import HeldToken

PATH = "/api/v1/work"


def hash_of(token: str) -> str:
    """Return the hash of a token, as rows hold it."""
    return sha256(token.encode()).hexdigest()


class WorkTokens:
    """Makes and verifies tokens. `master`: the service's master key. `base`: the address of the app; '' makes URLs without a host."""

    def __init__(self, master: str, base: str = "") -> None:
        self._key = hmac.digest(master.encode(), b"tocsin long work", "sha256")
        self._base = base.rstrip("/")

    def offer(self, address: Address, epoch: int, within: Millis) -> CompletionOffer:
        """Return the offer to the receiver of the event at `address`, which an owner of `epoch` has claimed."""
        url = f"{self._base}{PATH}/{shard_tenant(address.shard)}/{server_id(address.shard, address.row)}"
        return CompletionOffer(lambda attempt: f"{url}/{attempt}", partial(self.token, address, epoch), within)

    def token(self, address: Address, epoch: int, attempt: int) -> str:
        """Return the token of an attempt."""
        text = f"{address.text}\0{epoch}\0{attempt}"
        digest = hmac.digest(self._key, text.encode(), "sha256")
        return f"tct_{epoch}_{urlsafe_b64encode(digest).decode().rstrip('=')}"

    def read(self, address: Address, attempt: int, text: str) -> HeldToken | None:
        """Return the facts of a token; None if it is not the token of this attempt."""
        found = TOKEN.fullmatch(text)
        if found is None:
            return None
        epoch = int(found[1])
        if not hmac.compare_digest(self.token(address, epoch, attempt), text):
            return None
        return HeldToken(attempt, epoch, hash_of(text))
