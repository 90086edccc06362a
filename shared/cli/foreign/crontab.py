"""Lines of cron: a user's crontab, or a file of /etc/cron.d, whose lines name a user. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from ...scheduler.recurring.cron import NICKNAMES, check
from .carried import Carried, Source

_SETTING: Final = re.compile(r"""["']?([A-Za-z_][A-Za-z0-9_]*)["']?\s*=\s*(.*)""")
_LINE: Final = re.compile(r"(@\w+|(?:\S+\s+){4}\S+)\s+(\S.*)")
_USER: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?\s+(?=\S)")
_WRAPPERS: Final = frozenset(
    {
        "sudo",
        "nice",
        "ionice",
        "nohup",
        "timeout",
        "command",
        "set",
        "env",
        "exec",
        "flock",
        "cd",
        "test",
        "bash",
        "sh",
        "python",
        "python3",
        "php",
    }
)
_SCRIPT: Final = re.compile(r"\.(?:sh|py|pl|rb|php|js)$")
_MAX_LINE: Final = 8_192
_USER_HEADING: Final = re.compile(r"#.*(?:\bdow\s+user\b|\buser-name\b)", re.I)
"""The comment above the lines of a system's crontab: that of Debian, and that of Red Hat."""
_OF_ROOT: Final = re.compile(r"(?:@\w+|(?:\S+\s+){4}\S+)\s+root\s+\S.*")
_MOST_DELAY: Final = 1_440
"""Minutes of the longest jitter."""


class _Settings(NamedTuple):
    """The settings that hold for the lines below them. delay: minutes by which each job may be late."""

    zone: str = ""
    delay: int = 0


def carry(sources: Sequence[Source], carried: Carried) -> None:
    """Carry the lines over."""
    for source in sources:
        settings, before = _Settings(), len(carried.schedules)
        with_user = _names_users(source)
        for number, line in enumerate(source.text.splitlines(), 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            where = f"{source.name}: line {number}"
            carried.enter()
            if len(text) > _MAX_LINE:
                carried.lost(where, f"the line has more than {_MAX_LINE:,} characters", "Write a schedule for it by hand.")
            elif setting := _SETTING.fullmatch(text):
                settings = _setting(setting[1], setting[2].strip().strip("\"'"), where, settings, carried)
            else:
                _line(text, where, settings, carried, with_user=with_user)
        if not carried.target.timezone and any("timezone" not in rule for rule in list(carried.schedules.values())[before:]):
            carried.part(source.name, "the machine's time zone, which the file does not name: UTC is taken", "Give --timezone.")


def _names_users(source: Source) -> bool:
    """Return True for a system's crontab, whose lines have a user before the command. A copy is known by its text."""
    path = PurePath(source.name)
    if (path.name == "crontab" and path.parent.name == "etc") or path.parent.name == "cron.d":
        return True
    lines = [line.strip()[:_MAX_LINE] for line in source.text.splitlines()]
    return any(_USER_HEADING.match(line) or _OF_ROOT.fullmatch(line) for line in lines)


def _setting(name: str, value: str, where: str, former: _Settings, carried: Carried) -> _Settings:
    """Return the settings that hold from this line on."""
    if name == "CRON_TZ":
        return former._replace(zone=value)
    if name == "RANDOM_DELAY" and re.fullmatch(r"[0-9]{1,4}", value) and int(value) <= _MOST_DELAY:
        return former._replace(delay=int(value))
    if name == "RANDOM_DELAY":
        carried.part(where, f"RANDOM_DELAY={value}, which is not a number of minutes up to {_MOST_DELAY:,}", "Give the schedules a jitter.")
    if name == "TZ":
        carried.part(
            where, f"TZ={value}, which holds for the commands and not for their times", "Give --timezone if cron ran in that zone."
        )
    elif name == "MAILTO" and value:
        carried.part(where, "MAILTO: nobody gets the output by mail", "Name a channel for failures: on_dead, or the tenant's notices.")
    return former


def _line(text: str, where: str, settings: _Settings, carried: Carried, *, with_user: bool) -> None:
    parts = _LINE.fullmatch(text)
    if parts is None:
        carried.lost(where, "this is no line of cron: it has no five fields and a command", "Correct the line.")
        return
    expression, command = parts[1], parts[2]
    if with_user:
        command = _USER.sub("", command, count=1)
    if expression.startswith("@") and expression.lower() not in NICKNAMES:
        do = "Start it with the machine, such as by a unit of systemd." if expression.lower() == "@reboot" else "Write five fields."
        carried.lost(where, f"{expression}: a schedule has no such time", do)
        return
    try:
        # Nothing is rewritten: crons read a step such as 5/15 differently, so it is refused.
        cron = check(NICKNAMES.get(expression.lower(), " ".join(expression.upper().split())))
    except ValueError as wrong:
        carried.lost(where, f"{expression}: {wrong}", "Write a schedule for it by hand.")
        return
    rule = {"cron": cron, **({"timezone": settings.zone} if settings.zone else {})}
    if settings.delay:
        rule["jitter"] = f"PT{settings.delay}M"
    if re.match(r"(?:\S*/)?flock\s", command):
        rule["overlap"] = "skip"
    name = _name(command)
    id = carried.add_schedule(name, rule, {"job": name})
    carried.part(where, f"the command stays on the machine: {command}", f"Let the endpoint run it for the payload of schedule {id}.")
    if re.search(r"(?<!\\)%", command):
        carried.part(where, "what follows % is the command's standard input", "Put it into the payload or the endpoint.")


def _name(command: str) -> str:
    """Return a name for a command: that of its first script, else of the first program that is more than a wrapper."""
    names = []
    for word in re.split(r"[\s;&|<>()]+", command):
        plain = word.strip("\"'")
        name = plain.rstrip("/").rpartition("/")[2]
        if re.fullmatch(r"[A-Za-z][\w.-]*", name) and name not in _WRAPPERS and "=" not in plain and not plain.startswith(("-", "/dev/")):
            names.append(name)
    scripts = [name for name in names if _SCRIPT.search(name)]
    return _SCRIPT.sub("", next(iter([*scripts, *names]), "job"))
