"""An entry of the index of routes: what must be known of a route before its handler's module is imported."""

from __future__ import annotations

from typing import NamedTuple


class Indexed(NamedTuple):
    """One route. parts: names of the parts of the table that hold what the route needs; see `app.routes`."""

    name: str
    method: str
    template: str
    max_body: int
    """Largest body in bytes."""
    parts: tuple[str, ...] = ()
