"""The rows that count the uses of an id. A caller may use an id again after its event has ended: each use is an event, `{id}~{number}`."""

from __future__ import annotations

from ...scheduler.keys import RowBesideId, id_partition
from ...storage.ports import Props


def use_row(tenant: str, base: str) -> tuple[str, str]:
    """Return the keys of the row that counts the uses of id `base`, in that id's partition. No event id begins with its mark."""
    return id_partition(tenant, base), f"!{base}"


def base_of_use(event_id: str) -> str:
    """Return the id that `event_id` is a numbered use of, or '' if it is none."""
    base, mark, use = event_id.rpartition("~")
    return base if mark and use.isascii() and use.isdigit() else ""


def row_of_uses(tenant: str, event_id: str) -> tuple[RowBesideId, ...]:
    """Return the row that counts the uses of the id that `event_id` is a use of. It ends with the event of the last use."""
    base = base_of_use(event_id)
    if not base:
        return ()

    def ends(props: Props) -> bool:
        return f"{base}~{props['generation']}" == event_id

    return (RowBesideId(*use_row(tenant, base), ends),)
