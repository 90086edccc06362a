"""Answers of receivers are kept beside their event (`answer_rows`)."""

from __future__ import annotations

from dataclasses import dataclass

from ...storage.ports import Op, Props, Row
from ..answer_rows import add_answer
from ..points import Facet
from ..rules import RowOutcome


@dataclass(frozen=True, slots=True)
class Answers(Facet):
    """The transaction that settles an attempt stores the head of its answer."""

    def beside(self, row: Row, outcome: RowOutcome, change: Props) -> list[Op]:
        return [add_answer(row, change, outcome.answer)] if outcome.answer is not None else []

    def rows_beside(self, outcome: RowOutcome) -> int:
        return int(outcome.answer is not None)
