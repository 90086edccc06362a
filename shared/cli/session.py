"""What the commands for people share: the app they speak to, `--json`, `--watch`, and how they are added to a group."""

from __future__ import annotations

import contextlib
import inspect
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, urlencode

import typer

from .connection import Connection, connection
from .exits import Exit
from .failures import CommandFailed, explained
from .output import Screen, to_json

if TYPE_CHECKING:
    from ..client.blocking import Client
    from ..client.exchange import Call

_KEY_HELP = "A key; better in TOCSIN_KEY or a profile, for other users of the machine see this one."
_COMMON: Final[dict[str, tuple[Any, Any]]] = {
    "json": (Annotated[bool, typer.Option("--json", help="For programs: JSON, one document a line.")], False),
    "profile": (Annotated[str, typer.Option("--profile", help="A deployment of the profiles file. Also TOCSIN_PROFILE.")], ""),
    "url": (Annotated[str, typer.Option("--url", help="The app's address. Also TOCSIN_URL.")], ""),
    "key": (Annotated[str, typer.Option("--key", help=_KEY_HELP, show_default=False)], ""),
}
_TENANT: Final = (Annotated[str | None, typer.Option("--tenant", help="For an admin key: whose.")], None)
_WATCH: Final[dict[str, tuple[Any, Any]]] = {
    "watch": (Annotated[float | None, typer.Option("--watch", min=0.1, metavar="SECONDS", help="Again and again, so often.")], None),
    "times": (Annotated[int | None, typer.Option("--times", min=1, help="With --watch: end after so many.")], None),
}
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Note = Annotated[str, typer.Option("--note", help="Why; whoever finds it standing reads this.", show_default=False)]


def chosen(environment: Mapping[str, str], *, profile: str = "", url: str = "", key: str = "", tenant: str | None = None) -> Connection:
    """The app and the key that were meant: options, then a profile that was named, then the environment, then the default profile.

    A key goes to no other address than the one it was given for. Raises `CommandFailed`.
    """
    from .profiles import load

    name = profile or ("" if url else environment.get("TOCSIN_PROFILE", ""))
    if profile and url:
        raise CommandFailed("--profile and --url both name an app", where="--url", advice="Give one of them.", status=Exit.USAGE)
    if not name and not url and not environment.get("TOCSIN_URL"):
        name = load(environment).default
    if name:
        found = load(environment).named(name)
        return connection(found.url, key or found.key(environment), found.tenant if tenant is None else tenant)
    return connection(url or environment.get("TOCSIN_URL", ""), key or environment.get("TOCSIN_KEY", ""), tenant)


def open_client(app: Connection) -> Client:
    """A client of the app."""
    from ..client.blocking import Client

    return Client(app.url, app.key, tenant=app.tenant)


class Session:
    """A command's run: the app, and what it says."""

    def __init__(self, app: Connection, *, json: bool = False) -> None:
        self.app, self.json = app, json
        self.screen = Screen()
        self._client: Client | None = None
        self.sleep: Callable[[float], None] = time.sleep

    @property
    def client(self) -> Client:
        """A client of it."""
        if self._client is None:
            self._client = open_client(self.app)
        return self._client

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def do[T](self, call: Call[T]) -> T:
        """Carry a call of `client.calls` out."""
        return self.client._do(call)

    def get(self, path: str, **query: Any) -> Any:
        """The JSON at a path of `at`."""
        return self.client.call("GET", with_query(path, query))

    def send(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Any other operation."""
        return self.client.call(method, with_query(path, query), body)

    def items(self, path: str, *, limit: int | None = None, **query: Any) -> Iterator[Any]:
        """Those of a list, page by page; at most `limit`."""
        left, cursor = limit, None
        while left is None or left > 0:
            page = self.get(path, **query, limit=min(left or 1000, 1000), cursor=cursor)
            yield from page["items"]
            left = None if left is None else left - len(page["items"])
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

    def flush(self) -> None:
        """Print what people are told so far."""
        if text := self.screen.text():
            typer.echo(text, nl=False)
        self.screen = Screen()

    def confirm(self, what: str, yes: bool) -> None:
        """Ask, unless told not to. Raises `CommandFailed` where nobody can be asked, or says no."""
        import sys

        if yes:
            return
        if not sys.stdin.isatty():
            raise CommandFailed(f"{what}: nobody can be asked", where="--yes", advice="Give --yes.", status=Exit.USAGE)
        if not typer.confirm(f"{what}?", err=True):
            raise CommandFailed("nothing was done")


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


@contextlib.contextmanager
def usage(where: str) -> Iterator[None]:
    """What a wrong value raises inside, ends the command as wrong usage."""
    try:
        yield
    except (ValueError, TypeError) as wrong:
        raise CommandFailed(str(wrong), where=where, status=Exit.USAGE) from None


def given_json(text: str, where: str) -> Any:
    """A document of the command line: JSON, or @FILE, or @- for standard input. Raises `CommandFailed`."""
    import json
    import sys
    from pathlib import Path

    try:
        if text.startswith("@"):
            text = sys.stdin.read() if text == "@-" else Path(text[1:]).read_text("utf-8")
        return json.loads(text, parse_constant=_no_number)
    except OSError as wrong:
        raise CommandFailed(f"the file cannot be read: {wrong.strerror}", where=where, status=Exit.USAGE) from None
    except ValueError as wrong:
        advice = """A text needs quotes of its own, as '"hello"'; @FILE reads a file."""
        raise CommandFailed(f"this is not JSON: {wrong}", where=where, advice=advice, status=Exit.USAGE) from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


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
        app = chosen(os.environ, **options)
        session = Session(app if tenant else replace(app, tenant=None), json=as_json)
        try:
            if often is None:
                function(session, **given)
            else:
                _again(session, lambda: function(session, **given), often, times)
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


def _again(session: Session, look: Callable[[], None], often: float, times: int | None) -> None:
    """Look again and again. An app that cannot be reached for a while does not end it; one that says no does."""
    import sys

    from ..client.errors import ServerFailed, TooMany, Unreachable

    done, begin = 0, "\x1b[2J\x1b[H"
    while True:
        try:
            look()
        except (Unreachable, ServerFailed, TooMany) as away:
            typer.echo(explained(away).text(), err=True)
            session.screen = Screen()
        else:
            if sys.stdout.isatty() and not session.json:
                # Home, the text, and what is left below it cleared: a screen that is written over does not flicker.
                text = session.screen.text().replace("\n", "\x1b[K\n")
                typer.echo(f"{begin}{text}\x1b[J", nl=False, color=True)
                session.screen, begin = Screen(), "\x1b[H"
            else:
                session.flush()
        done += 1
        if times is not None and done >= times:
            return
        session.sleep(often)


def attempted(look: Callable[[], Any]) -> tuple[Any, str]:
    """What was found, or why the app does not show it: for screens of what the key may see."""
    from ..client.errors import Refused, Unauthenticated

    try:
        return look(), ""
    except Unauthenticated:
        raise
    except Refused as refused:
        return None, explained(refused).title
