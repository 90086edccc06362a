"""The kinds of rows of parts that have no room of their own for them (`engine.row_kinds`)."""

from __future__ import annotations

from typing import Final

from ..app.row_kinds import tick_kind
from .parts import KAFKA_TIMER

KINDS: Final = (tick_kind("tick of Kafka sources", KAFKA_TIMER, "The end of the last run of the job that reads Kafka topics."),)
