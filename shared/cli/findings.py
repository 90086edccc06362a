"""Findings of `doctor` and the `check-` commands, and how they are printed: what was seen, what it means and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..core.readable import count_of
from .terminal.output import STYLES, duration_text

if TYPE_CHECKING:
    from .session import CommandSession
    from .terminal.output import Screen


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


type Result = Literal["ok", "look", "bad", "unseen"]


@dataclass(frozen=True, slots=True)
class Line:
    """The judgement of one check. result: `bad` is a fault, `look` a thing to know, `unseen` could not be judged. means, do: empty if the
    result is `ok`."""

    check: str
    result: Result
    found: str
    means: str = ""
    do: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """The facts of the finding for programs, by name; units are part of the names."""

    def document(self) -> dict[str, Any]:
        """Return the line for programs."""
        advice = {"means": self.means, "do": self.do} if self.means else {}
        return {"check": self.check, "result": self.result, "found": self.found, **advice, **self.figures}


def faults_of(lines: Iterable[Line]) -> int:
    """Return the number of bad lines."""
    return sum(line.result == "bad" for line in lines)


def draw_lines(screen: Screen, lines: Sequence[Line], seconds: float, place: str) -> None:
    """Draw a table of the lines, the advice of those that are not ok, and a last line. Lines with the same advice share it."""
    screen.table(("check", "result", "found"), [(line.check, line.result, line.found) for line in lines])
    together: dict[tuple[str, str, str, str], list[str]] = {}
    for line in lines:
        if line.result != "ok":
            together.setdefault((line.result, line.found, line.means, line.do), []).append(line.check)
    for (result, found, means, do), checks in together.items():
        screen.gap()
        screen.line(f"{result}: {', '.join(checks)}: {found}", style=STYLES.get(result, ""))
        screen.fields({"  means": means, "  do": do})
    screen.gap()
    took = f"{duration_text(round(seconds) * 1000)}, {place}"
    faults, unseen = faults_of(lines), sum(line.result == "unseen" for line in lines)
    rest = f"; {count_of(unseen, 'check')} could not be judged" if unseen else ""
    if faults:
        screen.line(f"{count_of(faults, 'fault')}{rest} ({took})", style="red")
    else:
        screen.line(f"no fault was found{rest} ({took})", style="" if unseen else "green")
