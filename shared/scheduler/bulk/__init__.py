"""Bulk jobs: cancel, move, redrive or fire all events that match a filter."""

from __future__ import annotations

from typing import Final

JOB: Final = "bulk_jobs"
"""The sweep's job that carries bulk jobs on. It is here, so that the timers name it without importing the jobs."""
