"""Where the app is, and the key for it: options, or TOCSIN_URL and TOCSIN_KEY."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from .exits import Exit
from .failures import CommandFailed

Url = Annotated[str, typer.Option("--url", envvar="TOCSIN_URL", show_envvar=True, help="The app's address, as https://app.example.")]
_KEY_HELP = "A key of the tenant; better in the environment, where other users of the machine do not see it."
Key = Annotated[str, typer.Option("--key", envvar="TOCSIN_KEY", show_envvar=True, show_default=False, help=_KEY_HELP)]
Tenant = Annotated[str | None, typer.Option("--tenant", help="For an admin key: whose fleet it is.")]


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
