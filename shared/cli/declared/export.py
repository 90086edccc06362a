"""`tocsin export`: write what the app has as a file for `tocsin apply`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ...client.resources.definitions import definition
from ...core.readable import count_of
from ..commands import add_commands
from ..exits import Exit
from ..failures import CommandFailed
from ..session import CommandSession
from .references import MASK, escaped, reference_name
from .resources import Address, read_parts, read_tenants, to_file
from .yaml_text import to_yaml

_HEAD: Final = "# By tocsin export. Secrets are named, not written: set the variables, or leave them unset to keep what is stored.\n"


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_commands(app, {"export": export}, tenant=False)


def export(
    session: CommandSession,
    tenants: Annotated[list[str] | None, typer.Argument(metavar="[TENANT]...", help="Only these tenants. Default: all.")] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write this file, not standard output.")] = None,
) -> None:
    """Write tenants, channels, calendars, fleets and schedules as a file for tocsin apply. Needs an admin key.

    Values of headers, of a URL's query, passwords and access keys are written as references such as ${env:SHOP_DEFAULT_X_KEY}.
    Keys of the API are not exported.

    Examples:
        tocsin export -o tocsin.yaml
        tocsin export shop
    """
    stored = read_tenants(session)
    chosen = {each: shown for each, shown in stored.items() if not tenants or each.tenant in tenants}
    if missing := sorted(set(tenants or ()) - {each.tenant for each in chosen}):
        raise CommandFailed(f"there is no tenant {missing[0]}", advice="tocsin tenants list shows them.", status=Exit.REFUSED)
    resources = {**chosen, **read_parts(session, [each.tenant for each in chosen])}
    exported = {each: exported_definition(each, shown) for each, shown in resources.items()}
    document = to_file(exported)
    if session.json:
        session.emit(document)
        return
    text = _HEAD + to_yaml(document)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        write_private(Path(output), text)
    except OSError as wrong:
        raise CommandFailed(f"the file cannot be written: {wrong.strerror}", where=output, status=Exit.USAGE) from None
    session.screen.line(f"{count_of(len(resources), 'resource')} written to {output}")


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone may read, because payloads of schedules are in it. Raises OSError."""
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        if path.is_file():
            os.chmod(path, 0o600)
        file.write(text)


def exported_definition(address: Address, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition for a file: without state, without members that are null, and with references instead of secrets."""
    body: dict[str, Any] = escaped(_without_nulls(definition(address.kind, {**shown, "payload": None})))
    if address.kind == "schedule":
        return {**body, "payload": escaped(shown["payload"])}
    if address.kind == "channel":
        parts = (address.tenant, address.name)
        if isinstance(body.get("headers"), dict):
            body["headers"] = {name: _reference(value, *parts, name) for name, value in body["headers"].items()}
        for each in ("password", "key"):
            if each in body:
                body[each] = _reference(body[each], *parts, each)
        if isinstance(body.get("url"), str):
            body["url"] = _url(body["url"], parts)
    return body


def _reference(value: Any, *parts: str) -> Any:
    return f"${{env:{reference_name(*parts)}}}" if value == MASK else value


def _url(url: str, parts: tuple[str, str]) -> str:
    """Return the URL with references for the values of its query, which may be keys."""
    address, mark, query = url.partition("?")
    query, hash_mark, fragment = query.partition("#")
    pairs = [pair.partition("=") for pair in query.split("&")] if query else []
    written = "&".join(f"{name}={_reference(MASK, *parts, name)}" if value else f"{name}{sign}" for name, sign, value in pairs)
    return f"{address}{mark}{written}{hash_mark}{fragment}"


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value
