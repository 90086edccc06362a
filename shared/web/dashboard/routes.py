"""The doors of the dashboard: the page and its files. They hold no data and need no key; the page asks the API with the key it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field

from ..etag import etag_of, matches_none
from ..fields.params import Query
from ..fields.types import Name
from ..problem import not_found
from ..routes import Answer, Call, Content, Routes

ASSETS: Final = Path(__file__).parent / "assets"
PAGE: Final = "index.html"
INSIDE: Final = "/"
"""The page as it is for an address that ends in a slash: its files are beside it there."""
MEDIA: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""What is served, by the end of its name."""
HEADERS: Final = {
    # Asked for again each time, and answered 304: a deployment never mixes old files with new ones.
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
    """What the page shows first; the page itself reads it."""

    tenant: Name | None = Field(None, description="For the admin key.")
    fleet: Name | None = None


def register(routes: Routes) -> None:
    """Add the page and its files."""
    files: dict[str, tuple[bytes, str, str]] = {}

    def answer(call: Call[None], name: str) -> Answer:
        if not files:
            for path in ASSETS.iterdir():
                if path.suffix in MEDIA:
                    raw = path.read_bytes()
                    files[path.name] = raw, etag_of(raw), MEDIA[path.suffix]
            raw = files[PAGE][0].replace(b'="dashboard/', b'="')
            files[INSIDE] = raw, etag_of(raw), MEDIA[".html"]
        if name not in files:
            raise not_found("file of the dashboard")
        raw, etag, media = files[name]
        if matches_none(call.headers, etag):
            return Answer(304, None, dict(HEADERS), etag=etag)
        return Answer(200, raw, dict(HEADERS), media, etag)

    @routes.route(
        "GET",
        "dashboard",
        name="dashboard",
        summary="A page for operators",
        description="With If-None-Match: 304 while it has not changed.",
        query=PageQuery,
        answers={200: Content("text/html"), 304: None},
        standalone=True,
        tagged=True,
        tag="operations",
    )
    async def page(call: Call[None]) -> Answer:
        return answer(call, INSIDE if call.path.endswith("/") else PAGE)

    @routes.route(
        "GET",
        "dashboard/{asset}",
        name="dashboard_asset",
        summary="What the page is made of",
        description="With If-None-Match: 304 while it has not changed.",
        answers={200: Content("*/*"), 304: None, 404: "not-found"},
        standalone=True,
        tagged=True,
        tag="operations",
    )
    async def asset(call: Call[None]) -> Answer:
        name = call.params["asset"]
        return answer(call, "" if name in (PAGE, INSIDE) else name)
