"""Error messages of the command: what is wrong, where, and what to do next. They never show a key."""

from __future__ import annotations

from typing import Final

from ..client.errors import Refused, Unreachable, Unreadable
from ..core.errors import Problem, TocsinError
from ..web.problem_types import MEANINGS
from .exits import Exit
from .terminal.output import printable

ADVICE: Final = {
    401: "Set TOCSIN_KEY to a valid key, or use --connection. An administrator creates keys with: tocsin tenants keys create.",
    403: "Use a key that has the scope this call needs and is not bound to another fleet or node.",
    404: "Check the names, and that the key belongs to the right tenant: another tenant's resources are not found.",
    409: "Its present state does not allow this. Read what is stored now.",
    422: "Correct the fields that are named, and try again. --help shows the values that each option takes.",
    429: "Try again later. The limit is the tenant's.",
    500: "Try again. If it keeps failing, look at the app's log.",
    503: "Try again. If it keeps failing, tocsin status shows what the app waits for.",
}
"""The next thing to do, by the status of a refusal."""
_BY_TYPE: Final = frozenset({409, 412, 413, 500, 503})
"""Statuses of refusals whose types say what helps."""
_BY_STATUS: Final = frozenset({"storage-unavailable"})
"""Types whose meaning names parts of the answer that the command does not show."""
_NOT_THE_APP: Final = "Check that TOCSIN_URL is the app's address without /api, and that app and command have about the same version."


class CommandFailed(TocsinError):
    """Ends a command. title: what is wrong. where: the setting, file or call. advice: what to do next. status: the exit code."""

    def __init__(self, title: str, *, where: str = "", advice: str = "", status: int = Exit.FAILED) -> None:
        super().__init__(title)
        self.title, self.where, self.advice, self.status = title, where, advice, status

    def text(self) -> str:
        """Return the message: up to three lines, and more if the title has several."""
        more = {"where": self.where, "do": self.advice}
        lines = [f"tocsin: {self.title}", *(f"  {name}: {value}" for name, value in more.items() if value)]
        # Parts of the text come from the app or from users.
        return "\n".join(printable(line) for text in lines for line in text.split("\n"))


def to_command_failure(error: TocsinError) -> CommandFailed:
    """Return the failure that ends a command for any error of Tocsin."""
    if isinstance(error, CommandFailed):
        return error
    if isinstance(error, Refused):
        return _refusal(error)
    if isinstance(error, Unreachable):
        advice = "Check TOCSIN_URL, and that the app runs and this machine can reach it."
        return CommandFailed(f"The app does not answer: {error}", where="TOCSIN_URL", advice=advice, status=Exit.UNREACHABLE)
    if isinstance(error, Unreadable):
        title = f"The answer does not come from the app: {error}"
        return CommandFailed(title, where="TOCSIN_URL", advice=_NOT_THE_APP, status=Exit.UNREACHABLE)
    if isinstance(error, Problem):
        return CommandFailed(f"{error.title}: {error.detail}")
    return CommandFailed(str(error))


def _refusal(error: Refused) -> CommandFailed:
    if not error.title and not error.code:
        # A gateway in front of the app answered, or another server at that address.
        advice = "Try again; the app may be starting." if error.status >= 500 else _NOT_THE_APP
        if 300 <= error.status < 400:
            advice = "The address redirects. Set TOCSIN_URL to the target itself, usually the same address with https://."
        title = f"The answer does not come from the app: {error.status}, {error.detail}"
        return CommandFailed(title, where=f"TOCSIN_URL, {error.call}", advice=advice, status=Exit.UNREACHABLE)
    faults = "; ".join(f"{fault.pointer}: {fault.detail}" for fault in error.errors)
    # With a single fault, the detail often repeats it.
    title = f"{error.title or 'The app refused'}: {error.detail}" + (f" ({faults})" if faults and faults not in error.detail else "")
    advice = ADVICE.get(error.status, ADVICE[500] if error.status >= 500 else "")
    if error.status in _BY_TYPE and error.code not in _BY_STATUS:
        advice = MEANINGS.get(error.code) or advice
    return CommandFailed(title, where=error.call, advice=advice, status=Exit.REFUSED)
