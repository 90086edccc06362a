"""Adds commands to groups: the options that all commands have, and the session that each run gets."""

from __future__ import annotations

import contextlib
import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, NamedTuple, get_args

import typer

from ..client.errors import Unreadable
from .connections import AllowPlainHttp, ConnectionName, KeyOption, Tenant, Url, resolve_connection
from .exits import Exit
from .failures import CommandFailed
from .help import add_command
from .session import CommandSession
from .watching import MAX_INTERVAL, refresh

_WATCH_HELP: Final = "Refresh every N seconds until interrupted, such as 5."
_TIMES_HELP: Final = "Stop after N refreshes, such as 3. Needs --watch."
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs, one document a line.")]
_COMMON: Final[dict[str, tuple[Any, Any]]] = {
    "json": (JsonOption, False),
    "profile": (ConnectionName, ""),
    "url": (Url, ""),
    "key": (KeyOption, ""),
    "allow_plain_http": (AllowPlainHttp, False),
}
_TENANT: Final = (Tenant, None)
_WATCH: Final[dict[str, tuple[Any, Any]]] = {
    "watch": (Annotated[float | None, typer.Option("--watch", min=0.1, max=MAX_INTERVAL, metavar="SECONDS", help=_WATCH_HELP)], None),
    "times": (Annotated[int | None, typer.Option("--times", min=1, metavar="N", help=_TIMES_HELP)], None),
}


class OptionGroup(NamedTuple):
    """Options that several commands have. An argument that is annotated with it gets their values by name, as a dict."""

    options: Mapping[str, tuple[Any, Any]]


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
_NOTE_HELP: Final = "Reason for the change, such as 'a new disk'. It is listed beside the control."
Note = Annotated[str, typer.Option("--note", help=_NOTE_HELP, show_default=False)]


def add_commands(group: typer.Typer, functions: Mapping[str, Callable[..., None]], *, tenant: bool = True, watch: bool = False) -> None:
    """Add functions to a group by name. Their first argument is a `CommandSession`; the others are the options of the command alone.

    tenant: the command has `--tenant`. watch: the command has `--watch` and `--times`.
    """
    for name, function in functions.items():
        add_command(group, name, _command_function(function, tenant=tenant, watch=watch))


def _command_function(function: Callable[..., None], *, tenant: bool, watch: bool) -> Callable[..., None]:
    common = {**_COMMON, **({"tenant": _TENANT} if tenant else {}), **(_WATCH if watch else {})}
    signature = inspect.signature(function, eval_str=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    _, *own = (each.replace(kind=keyword) for each in signature.parameters.values())
    grouped = {each.name: found.options for each in own if (found := _group_of(each.annotation)) is not None}

    def run(**given: Any) -> None:
        options = {option: given.pop(option) for option in common}
        given |= {name: {option: given.pop(option) for option in group} for name, group in grouped.items()}
        every, times, as_json = options.pop("watch", None), options.pop("times", None), options.pop("json")
        if times is not None and every is None:
            raise CommandFailed("--times needs --watch", where="--times", advice="Add --watch SECONDS.", status=Exit.USAGE)
        app = resolve_connection(os.environ, **options)
        session = CommandSession(app if tenant else replace(app, tenant=None), json=as_json)

        def run_once() -> None:
            with unreadable_answers(session):
                function(session, **given)

        try:
            if every is None:
                run_once()
            else:
                refresh(session, run_once, every=every, times=times, screen=True)
        finally:
            # What was done is printed, even if the rest failed.
            session.flush()
            session.close()

    parameters = [part for each in own for part in (_parameters(grouped[each.name]) if each.name in grouped else [each])]
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*parameters, *_parameters(common)], return_annotation=None
    )
    run.__annotations__ = {}
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    return run


def _group_of(annotation: Any) -> OptionGroup | None:
    return next((each for each in get_args(annotation) if isinstance(each, OptionGroup)), None)


def _parameters(options: Mapping[str, tuple[Any, Any]]) -> list[inspect.Parameter]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(name, keyword, annotation=kind, default=value) for name, (kind, value) in options.items()]


@contextlib.contextmanager
def unreadable_answers(session: CommandSession) -> Iterator[None]:
    """Raise `Unreadable` for errors in processing an answer: it comes from another version of the app, or from another server."""
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as wrong:
        if session.untouched:
            raise
        place = traceback.extract_tb(wrong.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}, line {place.lineno}"
        raise Unreadable(f"a field has an unexpected type ({type(wrong).__name__} in {where})") from wrong
