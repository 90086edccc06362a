"""Help texts of commands, from their docstrings: a summary, details, and examples at the end."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer

_EXAMPLES = "\nExamples:\n"


def split_docstring(function: Callable[..., Any]) -> tuple[str, tuple[str, ...]]:
    """Return the help text and the example command lines that a docstring lists under `Examples:`, one a line."""
    text, _, rest = inspect.getdoc(function).partition(_EXAMPLES)  # type: ignore[union-attr]
    # The formatter would keep the source's line breaks.
    paragraphs = "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))
    return paragraphs, tuple(line.strip() for line in rest.splitlines() if line.strip())


def add_command(group: typer.Typer, name: str, function: Callable[..., Any], *, notes: str = "", **settings: Any) -> None:
    """Add a command whose help shows the docstring's summary and details, then `notes`, then the examples."""
    text, examples = split_docstring(function)
    # Two line breaks: the formatter joins single lines to paragraphs. A bracket would start its markup.
    shown = "\n\n".join(line.replace("[", r"\[") for line in (*((notes,) if notes else ()), "Examples:", *examples))
    group.command(name, help=text, epilog=shown, **settings)(function)
