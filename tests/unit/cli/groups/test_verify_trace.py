"""`tocsin verify-trace`: what it reads, and with which exit code it ends."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from shared.cli import main as frame
from tests.paths import ROOT

TRACES = ROOT / "tests" / "data" / "traces"
LEGAL, ILLEGAL = (TRACES / f"{name}.log" for name in ("legal", "illegal"))


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        frame.main(["verify-trace", *map(str, words)])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_compressed_files_and_standard_input_are_read_like_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "legal.gz").write_bytes(gzip.compress(LEGAL.read_bytes()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LEGAL.read_bytes())))
    plain, compressed, given = (run(capsys, "--json", path) for path in (LEGAL, tmp_path / "legal.gz", "-"))
    assert plain == compressed == given and plain[0] == 0 and json.loads(plain[1])["legal"]


def test_files_without_a_trace_are_named_beside_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (silent := tmp_path / "server.log").write_text("starting\n")
    code, out, _ = run(capsys, LEGAL, silent)
    assert code == 0 and f"No trace in {silent}: Set TOCSIN_TRACE" in out.replace("\n", " ")
    assert json.loads(run(capsys, LEGAL, silent, "--json")[1])["without_trace"] == [str(silent)]


def test_an_illegal_step_ends_with_1_and_is_named_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, LEGAL, ILLEGAL, "--json", "--limit", "1")
    found = json.loads(out)
    assert code == 1 and not found["legal"] and found["illegal_steps"] >= 1
    [step] = found["illegal"]
    assert step["kind"] == "gate" and step["rules"] and step["before"] and step["at"].endswith("Z")


@pytest.mark.parametrize("kind", ["missing", "without a trace", "damaged archive", "a damaged line", "of a later version"])
def test_what_cannot_be_read_ends_with_2_and_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str) -> None:
    path, text = tmp_path / "app.log", LEGAL.read_text()
    if kind == "without a trace":
        path.write_text("starting\n")
    elif kind == "damaged archive":
        path.write_bytes(gzip.compress(LEGAL.read_bytes())[:-40])
    elif kind == "a damaged line":
        path.write_text(text.replace('"k":"gate"', '"k":7', 1))
    elif kind == "of a later version":
        path.write_text(text.replace('"v":1', '"v":2', 1))
    code, out, err = run(capsys, path)
    assert code == 2 and (str(path) in err or "cannot be read" in out or "later version" in out)


def test_a_line_that_a_killed_process_could_not_finish_is_no_fault(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text(LEGAL.read_text()[:-100])
    code, out, _ = run(capsys, tmp_path / "app.log")
    assert code == 0 and "1 line missing" in out
