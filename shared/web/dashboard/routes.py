"""Routes of the dashboard: the page and its files.

They hold no data and need no key; the page calls the API with the key that its user enters.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from ..etag import etag_of, matches_none
from ..fields.params import Query
from ..fields.types import Name
from ..problem import not_found
from ..routes import Answer, Call, Content, RouteGroup

ASSETS: Final = Path(__file__).parent / "assets"
"""The folder of the page's files. Those of `vendor` are served beside the others, under their names alone."""
PAGE: Final = "index.html"
INSIDE: Final = "/"
"""The page for an address that ends in a slash, where relative addresses of its files are shorter."""
MEDIA: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""Media types by file suffix; other files are not served."""
HEADERS: Final = {
    # The browser asks again each time and gets 304, so a deployment never mixes old files with new ones.
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class PageQuery(Query):
    """The first view of the page; the page itself reads the parameters."""

    tenant: Name | None = Field(None, description="Tenant to show; needed with an admin key.")
    fleet: Name | None = None
    view: Literal["events", "schedules", "channels", "tenants", "audit"] | None = Field(None, description="Tab to open.")
    event: str | None = Field(None, max_length=200, description="Event to open.")


files = RouteGroup[None]("operations", standalone=True)


@cache
def _assets() -> dict[str, tuple[bytes, str, str]]:
    """Return the files by name: content, entity tag and media type."""
    found: dict[str, tuple[bytes, str, str]] = {}
    for path in ASSETS.rglob("*"):
        if path.suffix in MEDIA:
            raw = path.read_bytes()
            found[path.name] = raw, etag_of(raw), MEDIA[path.suffix]
    raw = found[PAGE][0].replace(b'="dashboard/', b'="')
    found[INSIDE] = raw, etag_of(raw), MEDIA[".html"]
    return found


def _file(call: Call[None, None, Any], name: str) -> Answer:
    if name not in _assets():
        raise not_found("file of the dashboard")
    raw, etag, media = _assets()[name]
    if matches_none(call.headers, etag):
        return Answer(304, None, dict(HEADERS), etag=etag)
    return Answer(200, raw, dict(HEADERS), media, etag)


@files.get("dashboard", answers={200: Content("text/html"), 304: None}, tagged=True)
async def dashboard(call: Call[None, None, PageQuery]) -> Answer:
    """Return the page for operators.

    With If-None-Match, the answer is 304 while the page has not changed.
    """
    return _file(call, INSIDE if call.path.endswith("/") else PAGE)


@files.get("dashboard/{asset}", answers={200: Content("*/*"), 304: None, 404: "not-found"}, tagged=True)
async def dashboard_asset(call: Call[None]) -> Answer:
    """Return a file of the page.

    With If-None-Match, the answer is 304 while the file has not changed.
    """
    name = call.params["asset"]
    return _file(call, "" if name in (PAGE, INSIDE) else name)
