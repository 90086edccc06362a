"""A receiver for deliveries, and the page that shows them as they arrive.

It answers 204, and below `status/` the status that the path names: a channel with the URL `http://localhost:7071/receiver/status/503`
always fails. GET shows the last hundred deliveries: a browser gets the page, other clients get JSON. With `?after=` and the
`Receiver-Position` of an answer, the next answer has only later deliveries, or all of them once the receiver was started anew.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from ..core.clock import to_millis, to_text
from .http_requests import send_continue

KEPT: Final = 100
"""Deliveries that are shown."""
BODY_SHOWN: Final = 2_000
"""Characters of a body that are kept."""
LINE_SHOWN: Final = 200
"""Characters of a body in one line."""
MAX_BODY: Final = 4 * 1024 * 1024
"""Largest body in bytes."""
PAGE: Final = Path(__file__).parent / "page"
_MEDIA: Final = {"page.css": "text/css", "page.js": "text/javascript"}
_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_DIGITS: Final = 16
"""Number of digits from which a text is not read as a position: Python refuses to read thousands of digits."""
_STATUS: Final = re.compile(r"/status/([2-5][0-9]{2})(?:/.*)?")


class ReceivedDeliveries:
    """Answers deliveries, and remembers the last ones."""

    def __init__(self, on_delivery: Callable[[dict[str, Any]], object] = lambda delivery: None) -> None:
        """on_delivery: called with each delivery, as `deliveries` has it."""
        self.deliveries: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._on_delivery = on_delivery
        self._series, self._arrived = secrets.token_hex(4), 0
        self._text: bytes | None = None
        """The deliveries as JSON, made once for all open pages; None if a delivery has arrived since."""

    async def answer(self, request: web.BaseRequest, path: str, base: str) -> web.Response:
        """Answer a request. path: the rest of the path after the receiver's own, '' or with a leading slash. base: path of the
        page's files."""
        if reads_page(request):
            return self._shown(request, path.removeprefix("/"), base)
        if "Origin" in request.headers:
            # A web page in the user's browser could send this request. Deliveries have no `Origin`.
            refused = web.Response(status=403, text="The receiver takes deliveries, and none from web pages.\n")
            refused.force_close()
            return refused
        await send_continue(request)
        body = bytearray()
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > MAX_BODY:
                refused = web.Response(status=413)
                refused.force_close()
                return refused
        text = body_text(bytes(body), request.headers.get("content-type", "bytes"))
        asked = _STATUS.fullmatch(path)
        status = int(asked[1]) if asked else 204
        headers = request.headers
        delivery = {
            "at": to_text(to_millis(datetime.now(UTC))),
            "path": path or "/",
            "id": headers.get("ce-id"),
            "late_ms": headers.get("ce-tocsinlatems"),
            "attempt": headers.get("ce-tocsinattempt"),
            "headers": dict(headers),
            "body": text[:BODY_SHOWN],
            "status": status,
        }
        self.deliveries.append(delivery)
        self._text, self._arrived = None, self._arrived + 1
        self._on_delivery(delivery)
        return web.Response(status=status)

    def _shown(self, request: web.BaseRequest, name: str, base: str) -> web.Response:
        if name in _MEDIA:
            return web.Response(body=(PAGE / name).read_bytes(), content_type=_MEDIA[name], charset="utf-8", headers=_HEADERS)
        if "text/html" in request.headers.get("Accept", ""):
            page = (PAGE / "index.html").read_text("utf-8").replace("{base}", base)
            return web.Response(text=page, content_type="text/html", headers=_HEADERS)
        headers = {**_HEADERS, "receiver-position": f"{self._series}-{self._arrived}"}
        return web.Response(
            body=self._json(request.query.get("after", "")), content_type="application/json", charset="utf-8", headers=headers
        )

    def _json(self, after: str) -> bytes:
        """Return the deliveries after a position, or all of them if this receiver has not given out the position."""
        series, _, number = after.partition("-")
        if series == self._series and number.isdecimal() and len(number) < _DIGITS and int(number) <= self._arrived:
            known = max(0, len(self.deliveries) - (self._arrived - int(number)))
            return json.dumps(list(islice(self.deliveries, known, None))).encode() + b"\n"
        if self._text is None:
            self._text = json.dumps(list(self.deliveries), indent=2).encode() + b"\n"
        return self._text


def reads_page(request: web.BaseRequest) -> bool:
    """Return True for a request that reads the page or its files.

    A GET with the header `ce-id` is the delivery of an event whose target names that method. No page of another site can send it.
    """
    return request.method in ("GET", "HEAD") and "ce-id" not in request.headers


def body_text(body: bytes, content_type: str) -> str:
    """Return a body as text; the base64 of one that is not UTF-8, with its type."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return f"base64 of {content_type[:LINE_SHOWN]}: {base64.b64encode(body[:BODY_SHOWN]).decode()}"


def one_line(body: str) -> str:
    """Return the start of a body as one line."""
    return " ".join(body[:LINE_SHOWN].split()) + " ..." * (len(body) > LINE_SHOWN)
