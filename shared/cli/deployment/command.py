"""`tocsin check-deployment`: the command and its screen."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from ..commands import add_commands
from ..exits import SIGNALLED, Exit
from ..findings import Line, draw_lines, faults_of
from ..session import CommandSession

if TYPE_CHECKING:
    from .plan import FlexPlan, Plan
    from .run import Run
    from .stage import Stage

_QUEUE_HELP = (
    "Address of the home account's queues, or of one queue, with a shared access signature. "
    "By default the service names it, and az login opens it. Also TOCSIN_QUEUE_URL."
)
_FLEX_HELP = "Also measure what only Azure can show, in 40 minutes: idle instances, cold starts, the timer's lateness."
_QUICK_HELP = "Shorten all waits to seconds, for a local host. Says nothing about idle instances."
_EXPECT_HELP = "Version that the service must have, such as 0.2.0. By default, that of this command."
QUEUE_VARIABLE: Final = "TOCSIN_QUEUE_URL"


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_commands(app, {"check-deployment": check_deployment}, tenant=False)


def check_deployment(
    session: CommandSession,
    queue_url: Annotated[str, typer.Option("--queue-url", help=_QUEUE_HELP, show_default=False)] = "",
    flex: Annotated[bool, typer.Option("--flex", help=_FLEX_HELP)] = False,
    expect: Annotated[str, typer.Option("--expect", metavar="VERSION", help=_EXPECT_HELP, show_default=False)] = "",
    quick: Annotated[bool, typer.Option("--quick", help=_QUICK_HELP)] = False,
) -> None:
    """Check a deployed service in six minutes: punctuality, its two clocks, versions, idle instances. Needs an admin key.

    It creates a tenant and a queue in the home account, has events delivered there, and removes both, also after Ctrl-C. No public
    receiver is needed. The queue is read with az login, whose user needs the role Storage Queue Data Contributor.

    Exit code: 0 no fault was found, 1 a line is bad.

    Examples:
        tocsin check-deployment --url https://app.example
        tocsin check-deployment --flex --json
        tocsin check-deployment --url http://localhost:7071 --quick
    """
    from ...core.version import version
    from .flex_rules import judge_flex
    from .mailbox import parse_address
    from .plan import FLEX_SHORT, SHORT, FlexPlan, Plan
    from .rules import judge
    from .run import Run
    from .seen import Seen
    from .stage import Stage, require_admin

    plan, flex_plan = (SHORT, FLEX_SHORT) if quick else (Plan(), FlexPlan())
    seen = Seen(client_version=version(), expected_version=expect or version())
    run = Run(session, seen, _progress(session))
    with session.activity.during():
        run.first_look()
        require_admin(session)
        given = queue_url or os.environ.get(QUEUE_VARIABLE, "")
        stage = Stage(session, parse_address(given or _address_of(session)))
        try:
            _check(run, stage, plan, flex_plan if flex else None)
        finally:
            stage.close()
    lines = [*judge(seen, plan), *(judge_flex(seen, flex_plan) if flex and seen.probes else ())]
    _show(session, lines, run.seconds)
    if faults_of(lines):
        raise typer.Exit(Exit.FAILED)


def _address_of(session: CommandSession) -> str:
    """Return the address of the home account's queues, as the service names it. Raises `CommandFailed`."""
    from ..failures import CommandFailed

    address = session.get("storage").get("queues")
    if not address:
        advice = "Give --queue-url, such as --queue-url https://NAME.queue.core.windows.net."
        title = "the service does not name its storage account; it has an older version"
        raise CommandFailed(title, where="--queue-url", advice=advice, status=Exit.USAGE)
    return str(address)


def _check(run: Run, stage: Stage, plan: Plan, flex_plan: FlexPlan | None) -> None:
    """Create the stage, run the checks, remove the stage whatever happens. What cannot be removed is kept as a finding."""
    from .mailbox import MailboxRefused, MailboxUnreachable
    from .run import measure

    over = False
    try:
        with _signals_end_the_run():
            try:
                stage.create()
            except (MailboxRefused, MailboxUnreachable) as refused:
                run.seen.queue_error, run.seen.by_login = str(refused), stage.mailbox.by_login
                run.seen.queue_status = refused.status if isinstance(refused, MailboxRefused) else 0
            else:
                run.seen.left += stage.remove_forgotten()
                run.standard(stage, plan)
                if flex_plan is not None:
                    measure(run, stage, flex_plan)
                if run.mail_error:
                    run.seen.queue_error = run.mail_error
            run.seen.storage_offset = stage.mailbox.offset
        over = True
    finally:
        _remove(run, stage, interrupted=not over)


def _remove(run: Run, stage: Stage, *, interrupted: bool) -> None:
    run.progress("removing the tenant and the queue")
    try:
        left = stage.remove(run.open_events)
    except BaseException:
        _tell_left([f"tenant {stage.tenant}", f"queue {stage.mailbox.name}"])
        raise
    run.seen.left += left
    if interrupted:
        # No table follows.
        _tell_left(left)


def _tell_left(left: Sequence[str]) -> None:
    for each in left:
        typer.echo(f"tocsin: not removed: {each}", err=True)


@contextmanager
def _signals_end_the_run() -> Iterator[None]:
    """Let a signal that would end the process raise SystemExit, so that the tenant and the queue are removed."""

    def end(number: int, frame: Any) -> NoReturn:
        raise SystemExit(SIGNALLED + number)

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {name: signal.signal(getattr(signal, name), end) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def _progress(session: CommandSession) -> Callable[[str], None]:
    """Return a function that shows what the run does: on the terminal's last line, or as lines of standard error."""
    if sys.stderr.isatty():
        return session.activity.update
    said = ""

    def say(text: str) -> None:
        nonlocal said
        # The number that has arrived changes each second.
        subject = text.rpartition(": ")[2]
        if subject != said:
            typer.echo(f"tocsin: {subject}", err=True)
        said = subject

    return say


def _show(session: CommandSession, lines: Sequence[Line], seconds: float) -> None:
    if session.json:
        checks = [line.document() for line in lines]
        session.emit({"url": session.app.url, "seconds": round(seconds), "faults": faults_of(lines), "checks": checks})
        return
    draw_lines(session.screen, lines, seconds, session.app.url)
