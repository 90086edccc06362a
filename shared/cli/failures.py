"""What a command says on standard error when it fails: what is wrong, where, and what to do. Never a key."""

from __future__ import annotations

import sys
from typing import Final

from ..errors import Problem, TocsinError
from .exits import Exit

ADVICE: Final = {
    401: "Give a valid key in TOCSIN_KEY; an administrator makes one with POST /tenants/{tenant}/keys.",
    403: "Take a key that has the scope this needs, and that is not bound to another fleet or node.",
    404: "Check the names, and that TOCSIN_URL is the app's address without /api.",
    409: "Look at it again: something about it is another than you think.",
    422: "Correct what is named, and try again; --help tells what is taken.",
    429: "Try again later; the limit is the tenant's.",
}


class CommandFailed(TocsinError):
    """Ends a command. title: what is wrong, a sentence. where: the setting, file or call. advice: what to do."""

    def __init__(self, title: str, *, where: str = "", advice: str = "", status: int = Exit.FAILED) -> None:
        super().__init__(title)
        self.title, self.where, self.advice, self.status = title, where, advice, status

    def text(self) -> str:
        """Up to three lines."""
        more = {"where": self.where, "do": self.advice}
        return "\n".join([f"tocsin: {self.title}", *(f"  {name}: {said}" for name, said in more.items() if said)])


def explained(error: TocsinError) -> CommandFailed:
    """Any error of Tocsin as a command's end."""
    if isinstance(error, CommandFailed):
        return error
    # The client is on no command's way that has not loaded it.
    client = sys.modules.get(f"{__package__.rpartition('.')[0]}.client.errors")
    if client is not None and isinstance(error, client.Refused):
        faults = "; ".join(f"{fault.pointer}: {fault.detail}" for fault in error.errors)
        # Of one fault the detail often is the fault.
        title = f"{error.title or 'The app said no'}: {error.detail}" + (f" ({faults})" if faults and faults not in error.detail else "")
        return CommandFailed(title, where=error.call, advice=ADVICE.get(error.status, ""), status=Exit.REFUSED)
    if client is not None and isinstance(error, client.Unreachable | client.Unreadable):
        advice = "Check TOCSIN_URL, and that the app runs and can be reached from this machine."
        return CommandFailed(f"The app does not answer: {error}", where="TOCSIN_URL", advice=advice, status=Exit.UNREACHABLE)
    if isinstance(error, Problem):
        return CommandFailed(f"{error.title}: {error.detail}")
    return CommandFailed(str(error))
