"""Output that only a terminal gets: the bar of an import."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT

DEADLINE = 120.0
IMPORT = """
import sys, httpx
from shared.cli.importing import command, sending
from shared.cli.main import main

def taken(request):
    count = len(request.content.split(b"\\n"))
    return httpx.Response(200, json={"results": [{"index": each, "status": 201, "id": "x"} for each in range(count)]})

command.Importer = lambda url, key, **more: sending.Importer(url, key, transport=httpx.MockTransport(taken), **more)
main(["events", "import", sys.argv[1], "--batch", "10", "--url", "https://app.test", "--key", "a-very-secret-key"])
"""


def written(folder: Path) -> Path:
    file = folder / "events.ndjson"
    file.write_text('{"delay": "PT1H", "payload": 1}\n' * 200 + "[]\n")
    return file


def test_import_shows_a_bar_on_a_terminal(tmp_path: Path) -> None:
    mine, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "20"}
    process = subprocess.Popen(
        [sys.executable, "-c", IMPORT, str(written(tmp_path))], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=its
    )
    os.close(its)
    shown = b""
    try:
        # Until the other side of the terminal is closed, which Linux reports as an error.
        while part := os.read(mine, 65_536):
            shown += part
    except OSError:
        pass
    finally:
        os.close(mine)
    out, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1 and re.findall(r"\d+", out.decode())[:3] == ["200", "0", "1"]
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "━" in plain and "  0% " in plain and "100% 200 events, 1 rejected" in plain


def test_import_shows_no_bar_in_a_pipe(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IMPORT, str(written(tmp_path))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 1 and done.stderr == ""
