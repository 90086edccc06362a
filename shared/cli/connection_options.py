"""Options that say which app to call and with which key: --url and --key, a named connection, or TOCSIN_URL and TOCSIN_KEY."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

import typer

from .exits import Exit
from .failures import CommandFailed

_PANEL: Final = "Connection"
_CONNECTION_HELP = "Use this connection of profiles.toml, such as prod. Also TOCSIN_PROFILE. tocsin connections lists them."
_URL_HELP = "Address of the app, such as https://app.example. Also TOCSIN_URL."
_KEY_HELP = "API key. Other users of this machine can see command-line arguments; prefer TOCSIN_KEY or a connection."
_PLAIN_HTTP_HELP = "Send the key over plain http:// to another machine, unencrypted. Also TOCSIN_ALLOW_PLAIN_HTTP=1."
_TENANT_HELP = "Tenant to act for, such as shop. Needed with an admin key."
ConnectionName = Annotated[str, typer.Option("--connection", "--profile", help=_CONNECTION_HELP, rich_help_panel=_PANEL)]
Url = Annotated[str, typer.Option("--url", help=_URL_HELP, rich_help_panel=_PANEL)]
KeyOption = Annotated[str, typer.Option("--key", help=_KEY_HELP, show_default=False, rich_help_panel=_PANEL)]
AllowPlainHttp = Annotated[bool, typer.Option("--allow-plain-http", help=_PLAIN_HTTP_HELP, rich_help_panel=_PANEL)]
Tenant = Annotated[str | None, typer.Option("--tenant", help=_TENANT_HELP, rich_help_panel=_PANEL)]


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of an app, a key for it, and with an admin key the tenant to act for.

    allow_plain_http: the key may travel unencrypted to another machine.
    """

    url: str
    key: str = field(repr=False)
    tenant: str | None = None
    allow_plain_http: bool = False


def check_connection(url: str, key: str, tenant: str | None = None, *, allow_plain_http: bool = False) -> Connection:
    """Return the connection if its address and key are well-formed. Raises `CommandFailed`; the message never shows the key."""
    from ..client.http import BadKey, PlainHttpRefused, client_options

    for name, given, example in (("TOCSIN_URL", url, "https://app.example"), ("TOCSIN_KEY", key, "")):
        if not given:
            option = f"--{name[7:].lower()}"
            advice = f"Set {name}, or give {option}{f', such as {option} {example}' if example else ' or --connection'}."
            raise CommandFailed(f"{name} is not set", where=name, advice=advice, status=Exit.USAGE)
    try:
        client_options(url, key, 1, allow_plain_http=allow_plain_http)
    except PlainHttpRefused:
        title = f"the key would be sent unencrypted to another machine, {url}"
        advice = "Use https://. To send the key unencrypted all the same, give --allow-plain-http or set TOCSIN_ALLOW_PLAIN_HTTP=1."
        raise CommandFailed(title, where="TOCSIN_URL", advice=advice, status=Exit.USAGE) from None
    except ValueError as wrong:
        where = "TOCSIN_KEY" if isinstance(wrong, BadKey) else "TOCSIN_URL"
        advice = f"Set {where} to the value that the app's owner gave you."
        raise CommandFailed(str(wrong), where=where, advice=advice, status=Exit.USAGE) from None
    return Connection(url, key, tenant, allow_plain_http)


def resolve_connection(
    environment: Mapping[str, str],
    *,
    profile: str = "",
    url: str = "",
    key: str = "",
    tenant: str | None = None,
    allow_plain_http: bool = False,
) -> Connection:
    """Return the connection that options and environment select.

    Options come first, then a connection given by name, then TOCSIN_URL and TOCSIN_KEY, then the default connection of the file. A key
    is never sent to an address other than the one it was given for, nor unencrypted to another machine unless the option
    --allow-plain-http, the environment or the connection allows that. Raises `CommandFailed`.
    """
    from ..client.http import plain_http_is_allowed
    from .connections import load_connections

    plain = allow_plain_http or plain_http_is_allowed(environment)

    name = profile or ("" if url else environment.get("TOCSIN_PROFILE", ""))
    if profile and url:
        raise CommandFailed("--connection and --url both name an app", where="--url", advice="Give only one of them.", status=Exit.USAGE)
    if not name and not url and not environment.get("TOCSIN_URL"):
        name = load_connections(environment).default
    if name:
        found = load_connections(environment).named(name)
        tenant = found.tenant if tenant is None else tenant
        return check_connection(found.url, key or found.key(environment), tenant, allow_plain_http=plain or found.allow_plain_http)
    url, key = url or environment.get("TOCSIN_URL", ""), key or environment.get("TOCSIN_KEY", "")
    return check_connection(url, key, tenant, allow_plain_http=plain)
