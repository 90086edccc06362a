"""What `tocsin events tail` does: looks at the events of a moving window, and tells what is new."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...core.clock import to_text
from ..session import Session
from ..terminal.output import span
from ..terminal.watching import again

_AHEAD = 2.0
"""Seconds: events due so soon are followed already, for this machine's clock may be behind."""


def news(known: Mapping[str, str], events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Events whose state, or number of attempts, is another than what is known; in the order of their due times."""
    for event in sorted(events, key=lambda each: str(each["due"])):
        if known.get(event["id"]) != mark(event):
            yield event


def mark(event: Mapping[str, Any]) -> str:
    """What of an event is told when it changes."""
    return f"{event['state']} {len(event.get('attempts') or ())}"


def follow(session: Session, *, window: float, every: float, channel: str | None, state: str | None, times: int | None) -> None:
    """Tell what is new, again and again; all times in seconds."""
    known: dict[str, str] = {}

    def look() -> None:
        nonlocal known
        now = time.time()
        since, until = (to_text(round((now + each) * 1000)) for each in (-window, _AHEAD))
        # One that ends meanwhile may come twice: the later one counts.
        found = {each["id"]: each for each in session.items("events", from_=since, to=until, channel=channel)}
        for event in news(known, found.values()):
            if state is None or event["state"] == state:
                _tell(session, event)
        known = {id: mark(event) for id, event in found.items()}

    again(session, look, every=every, times=times)


def _tell(session: Session, event: Mapping[str, Any]) -> None:
    late = f", {span(event['late_ms'])} late" if event.get("late_ms") is not None else ""
    attempts = event.get("attempts") or ()
    error = event.get("error") or (attempts[-1].get("error") if attempts and event["state"] != "delivered" else None)
    tried = f", attempt {len(attempts)}" if len(attempts) > 1 or (attempts and error) else ""
    text = f"{event['due']}  {event['id']}  {event['state']}{late}{tried}  {event.get('channel') or ''}"
    session.said(event, f"{text}  {error}" if error else text)
