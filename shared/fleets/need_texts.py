"""Texts of the reasons why a fleet needs a person, such as "1 partition without an owner"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..core.readable import count_of

_COUNTED: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("leases", "silent"): ("silent server", "silent servers"),
    ("leases", "unserved"): ("partition without an owner", "partitions without an owner"),
    ("leases", "missing"): ("partition without its row", "partitions without their rows"),
    ("leases", "forgotten"): ("forgotten manual control", "forgotten manual controls"),
    ("leases", "late"): ("server with late heartbeats", "servers with late heartbeats"),
    ("leases", "unreadable"): ("unreadable row", "unreadable rows"),
    ("leases", "unlisted"): ("partition that its server does not list", "partitions that their servers do not list"),
    ("leases", "orders"): ("server that does not follow its orders", "servers that do not follow their orders"),
    ("leases", "destination"): ("drain whose destination is lost", "drains whose destinations are lost"),
    ("maintenance", "disagreement"): ("event on which agents disagree", "events on which agents disagree"),
    ("maintenance", "silent"): ("event with silent agents", "events with silent agents"),
    ("maintenance", "prolonged"): ("prolonged event", "prolonged events"),
    ("maintenance", "prepare-failed"): ("event with a failed preparation", "events with a failed preparation"),
    ("maintenance", "restore-failed"): ("event with a failed restore", "events with a failed restore"),
    ("maintenance", "approval-failed"): ("event with a failed approval", "events with a failed approval"),
    ("maintenance", "forced"): ("event prepared without permission", "events prepared without permission"),
    ("maintenance", "too-wide"): ("event across too many fault domains", "events across too many fault domains"),
    ("maintenance", "callers-affected"): ("event that affects callers", "events that affect callers"),
    ("approvals", "waiting"): ("approval waiting", "approvals waiting"),
    ("agents", "silent"): ("silent agent", "silent agents"),
}
_WHOLE: Final[Mapping[tuple[str, str], str]] = {
    ("leases", "servers"): "too few servers",
    ("leases", "turns"): "checkpoint turns are stuck",
    ("leases", "throttled"): "storage refuses or does not answer many requests",
    ("maintenance", "single-monitor"): "only one possible monitor",
    ("maintenance", "monitors-together"): "both monitors in one fault domain",
    ("maintenance", "domains-down"): "too many fault domains down",
}
"""Reasons of the whole fleet. They are shown without a count."""


def need_text(source: str, what: str, count: int) -> str:
    """Return the reason with its count, or its name if this release does not know it."""
    what = what.partition(" ")[0]  # `domains-down UNIT`
    if (whole := _WHOLE.get((source, what))) is not None:
        return whole
    named = _COUNTED.get((source, what))
    return count_of(count, *named) if named else f"{what.replace('-', ' ')} ({count:,})"
