"""Options of the commands about events: filters, targets, callbacks and terms."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, get_args

import typer

from ..commands import OptionGroup
from ..session import parse_json_option, parse_pairs
from ..terminal.times import duration_option, time_option

_STATE_HELP: Final = "Only events in this state. Those in the ingest queue (queued) are in no list yet."
EventState = Literal["scheduled", "firing", "working", "retrying", "delivered", "dead", "cancelled", "lapsed"]
_FILTERS: Final[dict[str, Any]] = {
    "since": Annotated[str | None, time_option("Only events due at this time or later, such as 2026-11-21T10:21:55Z.", "--from")],
    "until": Annotated[str | None, time_option("Only events due before this time, such as 2026-11-21T11:00:00Z.", "--to")],
    "state": Annotated[EventState | None, typer.Option(metavar="STATE", help=f"{_STATE_HELP} One of: {', '.join(get_args(EventState))}.")],
    "channel": Annotated[str | None, typer.Option("--channel", help="Only events of this channel, such as default.")],
    "id_prefix": Annotated[str | None, typer.Option(help="Only events whose id begins so, such as order-.")],
    "error": Annotated[str | None, typer.Option("--error", help="Only events whose last error contains this text, such as 'status 500'.")],
    "label": Annotated[list[str] | None, typer.Option(help="Only events with this label as NAME=VALUE, such as order=17. Repeatable.")],
}
type Filters = Mapping[str, Any]
"""The values of the options; None for an option that is not given."""


def _group(*names: str) -> OptionGroup:
    return OptionGroup({name: (_FILTERS[name], None) for name in names})


Listed = Annotated[dict[str, Any], _group("since", "until", "state", "channel", "label", "id_prefix", "error")]
Changed = Annotated[dict[str, Any], _group("label", "channel", "state", "since", "until", "id_prefix", "error")]
Dead = Annotated[dict[str, Any], _group("since", "until", "channel", "label", "id_prefix", "error")]
Followed = Annotated[dict[str, Any], _group("channel", "state")]


def filter_of(given: Filters) -> dict[str, Any]:
    """Return the filter that the options give, as the API takes it; empty without options. Raises `CommandFailed`."""
    names = {"since": "from", "until": "to"}
    found = {names.get(name, name): given.get(name) for name in _FILTERS if name != "label"}
    found["labels"] = parse_pairs(given["label"] or [], "--label") or None
    return {name: value for name, value in found.items() if value is not None}


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
