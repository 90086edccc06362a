"""The requests of a run: the bytes that the service's sender would send, and those that nobody should accept. No I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from yarl import URL

from ...client.reading import read_json
from ...core import signing
from ...core.clock import Millis
from ...delivery.channels.event_target import EventTarget
from ...delivery.channels.http import Post, post_of, resource_of
from ...delivery.channels.model import HttpChannel
from ...delivery.channels.ports import OutgoingDelivery, Target
from ...delivery.egress_guard import Egress

NAME: Final = "check"
"""Name of the tenant and of the channel in the requests."""
TOKEN_PATH: Final = "/.well-known/tocsin-check"
LONGEST_ID: Final = 200
"""Characters of the longest id of an event."""
LARGE_HEADER: Final = 3_900
"""Bytes of a header's value: an event may set 4,096 bytes of headers and path."""
TRACE: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
STRANGER: Final = "whsec_b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXI="
"""A secret that no receiver has."""
UNUSUAL: Final = "é e\u0301 ß 漢字 \U0001f514 \u202eabc\u202c \u2028 \ufeff \x00 \\u005c \"'<>&%00 \t\r\n"
"""Characters at which receivers fail: more than three bytes, two forms of one letter, NUL, a mark of order, line breaks."""
_ROUNDS: Final = 100_000
"""Rounds of the token's derivation: it is public, and must not help to guess a weak secret."""


def token_of(secret: str, url: str) -> str:
    """Return the token that proves the ownership of a URL's host. It is the same in each run, and does not reveal the secret."""
    place = URL(url, encoded=True)
    salt = f"tocsin-check {place.raw_host}:{place.port}".encode()
    return f"tocsin-check-{hashlib.pbkdf2_hmac('sha256', signing.secret_bytes(secret), salt, _ROUNDS, 16).hex()}"


@dataclass(frozen=True, slots=True)
class Wire:
    """The bytes of one request."""

    head: bytes
    body: bytes

    def pieces(self, count: int) -> Sequence[bytes]:
        """Return the head and the body in pieces, `count` in all; fewer for a short body."""
        size = max(1, -(-len(self.body) // max(1, count - 1)))
        return [self.head, *(self.body[at : at + size] for at in range(0, len(self.body), size))]


class Requests:
    """Makes the requests for one endpoint. Raises ValueError for a malformed option."""

    def __init__(
        self, url: str, secrets: Sequence[str], egress: Egress, *, method: str, headers: Mapping[str, str], timeout: float, seed: str
    ) -> None:
        self.spec = HttpChannel(type="http", url=url, headers=dict(headers), timeout=f"PT{timeout:.3f}S")  # type: ignore[arg-type]
        self.method, self.secrets, self._egress, self._seed = method, tuple(secrets), egress, seed

    def id_of(self, name: str, *, longest: bool = False) -> str:
        """Return the id of the event of a step."""
        id = f"check:{self._seed}:{name.replace(' ', '-')}"
        return f"{id}:{'~id@' * LONGEST_ID}"[:LONGEST_ID] if longest else id

    def post(
        self,
        name: str,
        body: bytes,
        now: Millis,
        *,
        attempt: int = 1,
        longest: bool = False,
        padded: bool = False,
        secrets: Sequence[str] | None = None,
    ) -> Post:
        """Return the request of a delivery, as the service's code makes it. secrets: others than the endpoint's."""
        target = Target(NAME, NAME, self.spec, self.secrets[:1] if secrets is None else tuple(secrets))
        own: dict[str, object] = {"method": self.method} if self.method != "POST" or padded else {}
        if padded:
            own["headers"] = {"x-tocsin-check": "h" * LARGE_HEADER}
        event_target = EventTarget.model_validate(own).stored() if own else None
        trace = TRACE if padded else None
        delivery = OutgoingDelivery(
            self.id_of(name, longest=longest), now, now, attempt, body, traceparent=trace, event_target=event_target
        )
        return post_of(target, delivery, self._egress)

    def get(self, url: str) -> Wire:
        """Return a GET with the headers that the user gave."""
        place = URL(url, encoded=True)
        names = {"host": place.host_port_subcomponent or "", "accept": "*/*", "user-agent": "tocsin-check-receiver"}
        own = {name: value for name, value in self.spec.headers.items() if name.lower() not in names}
        return Wire(_head("GET", url, {**names, **own}), b"")


def wire_of(post: Post, *, change: Mapping[str, str | None] = {}, body: bytes | None = None) -> Wire:
    """Return the bytes of a request as the service's sender writes them. change: other values of headers; None leaves one out. body:
    another body than the one that was signed."""
    place = URL(post.url, encoded=True)
    headers = {"host": place.host_port_subcomponent or "", **post.headers}
    for name, value in change.items():
        if value is None:
            headers.pop(name, None)
        else:
            headers[name] = value
    sent = post.body if body is None else body
    return Wire(_head(post.method, post.url, {**headers, "content-length": str(len(sent))}), sent)


def _head(method: str, url: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {resource_of(url)} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode()


def compact(payload: bytes) -> bytes:
    """Return the same JSON as clients write it. Raises ValueError for text that is not JSON."""
    return json.dumps(read_json(payload), ensure_ascii=False, separators=(",", ":")).encode()


def spaced(payload: bytes) -> bytes:
    """Return the same JSON in other bytes: with other spaces, and with its letters beyond ASCII escaped."""
    return json.dumps(json.loads(payload), indent=3, ensure_ascii=True, separators=(" ,", " : ")).encode() + b"\n"


def with_text(payload: bytes) -> bytes:
    """Return the payload with a member that holds unusual characters; a payload that is no object becomes one."""
    found = json.loads(payload)
    document = {**found, "tocsin_check": UNUSUAL} if isinstance(found, dict) else {"tocsin_check": UNUSUAL}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def changed(payload: bytes) -> bytes:
    """Return another payload of the same kind."""
    found = json.loads(payload)
    return json.dumps({**found, "tocsin_changed": True}).encode() if isinstance(found, dict) else spaced(payload)


def padded_to(payload: bytes, size: int) -> bytes:
    """Return the same JSON with spaces at its end, `size` bytes long."""
    return payload.ljust(size)


def read_count(body: bytes) -> int | None:
    """Return the number in the answer of the count's URL: a number, {"count": number}, or the length of a list. None for any other."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict):
        found = found.get("count")
    if isinstance(found, list):
        return len(found)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 10**15 else None
