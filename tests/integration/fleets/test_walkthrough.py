"""docs/examples/leases/walk-through.sh prints the answers that it shows: a shell with curl, the devhost, Azurite."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devhost.azurite import ROOT, Azurite
from tests import waiting
from tests.integration.scheduler.conftest import Host
from tests.integration.scheduler.receiver import Receiver

SCRIPT = ROOT / "docs" / "examples" / "leases" / "walk-through.sh"
END = "--- end of block ---"
VARIES = {"assign", "release", "validity_ms"}
"""The planner's orders by then, and the script's short times."""
PATIENT = ('"validity": "PT3S", "takeover": "PT4.5S"', '"validity": "PT10S", "takeover": "PT12S"')
"""The times of the script -> times that a slow machine can keep between two commands."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    receiver = Receiver().start()
    with Azurite(memory=True) as azurite:
        host = Host(tmp_path, azurite.connection_string, receiver).start()
        yield host
        host.end()
    receiver.stop()


def blocks() -> list[tuple[str, list[Any]]]:
    """The script's commands up to each answer, with the answers that it shows."""
    found = re.findall(r"((?:(?!#> ).*\n)+)((?:#> .*\n)+)", SCRIPT.read_text())
    return [(commands, [json.loads(line.removeprefix("#> ")) for line in shown.splitlines()]) for commands, shown in found]


def steady(answer: Any) -> Any:
    return {name: value for name, value in answer.items() if name not in VARIES} if isinstance(answer, dict) else answer


def test_the_walk_through_goes_as_the_script_says(host: Host) -> None:
    steps = blocks()
    assert len(steps) == 7
    script = f"\necho '{END}'\n".join(block for block, _ in steps).replace("http://localhost:7071", host.url)
    assert PATIENT[0] in script
    script = script.replace(*PATIENT)
    done = waiting.run(["bash", "-euo", "pipefail", "-c", script])
    assert (done.returncode, done.stderr) == (0, ""), done
    printed = done.stdout.split(END)
    for (block, shown), answers in zip(steps, printed, strict=True):
        lines = [json.loads(line) for line in answers.splitlines() if line.strip()]
        assert [steady(line) for line in lines] == [steady(line) for line in shown], block
