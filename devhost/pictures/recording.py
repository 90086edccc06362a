"""Records docs/img/first-delivery.svg from a real run: `tocsin dev`, a call with curl, and the delivery five seconds later.

python -m devhost.pictures.recording [--port 7071] [--target FILE]
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from devhost.pictures.screens import Printed, Terminal, draw

ROOT: Final = Path(__file__).resolve().parents[2]
TARGET: Final = ROOT / "docs" / "img" / "first-delivery.svg"
ALT: Final = (
    "A recording of two terminals: tocsin dev starts and prints its addresses; curl schedules an event five seconds ahead; "
    "the first terminal shows its delivery."
)
TO_READ: Final = 3.0
"""Seconds for which a reader sees the addresses before the call is made."""
PATIENCE: Final = 120.0
"""Seconds after which a line that does not come is an error."""
PROMPT: Final = "\x1b[1;32m$\x1b[0m \x1b[1m{}\x1b[0m"


class Recorder:
    """A running `tocsin dev` whose lines are kept with the seconds since the start."""

    def __init__(self, port: int) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
        self.began = time.monotonic()
        self.lines: list[Printed] = [Printed(PROMPT.format("tocsin dev"), 0.01)]
        self._new: queue.Queue[str | None] = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "shared.cli", "dev", "--port", str(port)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def now(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.began

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as printed:
            for line in printed:
                self._keep(line)
        self._new.put(None)

    def _keep(self, line: str) -> None:
        self.lines.append(Printed(re.sub(r"whsec_\S+", "whsec_…", line.rstrip("\n")), self.now()))
        self._new.put(line)

    def wait_for(self, text: str) -> None:
        """Return when a line that contains the text has been printed."""
        while (line := self._new.get(timeout=PATIENCE)) is None or text not in line:
            if line is None:
                raise RuntimeError(f"tocsin dev ended with {self.process.wait()} before it printed {text!r}")

    def end(self) -> None:
        """End the process in order."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)


def record(port: int) -> str:
    """Return the recording as an SVG."""
    call = (
        f"curl -X POST http://localhost:{port}/api/v1/events -H 'Authorization: Bearer local-demo-key' \\\n"
        '  -H \'Content-Type: application/json\' -d \'{"id": "hello", "delay": "PT5S", "payload": {"hello": "world"}}\''
    )
    server = Recorder(port)
    try:
        server.wait_for("Ctrl-C ends it.")
        time.sleep(TO_READ)
        asked = server.now()
        words = [*shlex.split(call.replace("\\\n", " ")), "--silent", "--show-error", "--fail"]
        answer = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
        answered = server.now()
        server.wait_for("hello")
        lines = list(server.lines)
    finally:
        server.end()
    first, *others = call.split("\n")
    typed = [Printed(PROMPT.format(first), asked), *(Printed(f"\x1b[1m{each}\x1b[0m", asked) for each in others)]
    below = Terminal("a second terminal", [*typed, Printed(answer, answered)])
    return draw(ALT, [Terminal("tocsin dev", lines), below], columns=108)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m devhost.pictures.recording", description=__doc__)
    parser.add_argument("--port", type=int, default=7071)
    parser.add_argument("--target", type=Path, default=TARGET)
    given = parser.parse_args()
    given.target.write_text(record(given.port))


if __name__ == "__main__":
    main()
