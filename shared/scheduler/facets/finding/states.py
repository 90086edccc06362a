"""The states whose events lists find by state rows (`rows`): dead, retrying, and held, which keep their state. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, get_args

from ....storage.ports import Row
from ...rules import WAITING

type ListedState = Literal["dead", "retrying"]
LISTED: Final[tuple[ListedState, ...]] = get_args(ListedState.__value__)
type RowKind = ListedState | Literal["held"]
"""The names of state rows."""
ROW_KINDS: Final[tuple[RowKind, ...]] = (*LISTED, "held")


def in_state(props: Mapping[str, Any], state: str) -> bool:
    """Return True if an event is listed under the state: a dead one that lives on at another place is not. Only its channel and the time
    say whether an unclaimed event is held."""
    if state == "held":
        return props["state"] in WAITING
    return bool(props["state"] == state and not props.get("target"))


def has_retried(rows: Iterable[Row]) -> bool:
    """Return True if an event of these rows waited for a retry at some time, so that the shard may have that state row."""
    return any("next" in row.props for row in rows)
