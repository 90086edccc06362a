"""The findings of `doctor` commands, and how they are printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from .terminal.output import STYLES

if TYPE_CHECKING:
    from .session import CommandSession

type Severity = Literal["bad", "look"]


class Finding(NamedTuple):
    """A finding. how: `bad` if it keeps the fleet or the tenant from its work, `look` if a person should know. do: the next step, usually
    a command. run: commands to paste, in their order."""

    how: Severity
    what: str
    means: str
    do: str
    run: tuple[str, ...] = ()


def bad_first(found: Sequence[Finding]) -> list[Finding]:
    """Return the findings, bad ones first."""
    return sorted(found, key=lambda finding: finding.how != "bad")


def print_findings(session: CommandSession, findings: Sequence[Finding], nothing: str) -> None:
    """Print findings: with --json a document each, else a block each, or `nothing` if there are none."""
    if session.json:
        for each in findings:
            session.emit({name: value for name, value in each._asdict().items() if name != "run" or value})
        return
    if not findings:
        session.screen.line(nothing, style="dim")
    for number, each in enumerate(findings):
        if number:
            session.screen.gap()
        session.screen.line(f"{each.how}: {each.what}", style=STYLES[each.how])
        session.screen.fields({"  means": each.means, "  do": each.do})
        for command in each.run:
            session.screen.line(f"  {command}")
