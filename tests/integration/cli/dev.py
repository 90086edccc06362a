"""A `tocsin dev` of its own for tests: the real process on free ports."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx

from tests.paths import ROOT
from tests.waiting import DEADLINE, ended, wait_until

COMMAND = (sys.executable, "-m", "shared.cli", "dev")


class LocalProcess:
    """A running `tocsin dev`, with the files that hold its output."""

    def __init__(self, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """folder: takes the output. arguments: without `--port`, a free one is chosen."""
        given = arguments if "--port" in arguments else (*arguments, "--port", "0")
        folder.mkdir(exist_ok=True)
        self.out, self.err = folder / "out", folder / "err"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen([*COMMAND, *given], stdout=out, stderr=err, env=inherited | dict(environment or {}), cwd=ROOT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def seen(self) -> str:
        """Everything that was printed."""
        return self.out.read_text(errors="replace") + self.err.read_text(errors="replace")

    def printed(self, text: str) -> str:
        """The output, once it contains the text."""

        def found() -> str | None:
            code, seen = self.process.poll(), self.out.read_text(errors="replace")
            if text not in seen and code is not None:
                raise AssertionError(f"tocsin dev ended with {code}: {self.seen()}")
            return seen if text in seen else None

        return str(wait_until(found, f"tocsin dev prints {text!r}", seen=self.seen))

    @property
    def url(self) -> str:
        """The address that it prints, once it is ready."""
        lines = self.printed("Ctrl-C ends it.").splitlines()
        return next(line.split()[1] for line in lines if line.startswith("  API")).removesuffix("/api/v1")

    def curl(self) -> list[str]:
        """The words of the call that it prints."""
        self.printed("Ctrl-C ends it.")
        text = self.out.read_text()
        return shlex.split(text[text.index("  curl ") : text.index("Ctrl-C")].replace("\\\n", " "))

    def received(self, event_id: str) -> dict[str, Any]:
        """The delivery of this event, once the receiver shows it."""

        def found() -> dict[str, Any] | None:
            shown = httpx.get(f"{self.url}/receiver", trust_env=False, timeout=DEADLINE).json()
            return next((each for each in shown if each["id"] == event_id), None)

        return dict(wait_until(found, f"the delivery of {event_id}", seen=self.seen))

    def end(self, number: int = signal.SIGINT) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        return ended(self.process, "tocsin dev", seen=self.seen)


def call(method: str, url: str, key: str = "local-demo-key", body: object = None) -> httpx.Response:
    """The answer to a call with this key."""
    headers = {"authorization": f"Bearer {key}"}
    return httpx.request(method, url, json=body, headers=headers, timeout=DEADLINE, trust_env=False)


def post(url: str, body: object, key: str = "local-demo-key") -> dict[str, Any]:
    """Store an event, and return the answer's document."""
    answer = call("POST", f"{url}/api/v1/events", key, body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def put_channel(url: str, name: str, to: str) -> None:
    """Create a channel of tenant `demo` to this address."""
    answer = call("PUT", f"{url}/api/v1/tenants/demo/channels/{name}", "local-admin-key", {"type": "http", "url": to})
    assert answer.status_code == 201, answer.text


def state(url: str, event_id: str) -> str:
    """The state of an event."""
    return str(call("GET", f"{url}/api/v1/events/{event_id}").json()["state"])
