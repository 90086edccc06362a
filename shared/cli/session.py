"""Shared by all groups: the app that a command calls, its output, and the values of its options."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import typer

from ..client.errors import Unreadable
from .connections import Connection
from .exits import Exit
from .failures import CommandFailed, to_command_failure
from .terminal.documents import dump, parse, parse_sendable, to_json
from .terminal.output import Activity, Screen, printable

if TYPE_CHECKING:
    from ..client.blocking import Client
    from ..client.exchange import ApiCall, ApiReply
    from ..client.resources.changes import Stored

REFRESH_TIMEOUT: Final = 10.0
"""Seconds without a byte after which a refresh gives up. It is not retried: the next refresh is the retry."""


def open_client(app: Connection, **options: Any) -> Client:
    """Return a client of the app. options: further arguments of `Client`."""
    from ..client.blocking import Client

    return Client(app.url, app.key, tenant=app.tenant, allow_plain_http=app.allow_plain_http, **options)


class CommandSession:
    """One run of a command: the app it calls, and the output it collects."""

    def __init__(self, app: Connection, *, json: bool = False) -> None:
        self.app, self.json = app, json
        self.screen = Screen()
        self._client: Client | None = None
        self.refreshing = False
        """True while the command refreshes its output: a call that fails is not retried."""
        self.sleep: Callable[[float], None] = time.sleep
        self.activity = Activity(f"waiting for {app.url}")

    @property
    def client(self) -> Client:
        """The client of the app. It is created at the first use."""
        if self._client is None:
            self._client = open_client(self.app, **({"timeout": REFRESH_TIMEOUT, "retries": 0} if self.refreshing else {}))
        return self._client

    @property
    def untouched(self) -> bool:
        """True while nothing was sent to the app."""
        return self._client is None

    def close(self) -> None:
        """Close the connections to the app."""
        self.activity.hide()
        if self._client is not None:
            self._client.close()

    def do[T](self, call: ApiCall[T]) -> T:
        """Run a call of `client.calls` and return its answer."""
        with self.activity.during():
            return self.client._do(call)

    def change[T](
        self,
        read: ApiCall[Stored],
        write: Callable[[Mapping[str, Any], str], ApiCall[T]],
        change: Callable[[dict[str, Any]], Mapping[str, Any]],
    ) -> T:
        """Change a stored definition as the client's `set` does; see `client.resources.changes`."""
        import random

        from ..client.resources.changes import change_stored

        with self.activity.during():
            return self.client._run(change_stored(read, write, change, self.client._retry_settings, random.random))

    def get(self, path: str, **query: Any) -> Any:
        """Return the JSON object at a path made by `api_path`."""
        return self.send("GET", path, **query)

    def send(self, method: str, path: str, body: Any = None, *, repeatable: bool = False, **query: Any) -> Any:
        """Run any operation and return the answer's object, or None for an empty answer.

        repeatable: sending the request twice has the effect of sending it once, so that it may be retried.
        """
        from ..client import calls

        call = calls.raw(method, with_query(path, query))
        content = b"" if body is None else dump(body)
        return self.do(replace(call, body=content, read=_read_object, repeatable=call.repeatable or repeatable))

    def items(self, path: str, *, limit: int | None = None, **query: Any) -> Iterator[Any]:
        """Yield the items of a list, page by page; at most `limit`. Raises `Unreadable` for an answer without a list of items.

        A list of events may show one again that ends between two pages: it is yielded once.
        """
        left, cursor, read = limit, None, 0
        seen: set[str] | None = set() if path == "events" else None
        while left is None or left > 0:
            page = self.get(path, **query, limit=min(left or 1000, 1000), cursor=cursor)
            found = page["items"]
            if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
                raise Unreadable("the answer has no list of items")
            read += len(found)
            if seen is not None:
                found = [each for each in found if each.get("id") not in seen]
                seen |= {each.get("id") for each in found}
            yield from found
            self.activity.update(f"{read:,} read from {self.app.url}")
            left = None if left is None else left - len(found)
            cursor = page["next"]
            if cursor is None:
                return

    def emit(self, document: Any) -> None:
        """Print a document for programs."""
        self.activity.hide()
        typer.echo(to_json(document))

    def print_result(self, document: Any, text: str) -> None:
        """Print the result of a change: the document with --json, else the text."""
        if self.json:
            self.emit(document)
        else:
            self.screen.line(text)

    def print_document(self, document: Mapping[str, Any]) -> None:
        """Print one object: as JSON with --json, else a field a line."""
        if self.json:
            self.emit(document)
        else:
            self.screen.fields(document)

    def print_list(
        self, items: Iterable[Any], columns: Sequence[str], row: Callable[[Any], Sequence[Any]], *, empty: str, title: str = ""
    ) -> None:
        """Print a list: with --json a document a line as the items arrive, else a table, or `empty` if there are no items."""
        if not self.json:
            self.screen.table(columns, (row(item) for item in items), title=title, empty=empty)
            return
        for item in items:
            self.emit(item)

    def take_output(self) -> str:
        """Return the text collected for people so far, and start with an empty screen."""
        text = self.screen.text()
        self.discard_output()
        return text

    def discard_output(self) -> None:
        """Drop the text collected for people so far."""
        self.screen = Screen()

    def flush(self) -> None:
        """Print the text collected for people so far."""
        self.activity.hide()
        if text := self.take_output():
            typer.echo(text, nl=False)

    def confirm(self, action: str, yes: bool) -> None:
        """Ask whether to do `action`, unless `yes`. Raises `CommandFailed` for a no, and where standard input is not a terminal."""
        import sys

        self.activity.hide()
        if yes:
            return
        if not sys.stdin.isatty():
            title = f"{action}: this needs a confirmation, and standard input is not a terminal"
            raise CommandFailed(title, where="--yes", advice="Give --yes to confirm on the command line.", status=Exit.USAGE)
        typer.echo(f"{printable(action)}? [y/N] ", err=True, nl=False)
        # Not typer's own question: it takes Ctrl-C for a no.
        answer = sys.stdin.readline()
        if answer.strip().lower() not in ("y", "yes"):
            typer.echo("" if answer else "\n", err=True, nl=False)
            raise CommandFailed("nothing was done")


def _read_object(reply: ApiReply) -> Any:
    if not reply.body:
        return None
    with contextlib.suppress(ValueError):
        if isinstance(found := parse(reply.body), dict):
            return found
    raise Unreadable(f"status {reply.status}, but the body is not a JSON object")


def api_path(*parts: object) -> str:
    """Join the parts to a path of the API. Raises `CommandFailed` for an empty part and for dots."""
    texts = [str(part) for part in parts]
    for text in texts:
        if not text or set(text) <= {"."}:
            raise CommandFailed(f"{text or 'an empty text'} is not a valid name", status=Exit.USAGE)
    return "/".join(quote(text, safe=":@~") for text in texts)


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """Return the path with the parameters that have a value."""
    given = {name.rstrip("_"): str(value) for name, value in query.items() if value is not None and value != ""}
    return f"{path}?{urlencode(given)}" if given else path


def without_fields(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return a copy of the object without these fields."""
    return {name: value for name, value in document.items() if name not in names}


@contextlib.contextmanager
def usage_errors(where: str) -> Iterator[None]:
    """Turn ValueError and TypeError into a `CommandFailed` with the exit code of wrong usage."""
    try:
        yield
    except (ValueError, TypeError) as wrong:
        raise CommandFailed(str(wrong), where=where, status=Exit.USAGE) from None


def read_option(text: str, where: str) -> bytes:
    """Return the bytes an option gives: its text, @FILE, or @- for standard input. Raises `CommandFailed`."""
    import sys
    from pathlib import Path

    if not text.startswith("@"):
        return text.encode(errors="surrogateescape")
    try:
        return sys.stdin.buffer.read() if text == "@-" else Path(text[1:]).read_bytes()
    except OSError as wrong:
        raise CommandFailed(f"the file cannot be read: {wrong.strerror}", where=where, status=Exit.USAGE) from None


def parse_payload(text: str | None, content_type: str | None) -> Any:
    """Return the payload that `--payload` gives: a JSON document, by default `{}`, or bytes with a content type. Raises `CommandFailed`."""
    if content_type is None:
        return parse_json_option("{}" if text is None else text, "--payload")
    if text is None:
        raise CommandFailed("--content-type needs --payload", where="--content-type", advice="Add --payload @FILE.", status=Exit.USAGE)
    return read_option(text, "--payload")


def parse_json_option(text: str, where: str) -> Any:
    """Return the document an option gives: JSON, @FILE, or @- for standard input. Raises `CommandFailed`."""
    try:
        # Some editors write a byte order mark first.
        return parse_sendable(read_option(text, where).decode("utf-8-sig") if text.startswith("@") else text)
    except ValueError as wrong:
        advice = """Give JSON such as '{"order": 17}'. A text needs its own quotes: '"hello"'. @FILE reads a file."""
        raise CommandFailed(f"this is not JSON: {wrong}", where=where, advice=advice, status=Exit.USAGE) from None


def parse_pairs(given: list[str], where: str) -> dict[str, str]:
    """Return values like NAME=VALUE as a mapping. Raises `CommandFailed`."""
    for each in given:
        if "=" not in each or each.startswith("="):
            advice = f"Write {where} NAME=VALUE, such as {where} team=blue."
            raise CommandFailed(f"{each} is not NAME=VALUE", where=where, advice=advice, status=Exit.USAGE)
    return {name: value for name, _, value in (each.partition("=") for each in given)}


def read_if_allowed(read: Callable[[], Any]) -> tuple[Any, str]:
    """Return what `read` returns and an empty text, or None and the reason of the app's refusal. A key that is not valid still raises."""
    from ..client.errors import Refused, Unauthenticated

    try:
        return read(), ""
    except Unauthenticated:
        raise
    except Refused as refused:
        return None, to_command_failure(refused).title
