"""The emulated world as tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...core.clock import Millis, to_text
from .model import Happening, ImdsEvent, World
from .rules import timetable
from .views import is_away

LINES = 10
"""Lines of the log on the screen."""
_STYLES = {"Scheduled": "yellow", "Started": "bold red", "completed": "green", "cancelled": "dim", "vanished": "magenta"}


def screen(world: World, urls: Mapping[str, str], control: str, history: Sequence[Happening], height: int = 40) -> RenderableType:
    """Return the screen in about `height` lines: machines, events, and the last lines of the log."""
    speed = f" · speed {world.speed:g}" if world.speed != 1 else ""
    head = Text(f"{to_text(world.now)} · {clock(world.now - world.began)} since the start{speed} · control {control}", style="bold")
    room = max(4, (height - LINES - 10) // 2)
    return Group(head, _machines(world, urls, room), _events(world, room), _log(history))


def line(happening: Happening) -> str:
    """Return a line of the log as text."""
    what = " ".join(part for part in (happening.vm, happening.kind, happening.event, happening.event_id) if part)
    return f"{to_text(happening.at)[11:23]} {what}{f': {happening.text}' if happening.text else ''}"


def clock(span: Millis) -> str:
    """Return milliseconds as a duration for people: `-0:30`, `14:59`, `1:02:03`."""
    seconds = abs(span) // 1000
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    text = f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
    return f"-{text}" if span < 0 else text


def _machines(world: World, urls: Mapping[str, str], room: int) -> Table:
    table = Table(
        "machine", "scope", "host", "domain", "base URL", "incarnation", "read", "asked", title="Machines", title_justify="left", box=None
    )
    named = {name for event in world.events for name in event.shown.resources}
    # Machines with events come first. The sort is stable, so that the scenario's order is kept otherwise.
    vms = sorted(world.vms.values(), key=lambda vm: vm.name not in named)
    for vm in vms[:room]:
        style = "bold red" if is_away(world, vm.name) else "" if vm.on_at is not None else "dim"
        read = "-" if vm.read is None else str(vm.read)
        asked = "never" if vm.asked_at is None else f"{clock(world.now - vm.asked_at)} ago"
        place = (vm.spec.scope, vm.spec.host or "-", str(vm.spec.fault_domain))
        table.add_row(vm.name, *place, urls[vm.name], str(vm.incarnation), read, asked, style=style)
    if len(vms) > room:
        table.add_row(f"and {len(vms) - room} more", style="dim")
    return table


def _events(world: World, room: int) -> Table:
    table = Table("event", "type", "source", "status", "machines", "approved by", "next", title="Events", title_justify="left", box=None)
    listed = [(event, _next(event, at - world.now)) for event, at in timetable(world)]
    for event, upcoming in [*listed, *((event, "") for event in reversed(world.ended))][:room]:
        status = event.outcome or event.shown.status
        machines = ", ".join(event.shown.resources[:4]) + (" ..." if len(event.shown.resources) > 4 else "")
        approved = event.approved_by or "-"
        row = (event.name, event.shown.type, event.shown.source, Text(status, style=_STYLES.get(status, "")), machines, approved)
        table.add_row(*row, upcoming, style="dim" if event.outcome else "")
    return table


def _next(event: ImdsEvent, left: Millis) -> str:
    return f"{'ends' if event.started else 'starts'} in {clock(left)}"


def _log(history: Sequence[Happening]) -> Text:
    return Text("\n".join(line(each) for each in list(history)[-LINES:]), style="dim", no_wrap=True)
