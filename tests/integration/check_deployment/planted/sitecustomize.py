"""Plants a fault of a deployment into this process, before it imports anything else. Only tests put this folder on PYTHONPATH."""

from __future__ import annotations

import os


def plant_clock(ahead: int) -> None:
    """Let the app's clock be that many milliseconds ahead."""
    from shared.core.clock import SystemClock

    right = SystemClock.now
    SystemClock.now = lambda self: right(self) + ahead


def plant_version(wrong: str) -> None:
    """Let the app have another version."""
    from shared.core import version

    version.version = lambda: wrong


if ahead := os.environ.get("PLANTED_AHEAD_MS"):
    plant_clock(int(ahead))
if wrong := os.environ.get("PLANTED_VERSION"):
    plant_version(wrong)
