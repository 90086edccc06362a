"""The table of `tocsin what-if run` as people see it, of outcomes that are given: `screen.txt`. GOLDEN=write overwrites it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shared.cli import main as frame
from shared.cli.terminal import output
from shared.whatif import play as twin
from shared.whatif.changes import Change
from shared.whatif.outcome import FleetOutcome, RunOutcome
from shared.whatif.snapshot import ExportedChannel, PlannedEvent, Snapshot

PICTURE = Path(__file__).with_name("screen.txt")
WIDTHS = (120, 60)
FIRST = 1_900_000_800_000
SNAPSHOT = Snapshot(
    FIRST,
    FIRST + 3_600_000,
    (PlannedEvent(FIRST, "orders", times=12_000),),
    (ExportedChannel("orders"),),
    notes=("1,000 of 12,000 events were read.",),
)
FLEET = FleetOutcome(48, moves=0, turns=40)
UNCHANGED = RunOutcome(
    12_000, 12_000, 0, 0, 3, 0, [0.004] * 99 + [0.031], {"orders": 0.031, "bills": 0.02}, 0, 0.0, 3600.0, [], [], {"store": FLEET}
)
CHANGED = replace(
    UNCHANGED,
    delivered=11_988,
    dead=12,
    failed_attempts=1_804,
    late=[0.004] * 50 + [12.5] * 49 + [301.25],
    late_by_channel={"orders": 301.25, "bills": 0.02},
    largest_backlog=1_750,
    drained_after=None,
    fleets={"store": FleetOutcome(48, 18, 4.2, 0.8, 0, [4.3, 5.1, 6.0], 1, 39, 2, 1)},
)


def test_table_is_as_it_was_drawn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "export.json"
    file.write_text(SNAPSHOT.text())

    def played(snapshot: Snapshot, changes: Sequence[Change] = (), **_: Any) -> RunOutcome:
        return CHANGED if changes else UNCHANGED

    monkeypatch.setattr(twin, "play", played)
    screens = []
    for width in WIDTHS:
        plain: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "color_system": None, "force_terminal": False}
        monkeypatch.setattr(output, "console", lambda error=False, width=width, plain=plain: Console(file=sys.stdout, width=width, **plain))
        with pytest.raises(SystemExit) as ended:
            frame.main(["what-if", "run", str(file), "--slow", "orders=2s@+10m"])
        assert not ended.value.code
        screens.append(capsys.readouterr().out)
        assert max(map(len, screens[-1].splitlines())) <= width
    found = "\n".join(screens)
    if os.environ.get("GOLDEN") == "write":
        PICTURE.write_text(found, "utf-8")
    assert found == PICTURE.read_text("utf-8"), "GOLDEN=write overwrites the file"
