"""A client that openapi-python-client makes of the document: generated, type-checked strictly, and used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from devhost.azurite import ROOT

DOCUMENT = ROOT / "docs" / "reference" / "openapi.json"

PROGRAM = """
import sys

from generated_tocsin import AuthenticatedClient
from generated_tocsin.api.events import events_create, events_get
from generated_tocsin.models import EventIn, EventOut, ProblemOut

def wrong() -> None:
    # mypy fails where an error that is ignored does not occur.
    EventIn(payload=1, dealy="PT1H")  # type: ignore[call-arg]
    EventIn(payload=1, delay=None)  # type: ignore[arg-type]


url, key, tenant = sys.argv[1:]
with AuthenticatedClient(base_url=url, token=key) as client:
    made = events_create.sync(client=client, tenant=tenant, body=EventIn(payload={"order": 17}, delay="PT1H", id="generated"))
    assert isinstance(made, EventOut), made
    seen = events_get.sync(made.id, client=client, tenant=tenant)
    assert isinstance(seen, EventOut) and seen.payload == {"order": 17}, seen
    refused = events_create.sync(client=client, tenant=tenant, body=EventIn(payload=2, delay="PT1H", id="generated"))
    assert isinstance(refused, ProblemOut) and refused.type_.endswith("/id-conflict"), refused
"""


def run(folder: Path, *command: str | Path) -> str:
    """Run Python with these arguments in a folder and return its output; it must succeed."""
    where = {**os.environ, "PYTHONPATH": str(folder)}
    whole = [sys.executable, *map(str, command)]
    done = subprocess.run(whole, cwd=folder, env=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def generate(folder: Path) -> list[str]:
    """Make the client `generated_tocsin` in the folder and return the operations of which parts were left out."""
    (folder / "config.yml").write_text("post_hooks: []\n")
    command = ["-m", "openapi_python_client", "generate", "--path", DOCUMENT, "--config", "config.yml"]
    text = run(folder, *command, "--meta", "none", "--output-path", "generated_tocsin")
    return [line.split(" parsing ")[1] for line in text.splitlines() if " parsing " in line]


def type_check(folder: Path, program: str) -> str:
    """Type-check a program strictly, with the modules that it imports, and return what mypy prints."""
    (folder / "program.py").write_text(program)
    return run(folder, "-m", "mypy", "--strict", "--cache-dir", folder / "cache", "program.py")
