"""`tocsin events tail`: list the events of a moving window, and print those that have changed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...core.clock import to_text
from ..session import CommandSession
from ..terminal.output import duration_text
from ..watching import refresh

_AHEAD = 2.0
"""Seconds before their due times from which events are followed, because this machine's clock may be behind."""


def changed_events(known: Mapping[str, str], events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the events whose state or number of attempts differs from the known one, in the order of their due times."""
    for event in sorted(events, key=lambda each: str(each["due"])):
        if known.get(event["id"]) != state_mark(event):
            yield event


def state_mark(event: Mapping[str, Any]) -> str:
    """Return the part of an event that is compared: its state and its number of attempts."""
    return f"{event['state']} {len(event.get('attempts') or ())}"


def follow(session: CommandSession, *, window: float, every: float, channel: str | None, state: str | None, times: int | None) -> None:
    """Print changed events at every refresh. window, every: seconds."""
    known: dict[str, str] = {}

    def print_changes() -> None:
        nonlocal known
        now = time.time()
        since, until = (to_text(round((now + each) * 1000)) for each in (-window, _AHEAD))
        # An event that ends while the list is read may be listed twice: the later item counts.
        found = {each["id"]: each for each in session.items("events", from_=since, to=until, channel=channel)}
        for event in changed_events(known, found.values()):
            if state is None or event["state"] == state:
                _print_event(session, event)
        known = {id: state_mark(event) for id, event in found.items()}

    refresh(session, print_changes, every=every, times=times)


def _print_event(session: CommandSession, event: Mapping[str, Any]) -> None:
    late = f", {duration_text(event['late_ms'])} late" if event.get("late_ms") is not None else ""
    attempts = event.get("attempts") or ()
    error = event.get("error") or (attempts[-1].get("error") if attempts and event["state"] != "delivered" else None)
    tried = f", attempt {len(attempts)}" if len(attempts) > 1 or (attempts and error) else ""
    text = f"{event['due']}  {event['id']}  {event['state']}{late}{tried}  {event.get('channel') or ''}"
    session.print_result(event, f"{text}  {error}" if error else text)
