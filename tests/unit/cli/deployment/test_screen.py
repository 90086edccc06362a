"""The table of `tocsin check-deployment` as people see it: `screen.txt`. GOLDEN=write overwrites it; read the difference."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from shared.cli.connections import Connection
from shared.cli.deployment.command import _show
from shared.cli.deployment.plan import Plan
from shared.cli.deployment.rules import judge
from shared.cli.session import CommandSession
from shared.cli.terminal import output

from .making import clocks, look, seen

PICTURE = Path(__file__).with_name("screen.txt")
WIDTHS = (120, 60)


def test_table_is_as_it_was_drawn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {"highlight": False, "markup": False, "emoji": False, "color_system": None, "force_terminal": False}
    drawn = []
    found = seen(late={"far": 900, "soon": None}, looks=[look(0), look(310, clocks=clocks(400.0, "message"))])
    for width in WIDTHS:
        monkeypatch.setattr(output, "console", lambda error=False, width=width: Console(file=sys.stdout, width=width, **plain))
        for shown in (found, seen()):
            session = CommandSession(Connection("https://app.example", "a-very-secret-key"))
            _show(session, judge(shown, Plan()), 312.4)
            session.flush()
            drawn.append(capsys.readouterr().out)
            assert max(map(len, drawn[-1].splitlines())) <= width
    text = "\n".join(drawn)
    if os.environ.get("GOLDEN") == "write":
        PICTURE.write_text(text, "utf-8")
    assert text == PICTURE.read_text("utf-8"), "GOLDEN=write overwrites the file"


def test_programs_get_one_document_with_the_number_of_faults(capsys: pytest.CaptureFixture[str]) -> None:
    session = CommandSession(Connection("https://app.example", "a-very-secret-key"), json=True)
    _show(session, judge(seen(late={"far": None}), Plan()), 312.4)
    document = json.loads(capsys.readouterr().out)
    assert (document["url"], document["seconds"], document["faults"]) == ("https://app.example", 312, 1)
    [fault] = [each for each in document["checks"] if each["result"] == "bad"]
    assert fault["check"] == "due in 5 min" and fault["arrived"] == 0 and fault["means"] and fault["do"]
