"""The kinds of rows of the BigBen API (`engine.row_kinds`)."""

from __future__ import annotations

from typing import Final

from ...engine.row_kinds import StoredKind
from ...storage.names import IDS
from .service import BigBen

KINDS: Final = (
    StoredKind(
        "uses of an id",
        IDS,
        "{tenant}-{hex}{hex}",
        "!{text}",
        "Counts the uses of an id of the BigBen API: each use is an event with an id of its own, `{id}~{number}`.",
        BigBen,
        {"generation": "number of the present use, from 0"},
        "The hourly retention, together with the event of the last use.",
    ),
)
