"""Verify the semantics of a real storage account that Tocsin relies on.

Creates tables and queues with random names in the account, runs the storage conformance suite, the tests of a shard's gate, checks of the
service itself and a load of the scheduler, and removes the tables and queues again. First shows an estimate of the cost, and asks.

    python -m devhost.conformance --account NAME            with the identity that azure-identity finds: `az login` is enough
    CONFORMANCE_STORAGE='DefaultEndpointsProtocol=...' python -m devhost.conformance
    python -m devhost.conformance --azurite --minutes 0.2   a trial on an emulator, which the command starts
    python -m devhost.conformance --account NAME --only gate,service
    python -m devhost.conformance --account NAME --clean    remove the tables and queues of killed runs

The identity needs the roles Storage Table Data Contributor and Storage Queue Data Contributor on the account.

exit codes: 0 all checks hold; 1 a check failed; 2 wrong use, no access to the account, or the question was not answered with yes; 3 tables
or queues could not be removed; 128 and a signal's number: Ctrl-C (130), SIGTERM (143) or SIGHUP (129) ended the run, and everything is
removed
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Coroutine, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from devhost.azurite import Azurite, AzuriteError
from devhost.conformance.access import CONNECTION, StorageAccess
from devhost.conformance.access_check import QUICK, NoAccess, check_access, explain
from devhost.conformance.naming import Run
from devhost.conformance.parts import PARTS, Options
from devhost.conformance.removal import ROUNDS, Housekeeper, Leftovers, command
from devhost.conformance.report import Report, cost, priced, standard_report
from devhost.loops import LoopError, chosen_loop, loop_factory
from shared.core.errors import StorageError, UnsafeSettings
from shared.storage.azure.account import Service

LONGEST = 600.0
"""Minutes of the longest load: a run must have ended before `--clean` takes it for a killed one."""
STALE = timedelta(hours=24)


SIGNALLED = 128
"""Added to the number of a signal that ended the run."""


class Exit(IntEnum):
    """Exit codes, as in the help."""

    OK = 0
    FAILED = 1
    USAGE = 2
    LEFT_BEHIND = 3


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m devhost.conformance", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    account = f"storage account, opened by identity; without it, the connection string in {CONNECTION} is used"
    found.add_argument("--account", metavar="NAME", help=account)
    found.add_argument("--suffix", default="core.windows.net", help="the cloud's endpoint suffix (default: %(default)s)")
    found.add_argument("--azurite", action="store_true", help="test an emulator, which the command starts")
    found.add_argument("--minutes", type=float, default=10.0, help="minutes for which the load posts events (default: %(default)g)")
    found.add_argument("--only", metavar="PART,...", default=",".join(PARTS), help="parts to run: %(default)s")
    found.add_argument("--select", metavar="EXPRESSION", default="", help="run only these tests of the suite, as for pytest -k")
    found.add_argument("--yes", action="store_true", help="do not ask")
    found.add_argument("--json", action="store_true", help="print the report as JSON on standard output, the lines on standard error")
    found.add_argument(
        "--clean",
        metavar="RUN",
        nargs="?",
        const="",
        help="remove the tables and queues of the run with this id; without an id, those of all runs that began over "
        f"{STALE // timedelta(hours=1)} hours ago. Other names are never touched",
    )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    commands = parser()
    given = commands.parse_args(arguments)
    only = [part.strip() for part in given.only.split(",") if part.strip()]
    if unknown := [part for part in only if part not in PARTS] or ([] if only else [given.only]):
        commands.error(f"--only: {unknown[0]!r} is none of {', '.join(PARTS)}")
    if not 0 < given.minutes <= LONGEST:
        commands.error(f"--minutes must be more than 0 and at most {LONGEST:g}")
    if given.account is not None and not re.fullmatch("[a-z0-9]{3,24}", given.account):
        commands.error("--account takes the name of a storage account: 3 to 24 lower-case letters and digits, no address")
    connection = "" if given.azurite or given.account else os.environ.get(CONNECTION, "")
    if given.azurite and given.account:
        commands.error("give either --account or --azurite")
    if not (given.azurite or given.account or connection):
        commands.error(f"name the account: --account NAME, or a connection string in {CONNECTION}; --azurite tests an emulator")
    report = standard_report(json=given.json)
    try:
        run = Run.parse(given.clean) if given.clean else Run.new(datetime.now(UTC))
    except ValueError as error:
        commands.error(f"--clean: {error}")
    try:
        with _logging(report), Azurite(memory=True) if given.azurite else contextlib.nullcontext() as azurite:
            access = StorageAccess(
                connection=azurite.connection_string if azurite else connection, account=given.account or "", suffix=given.suffix, run=run
            )
            try:
                if given.clean is not None:
                    return _clean(access, report, given, run if given.clean else None)
                options = Options(tuple(only), given.minutes, given.select)
                _introduce(access, report, options, run)
                if not _agreed(given, report, "Create these tables and queues, and start?"):
                    return Exit.USAGE
                return _on_loop(_run(access, report, options, run, as_json=given.json))
            finally:
                access.close()
    except (AzuriteError, LoopError, UnsafeSettings, NoAccess) as error:
        print(f"error: {error}", file=sys.stderr)
        return Exit.USAGE
    except KeyboardInterrupt:
        return SIGNALLED + signal.SIGINT


class _ReportHandler(logging.Handler):
    """Shows the app's warnings among the report's lines."""

    def __init__(self, report: Report) -> None:
        super().__init__(logging.WARNING)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        self._report.text(f"log      {record.levelname} {record.getMessage()}")


@contextlib.contextmanager
def _logging(report: Report) -> Iterator[None]:
    # azure-identity logs every credential that it has tried; the error at the end is enough.
    handlers: dict[str, logging.Handler] = {"shared": _ReportHandler(report), "azure": logging.NullHandler()}
    for name, handler in handlers.items():
        logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        for name, handler in handlers.items():
            logging.getLogger(name).removeHandler(handler)


def _on_loop[T](work: Coroutine[object, object, T]) -> T:
    """Run `work` on the event loop that the app runs on."""
    with asyncio.Runner(loop_factory=loop_factory(chosen_loop(os.environ))) as runner:
        return runner.run(work)


def _introduce(access: StorageAccess, report: Report, options: Options, run: Run) -> None:
    expected: dict[Service, float] = {"table": 10, "queue": 10}
    for part in options.only:
        for service, count in PARTS[part].expect(options).items():
            expected[service] += count
    minutes = sum(PARTS[part].minutes(options) for part in options.only)
    report.facts |= {"run": run.id, "table": access.address("table"), "queue": access.address("queue"), "parts": list(options.only)}
    report.facts["estimate"] = {**expected, "usd": round(cost(expected), 6), "minutes": round(minutes, 1)}
    how = "identity" if access.identity else "emulator" if access.emulated else "connection string"
    report.text(f"account  {access.address('table')} and {access.address('queue')} ({how})")
    report.text(f"run      {run.id}: tables {run.tables}*, queues {run.queues}*; all are removed at the end")
    report.text(f"parts    {', '.join(PARTS[part].title for part in options.only)}")
    report.text(f"estimate {priced(expected)} at list prices; {minutes:.0f} minutes at 30 ms a request")


def _agreed(given: argparse.Namespace, report: Report, question: str) -> bool:
    """Ask, unless `--yes` was given."""
    if given.yes:
        return True
    if not sys.stdin.isatty():
        report.text("Nothing was done: standard input is not a terminal; give --yes to start without a question.")
        return False
    print(f"{question} [y/N] ", end="", file=report.output, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    report.text("Nothing was done.")
    return False


async def _run(access: StorageAccess, report: Report, options: Options, run: Run, *, as_json: bool) -> int:
    """Run the parts, remove everything, and report the result."""
    signals = Signals()
    try:
        code = await signals.until(_parts(access, report, options))
    except Exception as error:
        report.end_progress()
        if not isinstance(error, NoAccess) or error.created:
            await signals.until(_remove(access, report, run, quick=isinstance(error, NoAccess)))
        raise
    report.end_progress()
    if code > SIGNALLED:
        report.text("ended    by a signal; another signal ends the removal too")
    if await signals.until(_remove(access, report, run)) != Exit.OK:
        code = Exit.LEFT_BEHIND
    counted = access.count()
    report.facts["operations"] = {"table": counted["table"], "queue": counted["queue"], "usd": round(cost(counted), 6)}
    report.facts["exit"] = int(code)
    report.text(f"counted  {priced(counted)} at list prices")
    report.text(_verdict(report, code))
    if as_json:
        print(json.dumps(report.document(), indent=2))
    return code


def _verdict(report: Report, code: int) -> str:
    if code > SIGNALLED:
        return "not finished"
    differences = sum(line.outcome == "note" for line in report.lines)
    return f"checks that failed: {report.failed}" if report.failed else f"all checks hold; notes: {differences}"


async def _parts(access: StorageAccess, report: Report, options: Options) -> int:
    await check_access(access)
    report.add("access", "ok", "tables and queues can be listed and created")
    for part in options.only:
        try:
            await PARTS[part].run(access, report, options)
        except StorageError as error:
            report.add(PARTS[part].title, "FAILED", f"the part could not go on: {error}")
    return Exit.FAILED if report.failed else Exit.OK


async def _remove(access: StorageAccess, report: Report, run: Run, *, quick: bool = False) -> int:
    """Remove the run's tables and queues; name those that are left and the command that removes them. quick: the account may not answer."""
    housekeeper = Housekeeper(access, QUICK if quick else None)
    left = Leftovers([f"{run.tables}*"], [f"{run.queues}*"])
    try:
        removed, left = await housekeeper.remove_run(run, rounds=1 if quick else ROUNDS)
        report.facts["removed"] = removed
        if removed or not quick:
            report.text(f"removed  {removed} tables and queues")
    finally:
        # Also after a second signal. If the account cannot be listed, nothing was created in it.
        names = [name for name in (*left.tables, *left.queues) if not (quick and name.endswith("*"))]
        report.facts["left"] = names
        if names:
            report.text(f"LEFT     {', '.join(names)}")
            report.text(f"         remove them with: {command(access, run)}")
        await housekeeper.close()
    return Exit.LEFT_BEHIND if names else Exit.OK


def _clean(access: StorageAccess, report: Report, given: argparse.Namespace, run: Run | None) -> int:
    """Remove the tables and queues of former runs."""
    found = _on_loop(_find(access, run))
    if run is None:
        now = datetime.now(UTC)
        runs = [each for each in found.runs if each.began is not None and now - each.began > STALE]
        if young := len(found.runs) - len(runs):
            report.text(f"{young} later runs are not removed, because they may still be running; --clean RUN removes one by its id")
        found = found.of(runs)
    for each in found.runs:
        part = found.of([each])
        report.text(f"run {each.id}, began {each.began:%Y-%m-%d %H:%M} UTC: {len(part.tables)} tables, {len(part.queues)} queues")
    if not found:
        report.text("Former runs have left no tables or queues.")
        return Exit.OK
    if not _agreed(given, report, "Remove them?"):
        return Exit.USAGE

    async def remove() -> int:
        return max([await _remove(access, report, each) for each in found.runs])

    return _on_loop(remove())


async def _find(access: StorageAccess, run: Run | None) -> Leftovers:
    housekeeper = Housekeeper(access, QUICK)
    try:
        return await housekeeper.find(run)
    except StorageError as error:
        raise NoAccess(explain(access, "table", str(error))) from None
    finally:
        await housekeeper.close()


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Ends the present work in order when a signal arrives."""

    async def until(self, work: Coroutine[object, object, int]) -> int:
        """Return the result of `work`, or the exit code of the signal that ended it."""
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        received: list[int] = []

        def end(number: int) -> None:
            received.append(number)
            task.cancel()

        for number in _SIGNALS:
            loop.add_signal_handler(number, end, number)
        try:
            return await task
        except asyncio.CancelledError:
            if not received:
                raise
            return SIGNALLED + received[0]
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


if __name__ == "__main__":
    sys.exit(main())
