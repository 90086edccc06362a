"""Log records of the service, without those of its libraries (a client that another test left open may log at any time), and the
outputs of processes that tests start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

OUTPUTS: list[Path] = []
"""Files that take the output of processes that tests in this process have started."""


def actions(caplog: Any, *levels: str) -> list[str | None]:
    """The `action` of each record of the product in order, None for one without; of these levels, or of all."""
    records = [record for record in caplog.records if record.name.startswith("shared.")]
    return [getattr(record, "action", None) for record in records if not levels or record.levelname in levels]


def watch(output: Path) -> Path:
    """Have the output looked through when a test fails: a traceback in it is a fault of the code (tests/verdicts.py)."""
    if output not in OUTPUTS:
        OUTPUTS.append(output)
    return output
