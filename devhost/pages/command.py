"""Writes the list of commands of docs/reference/command.md from the command itself."""

from __future__ import annotations

from typing import Any

import typer

from shared.cli.main import build

from .generated_blocks import REFERENCE, update

PAGE = REFERENCE / "command.md"


def page() -> str:
    """Return the whole page, with the present commands."""
    commands = _below(typer.main.get_command(build([])))
    lines = [f"- {_line(name, each)}\n" for name, each in sorted(commands.items())]
    return update(PAGE.read_text(), {"commands": "".join(lines)})


def _below(command: Any) -> dict[str, Any]:
    """Return the commands of a group by name; none for a command."""
    return getattr(command, "commands", {})


def _line(name: str, command: Any) -> str:
    about = (command.help or "").partition("\n")[0]
    first = about.partition(". ")[0].rstrip(".")
    names = f" ({_names(command)})" if _below(command) else ""
    return f"`tocsin {name}`{names}: {first}." + (" Needs an admin key." if "admin key" in about else "")


def _names(group: Any) -> str:
    """Return the names of a group's commands, and in brackets those of a group below it."""
    return ", ".join(f"`{name}`" + (f" ({_names(each)})" if _below(each) else "") for name, each in _below(group).items())


if __name__ == "__main__":
    PAGE.write_text(page())
