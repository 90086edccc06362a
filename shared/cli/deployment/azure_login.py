"""Tokens of `az login`, for the storage account's queues."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from email.utils import formatdate
from typing import Final

from ..exits import Exit
from ..failures import CommandFailed

RESOURCE: Final = "https://storage.azure.com/"
PATIENCE: Final = 60.0
"""Seconds that `az` may take."""
_EARLY: Final = 300.0
"""Seconds before its end at which a token is replaced."""
_ADVICE: Final = "Install the Azure CLI and run az login, or give --queue-url with a shared access signature."


class LoginTokens:
    """Authorizes requests with the token of the user that `az login` has signed in. Never shows it."""

    suffix = ""

    def __init__(self, ask: Callable[[], str] | None = None, clock: Callable[[], float] = time.time) -> None:
        """ask: returns what `az account get-access-token` prints."""
        self._ask, self._clock = ask or _ask_az, clock
        self._token, self._until = "", 0.0

    async def authorize(self, method: str, path: str, query: Mapping[str, str], headers: dict[str, str], size: int) -> None:
        """Add the token. Raises `CommandFailed` without one."""
        now = self._clock()
        if now >= self._until:
            try:
                answer = dict(json.loads(self._ask()))
                # A token with little time left is used for half of it, so that `az` is not asked for each request.
                ends_at = float(answer.get("expires_on", now + _EARLY))
                self._token, self._until = f"Bearer {answer['accessToken']}", ends_at - min(_EARLY, (ends_at - now) / 2)
            except (ValueError, KeyError, TypeError):
                raise CommandFailed("az printed no token", where="az account get-access-token", advice="Update the Azure CLI.") from None
        headers["x-ms-date"] = formatdate(int(now), usegmt=True)
        headers["Authorization"] = self._token

    def refused(self) -> bool:
        """Forget the token. Return True: another one may be accepted."""
        self._until = 0.0
        return True

    async def close(self) -> None:
        """Nothing to release."""


def _ask_az() -> str:
    program = shutil.which("az")
    if program is None:
        raise CommandFailed("az is not installed", where="az account get-access-token", advice=_ADVICE, status=Exit.USAGE)
    command = [program, "account", "get-access-token", "--resource", RESOURCE, "--output", "json"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandFailed(f"az gave no token: {type(error).__name__}", where=" ".join(command[1:]), advice=_ADVICE) from None
    if done.returncode:
        # Its last line says most; none of its lines holds a token.
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise CommandFailed(f"az gave no token: {lines[-1]}", where=" ".join(command[1:]), advice=_ADVICE)
    return done.stdout
