"""`tocsin import`: make a file for `tocsin apply` from the definitions of another scheduler."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ...core.readable import count_of
from ..commands import JsonOption
from ..exits import Exit
from ..failures import CommandFailed
from ..help import add_command

if TYPE_CHECKING:
    from .carried import Carried, Source, Target

type Format = Literal["function-json", "crontab", "eventbridge", "cloud-tasks"]
_FROM_HELP: Final = "Format of the files. eventbridge: output of aws scheduler get-schedule; cloud-tasks: JSON output of gcloud tasks."
_TENANT_HELP: Final = "Tenant that the file declares. Applying the file to a tenant that exists resets its other settings."
_TO_HELP: Final = "Address of the http channel that the file declares. Default: the variable RECEIVER_URL, when the file is applied."
_CHANNEL_HELP: Final = "Name of the channel. Without --to it is one that the tenant has."
_EVENTS_HELP: Final = "Write entries that happen only once to this file, for tocsin events import."
_HEAD: Final = "# By tocsin import. See what it changes with: tocsin apply -f FILE --dry-run\n"
_URL: Final = "${env:RECEIVER_URL}"


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "import", import_, no_args_is_help=True)


def import_(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files to read; - is standard input.", show_default=False)],
    from_: Annotated[
        Literal["function-json", "crontab", "eventbridge", "cloud-tasks"], typer.Option("--from", help=_FROM_HELP, show_default=False)
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Write this file, not standard output.")] = "",
    events: Annotated[str, typer.Option("--events", metavar="FILE", help=_EVENTS_HELP)] = "",
    tenant: Annotated[str, typer.Option(help=_TENANT_HELP)] = "imported",
    channel: Annotated[str, typer.Option(help=_CHANNEL_HELP)] = "",
    to: Annotated[str, typer.Option("--to", metavar="URL", help=_TO_HELP)] = "",
    timezone: Annotated[str, typer.Option(help="Time zone of cron expressions that name none, such as Europe/Berlin.")] = "",
    json: JsonOption = False,
) -> None:
    """Make a tocsin.yaml from the schedules of Azure Functions, cron, EventBridge or Cloud Tasks.

    Standard error names what could not be carried over; the exit code is 1 if an entry was left out. Nothing is sent anywhere.

    Examples:
        tocsin import --from function-json */function.json --to https://shop.example/hook -o tocsin.yaml
        tocsin import --from crontab /etc/crontab --timezone Europe/Berlin
        tocsin import --from cloud-tasks queue.json tasks.json --events tasks.ndjson -o tocsin.yaml
    """
    from ..declared.export import write_private
    from ..declared.yaml_text import to_yaml
    from ..terminal.documents import to_json
    from .carried import Target

    target = Target(tenant, channel or "default", to or ("" if channel else _URL), timezone, time.time())
    carried = carry(from_, [_read(name) for name in files], target)
    if carried.events and not events:
        for each in carried.events:
            carried.lost(f"event {each['id']}", f"it happens once, at {each['due']}", "Give --events FILE.")
    try:
        if events:
            write_private(Path(events), "".join(to_json(each) + "\n" for each in carried.events))
        text = to_json(carried.document()) + "\n" if json else _HEAD + to_yaml(carried.document())
        if output:
            write_private(Path(output), text)
        else:
            typer.echo(text, nl=False)
    except OSError as wrong:
        where = str(wrong.filename or output or events)
        raise CommandFailed(f"the file cannot be written: {wrong.strerror}", where=where, status=Exit.USAGE) from None
    _report(carried, as_json=json)
    if any(note.lost for note in carried.notes):
        raise typer.Exit(Exit.FAILED)


def carry(form: Format, sources: list[Source], target: Target) -> Carried:
    """Return what was carried over. Raises `CommandFailed` for files that cannot be read as the format."""
    from . import cloud_tasks, crontab, eventbridge, function_json
    from .carried import MAX_BYTES, Carried

    if (size := sum(len(source.text) for source in sources)) > MAX_BYTES:
        title = f"the files have {size:,} characters, and may have {MAX_BYTES:,}"
        raise CommandFailed(title, where="FILE", advice="Split the input.", status=Exit.USAGE)
    carried = Carried(target)
    carry_all = {
        "function-json": function_json.carry,
        "crontab": crontab.carry,
        "eventbridge": eventbridge.carry,
        "cloud-tasks": cloud_tasks.carry,
    }
    try:
        carry_all[form](sources, carried)
    except ValueError as wrong:
        raise CommandFailed(str(wrong), where="FILE", advice=f"Give what --from {form} reads; --help says it.", status=Exit.USAGE) from None
    return carried


def _read(name: str) -> Source:
    from .carried import MAX_BYTES, Source

    try:
        if name == "-":
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with open(name, "rb") as file:
                raw = file.read(MAX_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as wrong:
        raise CommandFailed(f"the file cannot be read: {wrong.strerror}", where=name, status=Exit.USAGE) from None
    except ValueError:
        raise CommandFailed("the file is not UTF-8", where=name, advice="Save it as UTF-8.", status=Exit.USAGE) from None
    if len(raw) > MAX_BYTES:
        raise CommandFailed(f"the file has more than {MAX_BYTES:,} bytes", where=name, advice="Split it.", status=Exit.USAGE)
    return Source("standard input" if name == "-" else name, text)


def _report(carried: Carried, *, as_json: bool) -> None:
    """Say on standard error what was carried over, and what was not."""
    from ..terminal.documents import to_json
    from ..terminal.output import printable

    if as_json:
        for note in carried.notes:
            print(to_json(note._asdict()), file=sys.stderr)
        return
    made = [count_of(len(carried.schedules), "schedule")]
    made += [count_of(len(carried.channels), "channel")] if carried.channels else []
    made += [count_of(len(carried.events), "event")] if carried.events else []
    print(f"tocsin: {', '.join(made)} of {count_of(carried.entries, 'entry', 'entries')}", file=sys.stderr)
    for note in sorted(carried.notes, key=lambda note: not note.lost):
        kind = "left out" if note.lost else "not carried over"
        print(f"tocsin: {printable(note.where)}: {kind}: {printable(note.what)}\n  do: {printable(note.do)}", file=sys.stderr)
