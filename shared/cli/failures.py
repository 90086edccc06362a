"""What a command says on standard error when it fails: what is wrong, where, and what to do. Never a key."""

from __future__ import annotations

from typing import Final

from ..client.errors import Refused, Unreachable, Unreadable
from ..core.errors import Problem, TocsinError
from .exits import Exit
from .terminal.output import clean

ADVICE: Final = {
    401: "Give a valid key in TOCSIN_KEY, or with a profile; an administrator makes one with tocsin tenants keys create.",
    403: "Take a key that has the scope this needs, and that is not bound to another fleet or node.",
    404: "Check the names, and whose key it is: what is another tenant's is not found.",
    409: "Look at it again: something about it is another than you think.",
    422: "Correct what is named, and try again; --help tells what is taken.",
    429: "Try again later; the limit is the tenant's.",
    500: "Try again; if it lasts, look at the app's log.",
    503: "Try again; if it lasts, tocsin status tells what the app waits for.",
}
_NONE_OF_OURS: Final = "Check that TOCSIN_URL is the app's address without /api, and that app and command are of about the same version."


class CommandFailed(TocsinError):
    """Ends a command. title: what is wrong, a sentence. where: the setting, file or call. advice: what to do."""

    def __init__(self, title: str, *, where: str = "", advice: str = "", status: int = Exit.FAILED) -> None:
        super().__init__(title)
        self.title, self.where, self.advice, self.status = title, where, advice, status

    def text(self) -> str:
        """Up to three lines."""
        more = {"where": self.where, "do": self.advice}
        lines = [f"tocsin: {self.title}", *(f"  {name}: {said}" for name, said in more.items() if said)]
        # Much of it was said by others.
        return "\n".join(clean(line) for text in lines for line in text.split("\n"))


def explained(error: TocsinError) -> CommandFailed:
    """Any error of Tocsin as a command's end."""
    if isinstance(error, CommandFailed):
        return error
    if isinstance(error, Refused):
        return _refused(error)
    if isinstance(error, Unreachable):
        advice = "Check TOCSIN_URL, and that the app runs and can be reached from this machine."
        return CommandFailed(f"The app does not answer: {error}", where="TOCSIN_URL", advice=advice, status=Exit.UNREACHABLE)
    if isinstance(error, Unreadable):
        return CommandFailed(f"This is no answer of the app: {error}", where="TOCSIN_URL", advice=_NONE_OF_OURS, status=Exit.UNREACHABLE)
    if isinstance(error, Problem):
        return CommandFailed(f"{error.title}: {error.detail}")
    return CommandFailed(str(error))


def _refused(error: Refused) -> CommandFailed:
    if not error.title and not error.code:
        # A gateway in front of it, or something else at that address.
        advice = "Try again; the app may be starting." if error.status >= 500 else _NONE_OF_OURS
        if 300 <= error.status < 400:
            advice = "It leads elsewhere: give the address itself, mostly the same with https://."
        title = f"This is no answer of the app: {error.status}, {error.detail}"
        return CommandFailed(title, where=f"TOCSIN_URL, {error.call}", advice=advice, status=Exit.UNREACHABLE)
    faults = "; ".join(f"{fault.pointer}: {fault.detail}" for fault in error.errors)
    # Of one fault the detail often is the fault.
    title = f"{error.title or 'The app said no'}: {error.detail}" + (f" ({faults})" if faults and faults not in error.detail else "")
    advice = ADVICE.get(error.status, ADVICE[500] if error.status >= 500 else "")
    return CommandFailed(title, where=error.call, advice=advice, status=Exit.REFUSED)
