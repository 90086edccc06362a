"""Options of the commands that create and change events: the target and the callbacks of an event."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

import typer

from ..session import parse_json_option, parse_pairs
from ..terminal.times import duration_option

Path = Annotated[str | None, typer.Option(help="Path to append to that of the http channel, such as /orders/17.")]
Query = Annotated[list[str] | None, typer.Option(help="Query parameter to add as NAME=VALUE, such as notify=yes. Repeatable.")]
Method = Annotated[Literal["POST", "PUT", "PATCH", "GET", "DELETE"] | None, typer.Option(help="Method of the request.")]
Header = Annotated[list[str] | None, typer.Option(help="Header to add as NAME=VALUE, such as X-Region=eu. Repeatable.")]
OnDelivered = Annotated[str | None, typer.Option(help="Channel of a callback with the outcome, after a delivery.")]
OnDead = Annotated[str | None, typer.Option(help="Channel of a callback if the event is dead or lapsed.")]


Retry = Annotated[
    str | None,
    typer.Option(
        metavar="JSON", help='Retry policy instead of the tenant\'s, as JSON such as \'{"attempts": 3}\' or \'{"schedule": ["PT1M"]}\'.'
    ),
]
Timeout = Annotated[str | None, duration_option("Longest time of an attempt instead of the channel's, such as 45s.")]
ContentType = Annotated[
    str | None, typer.Option(help="Send --payload, a text or @FILE, as it is with this content type, such as text/xml, instead of as JSON.")
]


class Removable(StrEnum):
    """A member of an event that `--remove` removes."""

    EXPIRES = "expires"
    RETRY = "retry"
    TIMEOUT = "timeout"
    CONTENT_TYPE = "content-type"
    TARGET = "target"
    ON_DELIVERED = "on-delivered"
    ON_DEAD = "on-dead"

    @property
    def field(self) -> str:
        """The member's name in the API."""
        return self.value.replace("-", "_")


Remove = Annotated[list[Removable] | None, typer.Option(help="Member to remove from the event. Repeatable.")]


def terms_of(retry: str | None, timeout: str | None, content_type: str | None) -> dict[str, Any]:
    """Return what these options give of an event or a schedule, as the API takes it; None for those that are not given."""
    policy = parse_json_option(retry, "--retry") if retry is not None else None
    return {"retry": policy, "timeout": timeout, "content_type": content_type}


def target_of(path: str | None, query: list[str] | None, method: str | None, header: list[str] | None) -> Mapping[str, Any] | None:
    """Return an event's target as the API takes it; None without any of these options."""
    parts: dict[str, Any] = {"path": path, "query": parse_pairs(query or [], "--query") or None, "method": method}
    parts["headers"] = parse_pairs(header or [], "--header") or None
    return {name: value for name, value in parts.items() if value is not None} or None
