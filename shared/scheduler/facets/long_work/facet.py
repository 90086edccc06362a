"""Long work: receivers complete, fail and extend it without the shard's owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....storage.ports import Props
from ...points import Facet
from ...rules import RowOutcome, due_at
from ...work_rows import WORK, work_of


@dataclass(frozen=True, slots=True)
class LongWork(Facet):
    """A receiver's silence applies only while its work goes on. Work that fails may call an owner before the shard's wake-up."""

    @property
    def own(self) -> frozenset[str]:
        return frozenset({WORK})

    def still(self, outcome: RowOutcome, props: Props) -> bool | None:
        if outcome.deadline is None:
            return None
        # Silence ends with a heartbeat, which gives the work another deadline.
        return work_of(props) is not None and due_at(props) == outcome.deadline

    def wakes_early(self, props: Mapping[str, Any]) -> bool:
        return WORK in props
