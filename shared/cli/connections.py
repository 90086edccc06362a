"""Named connections: several apps in one TOML file. The file never holds a key, only where each key is found."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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
