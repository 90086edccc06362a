"""Filters of events: the same options of all commands that list, follow or change the events that match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args

import typer

from ..commands import OptionGroup
from ..session import parse_pairs
from ..terminal.times import time_option

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
