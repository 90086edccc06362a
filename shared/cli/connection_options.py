"""Where the app is, and the key for it: options, a profile, or TOCSIN_URL and TOCSIN_KEY."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import typer

from .exits import Exit
from .failures import CommandFailed

ProfileName = Annotated[str, typer.Option("--profile", help="A deployment of the profiles file. Also TOCSIN_PROFILE.")]
Url = Annotated[str, typer.Option("--url", help="The app's address, as https://app.example. Also TOCSIN_URL.")]
_KEY_HELP = "A key; better in TOCSIN_KEY or a profile, for other users of the machine see this one."
Key = Annotated[str, typer.Option("--key", help=_KEY_HELP, show_default=False)]
Tenant = Annotated[str | None, typer.Option("--tenant", help="For an admin key: whose.")]


@dataclass(frozen=True, slots=True)
class Connection:
    """An app and a key."""

    url: str
    key: str = field(repr=False)
    tenant: str | None = None


def connection(url: str, key: str, tenant: str | None = None) -> Connection:
    """What was given, checked. Raises `CommandFailed`, without the key in it."""
    from ..client.http import options

    for name, given in (("TOCSIN_URL", url), ("TOCSIN_KEY", key)):
        if not given:
            raise CommandFailed(f"{name} is not set", where=name, advice=f"Set {name}, or give --{name[7:].lower()}.", status=Exit.USAGE)
    try:
        options(url, key, 1)
    except ValueError as wrong:
        where = "TOCSIN_KEY" if "key" in str(wrong) else "TOCSIN_URL"
        raise CommandFailed(str(wrong), where=where, advice=f"Set {where} as the app's owner gave it.", status=Exit.USAGE) from None
    return Connection(url, key, tenant)


def chosen(environment: Mapping[str, str], *, profile: str = "", url: str = "", key: str = "", tenant: str | None = None) -> Connection:
    """The app and the key that were meant: options, then a profile that was named, then the environment, then the default profile.

    A key goes to no other address than the one it was given for. Raises `CommandFailed`.
    """
    from .connections import load

    name = profile or ("" if url else environment.get("TOCSIN_PROFILE", ""))
    if profile and url:
        raise CommandFailed("--profile and --url both name an app", where="--url", advice="Give one of them.", status=Exit.USAGE)
    if not name and not url and not environment.get("TOCSIN_URL"):
        name = load(environment).default
    if name:
        found = load(environment).named(name)
        return connection(found.url, key or found.key(environment), found.tenant if tenant is None else tenant)
    return connection(url or environment.get("TOCSIN_URL", ""), key or environment.get("TOCSIN_KEY", ""), tenant)
