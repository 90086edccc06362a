"""Helpers for the tests of the documented receivers: one in a process of its own, and requests that are no real deliveries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from shared.core import signing
from tests.starting import fail
from tests.waiting import wait_until

from .conftest import EXAMPLES

STRANGER = "whsec_b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXI="


@contextmanager
def fastapi(folder: Path, installed: Path, secret: str, port: int) -> Iterator[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed), "TOCSIN_SECRET": secret, "REMINDERS": str(folder / "reminders.db")}
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--app-dir", str(EXAMPLES / "receiver_fastapi")]
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)

    def answers() -> bool:
        if process.poll() is not None:
            fail("the receiver ended", (folder / "output.txt").read_text())
        try:
            return httpx.get(f"http://127.0.0.1:{port}/reminders", timeout=180).is_success
        except httpx.TransportError:
            return False

    try:
        wait_until(answers, "the receiver")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def read(url: str) -> object:
    """The JSON at an address."""
    return httpx.get(url, timeout=180).json()


def make_channel(address: str, key: str, spec: object) -> str:
    """Create a channel at an address of the API; its secret."""
    headers = {"authorization": f"Bearer {key}"}
    assert httpx.put(address, json=spec, headers=headers, timeout=180).is_success
    return str(httpx.post(f"{address}/secret/rotate", headers=headers, timeout=180).json()["secret"])


def unsigned(hook: str) -> int:
    """The status that a request without a signature is answered with."""
    return httpx.post(hook, json={"text": "unsigned"}, timeout=180).status_code


def send(hook: str, id: str, payload: object, secret: str) -> int:
    """A delivery as it comes a second time, or from a stranger; the status it was answered with."""
    body = json.dumps(payload).encode()
    now = int(time.time())
    headers = {
        "content-type": "application/json",
        "ce-id": id,
        "ce-source": "/tenants/x/channels/reminders",
        "ce-tocsindue": "2026-01-01T00:00:00.000Z",
        "ce-tocsinfired": "2026-01-01T00:00:00.000Z",
        "ce-tocsinlatems": "0",
        "ce-tocsinattempt": "2",
        "webhook-id": id,
        "webhook-timestamp": str(now),
        "webhook-signature": signing.sign(id, now, body, [secret]),
    }
    return httpx.post(hook, content=body, headers=headers, timeout=180).status_code
