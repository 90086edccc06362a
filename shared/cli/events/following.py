"""Follow events: new ones until they have ended, and those of a moving window as they change."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import typer

from ...core.clock import to_text
from ...core.readable import count_of
from ..exits import Exit
from ..session import CommandSession, api_path
from ..terminal.output import duration_text
from ..watching import refresh

_FINAL: Final = frozenset({"delivered", "dead", "lapsed", "cancelled"})
_FIRST, _LONGEST, _ASLEEP = 0.2, 2.0, 5.0
"""Seconds between two looks: the first pause, the longest once an event is due, and the longest before that."""


def wait_for_end(session: CommandSession, ids: Sequence[str]) -> None:
    """Print each attempt as it ends, until all events have ended. Raises `typer.Exit` unless all were delivered."""
    open_events, seen = list(ids), dict.fromkeys(ids, 0)
    states: dict[str, str] = {}
    pause = _FIRST
    try:
        while True:
            found = [session.get(api_path("events", id)) for id in open_events]
            for event in found:
                _print_news(session, event, seen)
                if event["state"] in _FINAL:
                    open_events.remove(event["id"])
                    states[event["id"]] = event["state"]
            session.flush()
            if not open_events:
                break
            due = min(event["due"] for event in found if event["state"] not in _FINAL)
            until = datetime.fromisoformat(due).timestamp() - time.time()
            pause = _FIRST if until > 0 or any(len(event.get("attempts") or ()) > seen[event["id"]] for event in found) else pause * 1.5
            session.activity.update(f"{_subject(open_events)}, due {due}" if until > 0 else _subject(open_events))
            with session.activity.during():
                session.sleep(min(max(until, _FIRST), _ASLEEP) if until > 0 else min(pause, _LONGEST))
    except KeyboardInterrupt:
        session.activity.hide()
        typer.echo(f"Not waiting any longer; nothing was cancelled. See: tocsin events get {open_events[0]}", err=True)
        raise
    if any(state != "delivered" for state in states.values()):
        raise typer.Exit(Exit.FAILED)


def _subject(ids: Sequence[str]) -> str:
    return f"waiting for {ids[0]}" if len(ids) == 1 else f"waiting for {count_of(len(ids), 'event')}"


def _print_news(session: CommandSession, event: Mapping[str, Any], seen: dict[str, int]) -> None:
    """Print the attempts that were not printed yet, and the end. With --json, the event at its end."""
    if session.json:
        if event["state"] in _FINAL:
            session.emit(event)
        return
    attempts = event.get("attempts") or ()
    # The service keeps the last 20.
    for attempt in attempts[seen[event["id"]] :]:
        parts = (attempt["outcome"], attempt.get("error") or attempt.get("status"), duration_text(attempt["took_ms"]))
        subject = f"{event['id']}  " if len(seen) > 1 else ""
        session.screen.line(f"{attempt['at']}  {subject}{', '.join(str(part) for part in parts if part is not None)}")
    seen[event["id"]] = len(attempts)
    if event["state"] in _FINAL:
        late = f", {duration_text(event['late_ms'])} late" if event.get("late_ms") is not None else ""
        session.screen.line(f"{event['id']} is {event['state']}{late}")


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
