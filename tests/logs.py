"""Log records of the service, without those of its libraries (a client that another test left open may log at any time)."""

from __future__ import annotations

from typing import Any


def actions(caplog: Any, *levels: str) -> list[str | None]:
    """The `action` of each record of the product in order, None for one without; of these levels, or of all."""
    records = [record for record in caplog.records if record.name.startswith("shared.")]
    return [getattr(record, "action", None) for record in records if not levels or record.levelname in levels]
