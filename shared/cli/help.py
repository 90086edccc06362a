"""Help texts of commands: a docstring gives the summary, the details and the examples, and declarations give the names of values."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo, ParameterInfo

_EXAMPLES = "\nExamples:\n"
_WORDS: Final = {
    **dict.fromkeys(("on_delivered", "on_dead", "notify"), "CHANNEL"),
    **dict.fromkeys(("note", "error"), "TEXT"),
    **dict.fromkeys(("payload", "settings"), "JSON"),
    **dict.fromkeys(("url", "otlp", "syslog"), "URL"),
    "exclude": "DATE",
    "nodes": "NODE",
}
"""Names of the values of some options, by parameter. Other options show the last word of their own name, such as PREFIX for --id-prefix."""


class PlainCommand(TyperCommand):
    """A command whose usage line and errors have no marks of the libraries that typer is built from."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line: NAME for an argument that must be given, without typer's braces."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises `typer.BadParameter` without the prefix that pydantic gives to each wrong value."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as wrong:
            wrong.message = wrong.message.removeprefix("Value error, ")
            raise


def split_docstring(function: Callable[..., Any]) -> tuple[str, tuple[str, ...]]:
    """Return the help text and the example command lines that a docstring lists under `Examples:`, one a line."""
    text, _, rest = inspect.getdoc(function).partition(_EXAMPLES)  # type: ignore[union-attr]
    # The formatter would keep the source's line breaks.
    paragraphs = "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))
    return paragraphs, tuple(line.strip() for line in rest.splitlines() if line.strip())


def add_command(group: typer.Typer, name: str, function: Callable[..., Any], *, notes: str = "", **settings: Any) -> None:
    """Add a command whose help shows the docstring's summary and details, then `notes`, then the examples."""
    text, examples = split_docstring(function)
    name_values(function)
    # Two line breaks: the formatter joins single lines to paragraphs. A bracket would start its markup.
    shown = "\n\n".join(line.replace("[", r"\[") for line in (*((notes,) if notes else ()), "Examples:", *examples))
    group.command(name, cls=PlainCommand, help=text, epilog=shown, **settings)(function)


def name_values(function: Callable[..., Any]) -> None:
    """Name the value of each option of a command, as in `--limit N`, where its declaration does not. Help would show its type otherwise."""
    signature = inspect.signature(function, eval_str=True)
    for parameter in signature.parameters.values():
        if get_origin(parameter.annotation) is not Annotated:
            continue
        kind, *others = get_args(parameter.annotation)
        for info in others:
            if isinstance(info, ParameterInfo) and info.metavar is None and (word := _value_word(parameter.name, kind, info)):
                info.metavar = word
    # Otherwise typer evaluates the annotations once more, and has declarations without these words.
    function.__signature__ = signature  # type: ignore[attr-defined]


def _value_word(name: str, kind: Any, info: ParameterInfo) -> str:
    """Return the word for an option's value, a space for a flag, and an empty text if typer's own is right."""
    while (origin := get_origin(kind)) in (Union, types.UnionType, list):
        kind = next(each for each in get_args(kind) if each is not type(None))
    if not isinstance(info, OptionInfo):
        return name.upper()
    if kind is bool:
        return " "
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return ""
    if "NAME=VALUE" in (info.help or ""):
        return "NAME=VALUE"
    if kind in (int, float):
        return "SECONDS" if "seconds" in (info.help or "").lower() else "N"
    return "FILE" if kind is Path else _WORDS.get(name) or name.strip("_").rpartition("_")[2].upper()
