"""What the commands for people share: the app they speak to, `--json`, `--watch`, and how they are added to a group."""

from __future__ import annotations

import contextlib
import inspect
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, urlencode

import typer

from ..client.errors import Unreadable
from .connection_options import Connection, Key, ProfileName, Tenant, Url, chosen
from .exits import Exit
from .failures import CommandFailed, explained
from .terminal.documents import dump, parse, sendable, to_json
from .terminal.output import Screen, clean
from .terminal.watching import LONGEST, again

if TYPE_CHECKING:
    from ..client.blocking import Client
    from ..client.exchange import Call, Reply

_COMMON: Final[dict[str, tuple[Any, Any]]] = {
    "json": (Annotated[bool, typer.Option("--json", help="For programs: JSON, one document a line.")], False),
    "profile": (ProfileName, ""),
    "url": (Url, ""),
    "key": (Key, ""),
}
_TENANT: Final = (Tenant, None)
_AGAIN: Final = "Again and again, so often."
_WATCH: Final[dict[str, tuple[Any, Any]]] = {
    "watch": (Annotated[float | None, typer.Option("--watch", min=0.1, max=LONGEST, metavar="SECONDS", help=_AGAIN)], None),
    "times": (Annotated[int | None, typer.Option("--times", min=1, help="With --watch: end after so many.")], None),
}
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Note = Annotated[str, typer.Option("--note", help="Why; whoever finds it standing reads this.", show_default=False)]


LOOK: Final = 10.0
"""Seconds without a byte after which a look of many is given up: the next one is the retry."""


def open_client(app: Connection, **how: Any) -> Client:
    """A client of the app; how: what `Client` takes beside."""
    from ..client.blocking import Client

    return Client(app.url, app.key, tenant=app.tenant, **how)


class Session:
    """A command's run: the app, and what it says."""

    def __init__(self, app: Connection, *, json: bool = False) -> None:
        self.app, self.json = app, json
        self.screen = Screen()
        self._client: Client | None = None
        self.looking = False
        """Whether it looks again and again, and so need not insist on an answer."""
        self.sleep: Callable[[float], None] = time.sleep

    @property
    def client(self) -> Client:
        """A client of it."""
        if self._client is None:
            self._client = open_client(self.app, **({"timeout": LOOK, "retries": 0} if self.looking else {}))
        return self._client

    @property
    def silent(self) -> bool:
        """Whether the app has not been spoken to."""
        return self._client is None

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def do[T](self, call: Call[T]) -> T:
        """Carry a call of `client.calls` out."""
        return self.client._do(call)

    def get(self, path: str, **query: Any) -> Any:
        """The object at a path of `at`."""
        return self.send("GET", path, **query)

    def send(self, method: str, path: str, body: Any = None, *, repeatable: bool = False, **query: Any) -> Any:
        """Any operation: the answer's object, None for an answer without one. repeatable: doing it twice is the same as doing it once."""
        from ..client import calls

        call = calls.raw(method, with_query(path, query))
        content = b"" if body is None else dump(body)
        return self.do(replace(call, body=content, read=_answered, repeatable=call.repeatable or repeatable))

    def items(self, path: str, *, limit: int | None = None, **query: Any) -> Iterator[Any]:
        """Those of a list, page by page; at most `limit`."""
        left, cursor = limit, None
        while left is None or left > 0:
            page = self.get(path, **query, limit=min(left or 1000, 1000), cursor=cursor)
            found = page["items"]
            if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
                raise Unreadable("the answer's items are none")
            yield from found
            left = None if left is None else left - len(found)
            cursor = page["next"]
            if cursor is None:
                return

    def emit(self, document: Any) -> None:
        """A document for programs."""
        typer.echo(to_json(document))

    def said(self, document: Any, text: str) -> None:
        """What was done: the document for programs, the text for people."""
        if self.json:
            self.emit(document)
        else:
            self.screen.line(text)

    def shown(self, document: Mapping[str, Any]) -> None:
        """One thing."""
        if self.json:
            self.emit(document)
        else:
            self.screen.fields(document)

    def listed(
        self, items: Iterable[Any], columns: Sequence[str], row: Callable[[Any], Sequence[Any]], *, empty: str, title: str = ""
    ) -> None:
        """A list: a document a line for programs as they come, a table for people."""
        if not self.json:
            self.screen.table(columns, (row(item) for item in items), title=title, empty=empty)
            return
        for item in items:
            self.emit(item)

    def taken(self) -> str:
        """What people are told so far, which is not told again."""
        text = self.screen.text()
        self.drop()
        return text

    def drop(self) -> None:
        """Tell nothing of it."""
        self.screen = Screen()

    def flush(self) -> None:
        """Print what people are told so far."""
        if text := self.taken():
            typer.echo(text, nl=False)

    def confirm(self, what: str, yes: bool) -> None:
        """Ask, unless told not to. Raises `CommandFailed` where nobody can be asked, or says no."""
        import sys

        if yes:
            return
        if not sys.stdin.isatty():
            raise CommandFailed(f"{what}: nobody can be asked", where="--yes", advice="Give --yes.", status=Exit.USAGE)
        typer.echo(f"{clean(what)}? [y/N] ", err=True, nl=False)
        # Not typer's own question, which takes Ctrl-C for a no.
        answer = sys.stdin.readline()
        if answer.strip().lower() not in ("y", "yes"):
            typer.echo("" if answer else "\n", err=True, nl=False)
            raise CommandFailed("nothing was done")


def _answered(reply: Reply) -> Any:
    if not reply.body:
        return None
    with contextlib.suppress(ValueError):
        if isinstance(found := parse(reply.body), dict):
            return found
    raise Unreadable(f"{reply.status}, but no object")


@contextlib.contextmanager
def _understood(session: Session) -> Iterator[None]:
    """What cannot be done with an app's answers is told as such: they are those of another version, or of no app."""
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as wrong:
        if session.silent:
            raise
        place = traceback.extract_tb(wrong.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}, line {place.lineno}"
        raise Unreadable(f"something in it is of another kind ({type(wrong).__name__} in {where})") from wrong


def at(*parts: object) -> str:
    """A path of the API. Raises `CommandFailed` for a part that cannot stand in one."""
    told = [str(part) for part in parts]
    for part in told:
        if not part or set(part) <= {"."}:
            raise CommandFailed(f"{part or 'an empty text'} is no name", status=Exit.USAGE)
    return "/".join(quote(part, safe=":@~") for part in told)


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """The path with those parameters that have a value."""
    given = {name.rstrip("_"): str(value) for name, value in query.items() if value is not None and value != ""}
    return f"{path}?{urlencode(given)}" if given else path


def without(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The rest of an object."""
    return {name: value for name, value in document.items() if name not in names}


@contextlib.contextmanager
def usage(where: str) -> Iterator[None]:
    """What a wrong value raises inside, ends the command as wrong usage."""
    try:
        yield
    except (ValueError, TypeError) as wrong:
        raise CommandFailed(str(wrong), where=where, status=Exit.USAGE) from None


def given_json(text: str, where: str) -> Any:
    """A document of the command line: JSON, or @FILE, or @- for standard input. Raises `CommandFailed`."""
    import sys
    from pathlib import Path

    try:
        if text.startswith("@"):
            # With or without the mark that some editors put first.
            text = (sys.stdin.buffer.read() if text == "@-" else Path(text[1:]).read_bytes()).decode("utf-8-sig")
        return sendable(text)
    except OSError as wrong:
        raise CommandFailed(f"the file cannot be read: {wrong.strerror}", where=where, status=Exit.USAGE) from None
    except ValueError as wrong:
        advice = """A text needs quotes of its own, as '"hello"'; @FILE reads a file."""
        raise CommandFailed(f"this is not JSON: {wrong}", where=where, advice=advice, status=Exit.USAGE) from None


def pairs(given: list[str], where: str) -> dict[str, str]:
    """Words like NAME=VALUE."""
    for each in given:
        if "=" not in each or each.startswith("="):
            raise CommandFailed(f"{each} is not NAME=VALUE", where=where, status=Exit.USAGE)
    return {name: value for name, _, value in (each.partition("=") for each in given)}


def commands(group: typer.Typer, functions: Mapping[str, Callable[..., None]], *, tenant: bool = True, watch: bool = False) -> None:
    """Adds functions to a group by their names: the first argument is a `Session`, the others are the command's, beside those that all
    have.

    tenant: whether `--tenant` makes sense. watch: with `--watch` it is run again and again.
    """
    for name, function in functions.items():
        group.command(name)(_runner(function, tenant=tenant, watch=watch))


def _runner(function: Callable[..., None], *, tenant: bool, watch: bool) -> Callable[..., None]:
    common = {**_COMMON, **({"tenant": _TENANT} if tenant else {}), **(_WATCH if watch else {})}
    signature = inspect.signature(function, eval_str=True)
    _, *own = signature.parameters.values()

    def run(**given: Any) -> None:
        options = {option: given.pop(option) for option in common}
        often, times, as_json = options.pop("watch", None), options.pop("times", None), options.pop("json")
        if times is not None and often is None:
            raise CommandFailed("--times goes with --watch", where="--times", status=Exit.USAGE)
        app = chosen(os.environ, **options)
        session = Session(app if tenant else replace(app, tenant=None), json=as_json)

        def look() -> None:
            with _understood(session):
                function(session, **given)

        try:
            if often is None:
                look()
            else:
                again(session, look, every=often, times=times, screen=True)
        finally:
            # What was done is told, even where the rest failed.
            session.flush()
            session.close()

    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(option, keyword, annotation=kind, default=value) for option, (kind, value) in common.items()]
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*(each.replace(kind=keyword) for each in own), *added], return_annotation=None
    )
    run.__annotations__ = {}
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    return run


def attempted(look: Callable[[], Any]) -> tuple[Any, str]:
    """What was found, or why the app does not show it: for screens of what the key may see."""
    from ..client.errors import Refused, Unauthenticated

    try:
        return look(), ""
    except Unauthenticated:
        raise
    except Refused as refused:
        return None, explained(refused).title
