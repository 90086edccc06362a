"""The app that a command calls, and the key for it: --url and --key, a named connection of a TOML file, or TOCSIN_URL and TOCSIN_KEY.

The file never holds a key, only where each key is found.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from .exits import Exit
from .failures import CommandFailed

FIELDS: Final = ("url", "tenant", "key_env", "key_command", "allow_plain_http")
KEY_COMMAND_TIMEOUT: Final = 60.0
"""Seconds that a program that prints a key may take."""
_EXAMPLE = 'Example: [prod] on one line, then url = "https://app.example" and key_env = "PROD_KEY". See docs/reference/command.md.'


@dataclass(frozen=True, slots=True)
class NamedConnection:
    """A connection of the file. Either `key_env`, an environment variable, or `key_command`, a program that prints the key, is set."""

    name: str
    url: str
    tenant: str | None = None
    key_env: str = ""
    key_command: str = ""
    allow_plain_http: bool = False

    @property
    def source(self) -> str:
        """The source of the key, for people: `$VARIABLE` or `$(program)`."""
        return f"${self.key_env}" if self.key_env else f"$({self.key_command})"

    def key(self, environment: Mapping[str, str]) -> str:
        """Return the key. Raises `CommandFailed` if it cannot be found."""
        if self.key_command:
            return _run_key_command(self.key_command, f"connection {self.name}, key_command")
        if found := environment.get(self.key_env, ""):
            return found
        where = f"connection {self.name}, key_env"
        raise CommandFailed(f"{self.key_env} is not set", where=where, advice=f"Set {self.key_env} to the key.", status=Exit.USAGE)


@dataclass(frozen=True, slots=True)
class ConnectionsFile:
    """The content of the file. `default` is the name of one of its connections, or empty."""

    path: Path
    known: Mapping[str, NamedConnection]
    default: str = ""

    def named(self, name: str) -> NamedConnection:
        """Return the connection of that name. Raises `CommandFailed` if the file has none."""
        if found := self.known.get(name):
            return found
        advice = f"Choose one of: {', '.join(self.known)}." if self.known else _EXAMPLE
        raise CommandFailed(f"there is no connection {name}", where=str(self.path), advice=advice, status=Exit.USAGE)


def file_location(environment: Mapping[str, str]) -> Path:
    """Return the path of the file: TOCSIN_PROFILES, else `tocsin/profiles.toml` in the user's configuration folder."""
    if given := environment.get("TOCSIN_PROFILES"):
        return Path(given)
    return Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "tocsin" / "profiles.toml"


def load_connections(environment: Mapping[str, str] = os.environ) -> ConnectionsFile:
    """Read the user's connections; a missing file holds none. Raises `CommandFailed` for a file with a fault; no message shows a key."""
    import tomllib

    path = file_location(environment)
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return ConnectionsFile(path, {})
    except (OSError, ValueError) as wrong:
        # The parser's own message may quote a line that holds a key.
        why = wrong.strerror if isinstance(wrong, OSError) else "it is not TOML in UTF-8"
        raise _file_error(path, f"the connections cannot be read: {why}") from None
    default = found.pop("default", "")
    if not isinstance(default, str):
        title = "default must be the name of a connection; no connection can be called default"
        raise _file_error(path, title, 'Write the name before the first table: default = "prod".')
    known = {name: _parse_connection(path, name, fields) for name, fields in found.items()}
    if default and default not in known:
        raise _file_error(path, f"default names {default}, which is not a connection of the file")
    return ConnectionsFile(path, known, default)


def _parse_connection(path: Path, name: str, fields: Any) -> NamedConnection:
    if not isinstance(fields, dict):
        raise _file_error(path, f"{name} is neither a connection nor a setting of the file")
    if "key" in fields:
        advice = "Remove it. Write key_env, the name of a variable, or key_command, a program that prints the key."
        raise _file_error(path, f"connection {name} contains a key", advice)
    if unknown := fields.keys() - set(FIELDS):
        raise _file_error(path, f"connection {name} has an unknown field: {', '.join(sorted(unknown))}. Fields: {', '.join(FIELDS)}")
    if not isinstance(fields.get("allow_plain_http", False), bool):
        raise _file_error(path, f"connection {name}: allow_plain_http must be true or false")
    if any(not isinstance(value, str) or not value for field, value in fields.items() if field != "allow_plain_http"):
        raise _file_error(path, f"connection {name}: every field but allow_plain_http must be a non-empty text")
    if "url" not in fields or ("key_env" in fields) == ("key_command" in fields):
        raise _file_error(path, f"connection {name} needs url, and exactly one of key_env and key_command")
    return NamedConnection(name, **fields)


def _file_error(path: Path, title: str, advice: str = _EXAMPLE) -> CommandFailed:
    return CommandFailed(title, where=str(path), advice=advice, status=Exit.USAGE)


def _run_key_command(command: str, where: str) -> str:
    """Run a program without a shell and return what it prints. Its standard error stays visible to the user."""
    import shlex
    import subprocess

    try:
        done = subprocess.run(
            shlex.split(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=KEY_COMMAND_TIMEOUT
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as wrong:
        why = f"it took longer than {KEY_COMMAND_TIMEOUT:g} seconds" if isinstance(wrong, subprocess.TimeoutExpired) else str(wrong)
        title = f"the key's command cannot be run: {why}"
        raise CommandFailed(title, where=where, advice=f"Run it yourself: {command}", status=Exit.USAGE) from None
    if done.returncode or not done.stdout.strip():
        how = f"ended with exit code {done.returncode}" if done.returncode else "printed nothing"
        raise CommandFailed(f"the key's command {how}", where=where, advice=f"Run it yourself: {command}", status=Exit.USAGE)
    return done.stdout.strip()


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
