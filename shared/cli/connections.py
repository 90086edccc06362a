"""Profiles: several deployments by name, in a TOML file that holds no key, only where each is found."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .exits import Exit
from .failures import CommandFailed

FIELDS: Final = ("url", "tenant", "key_env", "key_command")
PATIENCE: Final = 60.0
"""Seconds that the command of a key may take."""
_EXAMPLE = 'See docs/command.md: [prod] url = "https://app.example", key_env = "PROD_KEY".'


@dataclass(frozen=True, slots=True)
class Profile:
    """A deployment. Of `key_env`, the name of an environment variable, and `key_command`, a program that prints the key, one is set."""

    name: str
    url: str
    tenant: str | None = None
    key_env: str = ""
    key_command: str = ""

    @property
    def source(self) -> str:
        """Where its key comes from, for people."""
        return f"${self.key_env}" if self.key_env else f"$({self.key_command})"

    def key(self, environment: Mapping[str, str]) -> str:
        """The key. Raises `CommandFailed`."""
        if self.key_command:
            return _said(self.key_command, f"profile {self.name}, key_command")
        if found := environment.get(self.key_env, ""):
            return found
        where = f"profile {self.name}, key_env"
        raise CommandFailed(f"{self.key_env} is not set", where=where, advice=f"Set {self.key_env} to the key.", status=Exit.USAGE)


@dataclass(frozen=True, slots=True)
class Profiles:
    """What a file holds; `default` is a name in it, or empty."""

    path: Path
    known: Mapping[str, Profile]
    default: str = ""

    def named(self, name: str) -> Profile:
        """The profile of that name. Raises `CommandFailed`."""
        if found := self.known.get(name):
            return found
        there = f"There are: {', '.join(self.known)}." if self.known else _EXAMPLE
        raise CommandFailed(f"there is no profile {name}", where=str(self.path), advice=there, status=Exit.USAGE)


def location(environment: Mapping[str, str]) -> Path:
    """Where the file is: TOCSIN_PROFILES, or tocsin/profiles.toml in the user's folder of settings."""
    if given := environment.get("TOCSIN_PROFILES"):
        return Path(given)
    return Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "tocsin" / "profiles.toml"


def load(environment: Mapping[str, str] = os.environ) -> Profiles:
    """The user's profiles; none where there is no file. Raises `CommandFailed` for a file that is wrong, without a key in it."""
    import tomllib

    path = location(environment)
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return Profiles(path, {})
    except (OSError, ValueError) as wrong:
        # A parser's own words may quote a line, and with it a key that somebody put there after all.
        why = wrong.strerror if isinstance(wrong, OSError) else "it is not TOML in UTF-8"
        raise _wrong(path, f"the profiles cannot be read: {why}") from None
    default = found.pop("default", "")
    if not isinstance(default, str):
        raise _wrong(path, "default is the name of a profile, and so no profile can have that name", 'Give the name: default = "prod".')
    known = {name: _profile(path, name, told) for name, told in found.items()}
    if default and default not in known:
        raise _wrong(path, "default names no profile of the file")
    return Profiles(path, known, default)


def _profile(path: Path, name: str, told: Any) -> Profile:
    if not isinstance(told, dict):
        raise _wrong(path, f"{name} is neither a profile nor a setting")
    if "key" in told:
        raise _wrong(path, f"profile {name} holds a key", "Take it out; key_env names a variable, key_command a program that prints it.")
    if strange := told.keys() - set(FIELDS):
        raise _wrong(path, f"profile {name} has a field that there is not: {', '.join(sorted(strange))}")
    if any(not isinstance(value, str) or not value for value in told.values()):
        raise _wrong(path, f"profile {name}: every field is a text that is not empty")
    if "url" not in told or ("key_env" in told) == ("key_command" in told):
        raise _wrong(path, f"profile {name} needs url, and one of key_env and key_command")
    return Profile(name, **told)


def _wrong(path: Path, title: str, advice: str = _EXAMPLE) -> CommandFailed:
    return CommandFailed(title, where=str(path), advice=advice, status=Exit.USAGE)


def _said(command: str, where: str) -> str:
    """The last word of a program, which is run without a shell; what it says on standard error is shown."""
    import shlex
    import subprocess

    try:
        done = subprocess.run(shlex.split(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=PATIENCE)
    except (OSError, ValueError, subprocess.TimeoutExpired) as wrong:
        why = f"it took longer than {PATIENCE:g} seconds" if isinstance(wrong, subprocess.TimeoutExpired) else str(wrong)
        raise CommandFailed(f"the key's command cannot be run: {why}", where=where, status=Exit.USAGE) from None
    if done.returncode or not done.stdout.strip():
        how = f"ended with {done.returncode}" if done.returncode else "printed nothing"
        raise CommandFailed(f"the key's command {how}", where=where, advice=f"Run it yourself: {command}", status=Exit.USAGE)
    return done.stdout.strip()
