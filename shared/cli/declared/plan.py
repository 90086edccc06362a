"""Compares a file with the app: each definition is sent as a dry run, and the app answers what it would store.

`tocsin tenants` changes some fields of a stored resource in the same way, and shows what a replacement drops.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import typer

from ...client.errors import Invalid, NotFound, Refused
from ...client.resources.definitions import definition
from ..exits import Exit
from ..failures import CommandFailed, to_command_failure
from ..session import CommandSession, with_query, without_fields
from ..terminal.documents import dump, parse, to_json
from ..terminal.output import printable
from .references import MASK, leaves, resolve
from .resources import Address

if TYPE_CHECKING:
    from ...client.exchange import ApiCall, ApiReply


MOST_TEXT: Final = 80
"""Characters of a value that a difference shows."""
_ABOUT_ONE: Final = frozenset({409, 413, 422})
"""Statuses of refusals that concern one definition: the app may refuse further ones."""
type Action = Literal["create", "change", "keep", "remove"]


class FieldChange(NamedTuple):
    """A field that differs; values as JSON, None for none. A secret's values are not shown."""

    field: str
    before: str | None
    after: str | None

    def text(self) -> str:
        """Return one line for people."""
        if self.before == self.after == MASK:
            return f"{self.field}: differs (its value is not shown)"
        return f"{self.field}: {_short(self.before)} -> {_short(self.after)}"


@dataclass(frozen=True, slots=True)
class Step:
    """One resource, and what becomes of it."""

    address: Address
    action: Action
    body: Any = None
    """The definition to send."""
    changes: tuple[FieldChange, ...] = ()
    shown: Mapping[str, Any] | None = None
    """The stored definition that the changes were computed from."""
    checked: bool = True
    """False if the app can check the definition only once its tenant, with its rules, or channels or calendars exist."""
    note: str = ""


class AppReply(NamedTuple):
    """A successful answer: its status, the entity tag or '', and the document."""

    status: int
    etag: str
    document: Any


def call(session: CommandSession, method: str, address: Address, body: Any = None, *, if_match: str = "", **query: str) -> AppReply:
    """Send a call about a resource. Raises `TocsinError`."""
    made = request(method, address, read_reply, body, if_match=if_match, **query)
    # Two equal PUTs or DELETEs have the effect of one, but the second is refused if the tag names what the first has replaced.
    return session.do(replace(made, repeatable=method == "GET" or (method == "PUT" and not if_match)))


def request[T](
    method: str, address: Address, read: Callable[[ApiReply], T], body: Any = None, *, if_match: str = "", **query: str
) -> ApiCall[T]:
    """Return a call about a resource."""
    from ...client import calls
    from ...client.exchange import ApiCall

    made = calls.raw(method, with_query(address.path, {**address.query, **query}))
    headers = {"if-match": if_match} if if_match else {}
    content = b"" if body is None else dump(body)
    return ApiCall(method, made.path, read, query=made.query, body=content, headers=headers)


def read_reply(reply: ApiReply) -> AppReply:
    """Read any successful answer."""
    return AppReply(reply.status, reply.headers.get("etag", ""), parse(reply.body) if reply.body else None)


def make_steps(
    session: CommandSession,
    declared: Mapping[Address, Mapping[str, Any]],
    stored: Mapping[Address, Mapping[str, Any]],
    environment: Mapping[str, str],
    progress: Callable[[], object],
) -> list[Step]:
    """Return a step for each definition of the file, in the order in which they are carried out.

    progress: is called after each. Raises `CommandFailed` for references without a value, and for all definitions that the app refuses.
    """
    resolved = {
        address: _resolve(address, body, environment, definition(address.kind, stored.get(address, {})))
        for address, body in declared.items()
    }
    if missing := [f"{address}, {each.path}: {each.name}" for address, found in resolved.items() for each in found.missing]:
        advice = "Set these variables, or correct the names. A secret that is stored already need not be set."
        raise CommandFailed("\n".join(["variables of the file are not set:", *missing]), advice=advice, status=Exit.USAGE)
    later = {(each.tenant, each.name) for each in declared if each.kind in ("channel", "calendar") and each not in stored}
    later |= {pair for each, found in resolved.items() if each.kind == "tenant" for pair in _new_audiences(each, found.document, stored)}
    steps, last = [], []
    refused: list[tuple[Address, CommandFailed]] = []
    for address, found in resolved.items():
        body, shown = found.document, stored.get(address)
        if address.kind == "tenant" and shown is not None and _gets_notices(address.tenant, body, later):
            # The notices follow once the channel exists that gets them.
            changes = differences({"notices": shown.get("notices")}, {"notices": body["notices"]})
            last.append(Step(address, "change", body, changes, checked=False))
            body = {**without_fields(body, "notices"), **({"notices": shown["notices"]} if "notices" in shown else {})}
        try:
            step = _step(session, address, body, shown, later)
        except Refused as refusal:
            if refusal.status not in _ABOUT_ONE:
                raise
            refused.append((address, to_command_failure(refusal)))
        except CommandFailed as fault:
            refused.append((address, fault))
        else:
            steps.append(replace(step, changes=tuple(_without_values(each, found.references) for each in step.changes)))
        progress()
    if refused:
        raise _all_refused(refused)
    return [*steps, *last]


def _all_refused(refused: Sequence[tuple[Address, CommandFailed]]) -> CommandFailed:
    first = refused[0][1]
    if len(refused) == 1:
        return first
    titles = [f"{address}: {failed.title}" for address, failed in refused]
    advice = "Correct these definitions, and run the command again. Nothing was changed."
    return CommandFailed("\n".join([f"the app refuses {len(refused)} definitions:", *titles]), advice=advice, status=first.status)


def _gets_notices(tenant: str, body: Mapping[str, Any], later: Set[tuple[str, str]]) -> bool:
    """Return True if a channel that does not exist yet is to get the tenant's notices."""
    notices = body.get("notices")
    return isinstance(notices, dict) and (tenant, notices.get("channel")) in later


def _resolve(address: Address, body: Mapping[str, Any], environment: Mapping[str, str], stored: Any) -> Any:
    try:
        return resolve(body, environment, stored)
    except ValueError as wrong:
        raise CommandFailed(str(wrong), where=str(address), status=Exit.USAGE) from None


def _step(session: CommandSession, address: Address, body: Any, shown: Mapping[str, Any] | None, later: set[tuple[str, str]]) -> Step:
    before = definition(address.kind, shown) if shown is not None else None
    try:
        planned = call(session, "PUT", address, body, dry_run="true")
    except NotFound:
        # Its tenant is created by an earlier step.
        if address.kind == "tenant":
            raise
        _check_names(address, body, later)
        return Step(address, "create", body, checked=False)
    except Invalid as refused:
        if address.kind == "tenant" or not _waits(refused, address.tenant, body, later):
            raise
        return Step(address, "create" if shown is None else "change", body, differences(before or {}, body), before, checked=False)
    if planned.status == 201:
        return Step(address, "create", body)
    after = definition(address.kind, planned.document)
    changes = differences(before or {}, after)
    if not changes and planned.etag:
        return Step(address, "keep", body)
    if not changes:
        # The app does not show which secret differs.
        sent = dict(leaves(body))
        secrets = [path for path, value in leaves(after) if value == MASK and sent.get(path) != MASK]
        changes = (FieldChange(f"one of {', '.join(secrets)}" if len(secrets) > 1 else "".join(secrets), MASK, MASK),)
    return Step(address, "change", body, changes, before)


def _check_names(address: Address, body: Mapping[str, Any], later: Set[tuple[str, str]]) -> None:
    """Raise `CommandFailed` if a schedule or fleet of a new tenant names a channel or calendar that the file does not declare."""
    for pointer, kind, name in _named(address.kind, body):
        if isinstance(name, str) and (address.tenant, name) not in later:
            title = f"{pointer}: the file declares no {kind} {name} for the new tenant {address.tenant}"
            raise CommandFailed(title, where=str(address), advice=f"Declare the {kind}, or correct the name.", status=Exit.REFUSED)


def _named(kind: str, body: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the names of channels and calendars in a definition: pointer, kind, name."""
    if kind == "fleet" and isinstance(notify := body.get("notify"), dict):
        yield "/notify/channel", "channel", notify.get("channel")
    if kind != "schedule":
        return
    channels = body.get("channels")
    if not isinstance(channels, list):
        yield "/channel", "channel", body.get("channel", "default")
    for number, name in enumerate(channels if isinstance(channels, list) else ()):
        yield f"/channels/{number}", "channel", name
    for field in ("on_delivered", "on_dead"):
        yield f"/{field}", "channel", body.get(field)
    exclude = body.get("exclude")
    calendars = exclude.get("calendars") if isinstance(exclude, dict) else None
    for number, name in enumerate(calendars if isinstance(calendars, list) else ()):
        yield f"/exclude/calendars/{number}", "calendar", name


def _new_audiences(tenant: Address, body: Any, stored: Mapping[Address, Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Return the tenant and each audience whose rule an earlier step changes: its channels are checked with the stored rule until then."""
    before, after = stored.get(tenant, {}).get("entra_audiences") or [], body.get("entra_audiences") or []
    changed = [rule for rule in after if isinstance(rule, dict) and rule not in before] if isinstance(after, list) else []
    return {(tenant.tenant, name) for rule in changed if isinstance(name := rule.get("audience"), str)}


def _waits(refused: Invalid, tenant: str, body: Any, later: set[tuple[str, str]]) -> bool:
    """Return True if the refusal only names channels, calendars and audiences that an earlier step creates."""
    named = [_at(body, fault.pointer) for fault in refused.errors]
    return bool(named) and all(isinstance(name, str) and (tenant, name) in later for name in named)


def _at(body: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        if isinstance(body, dict) and part in body:
            body = body[part]
        elif isinstance(body, list) and part.isdigit() and int(part) < len(body):
            body = body[int(part)]
        else:
            return None
    return body


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """Return the fields in which two definitions differ."""
    old, new = ({path: to_json(value) for path, value in leaves(each)} for each in (before, after))
    names = [*new, *(path for path in old if path not in new)]
    return tuple(FieldChange(path, old.get(path), new.get(path)) for path in names if old.get(path) != new.get(path))


def _without_values(change: FieldChange, hidden: Set[str]) -> FieldChange:
    return FieldChange(change.field, MASK, MASK) if change.field in hidden else change


def _short(value: str | None) -> str:
    if value is None:
        return "none"
    return value if len(value) <= MOST_TEXT else value[: MOST_TEXT - 3] + "..."


def carry_out(session: CommandSession, steps: Sequence[Step], done: Callable[[Step], object]) -> None:
    """Carry out the steps that change something; `done` is called after each. Raises `CommandFailed` if one has changed meanwhile."""
    for step in steps:
        if step.action == "remove":
            _remove(session, step.address)
        elif step.action != "keep":
            tag = _unchanged(session, step) if step.shown is not None else ""
            call(session, "PUT", step.address, step.body, if_match=tag)
        else:
            continue
        done(step)


def _remove(session: CommandSession, address: Address) -> None:
    try:
        call(session, "DELETE", address)
    except NotFound:
        # It was removed together with its tenant, or by another call.
        return


def _unchanged(session: CommandSession, step: Step) -> str:
    """Return the entity tag of the resource. Raises `CommandFailed` if it is no longer what the changes were computed from."""
    now = call(session, "GET", step.address)
    if definition(step.address.kind, now.document) != step.shown:
        raise CommandFailed(f"{step.address} has changed meanwhile", advice="Run the command again: it compares anew.")
    return now.etag


def change_fields(session: CommandSession, address: Address, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Any:
    """Read the definition, change it and store it, unless it has changed meanwhile: then begin again. Returns the stored resource.

    Raises `TocsinError`: `NotFound` if there is none.
    """
    from ...client.resources.changes import Stored

    def read(reply: ApiReply) -> Stored:
        found = read_reply(reply)
        return Stored(definition(address.kind, found.document), found.etag)

    def write(body: Mapping[str, Any], tag: str) -> ApiCall[AppReply]:
        return request("PUT", address, read_reply, body, if_match=tag)

    return session.change(request("GET", address, read), write, change).document


def replace_all(session: CommandSession, address: Address, body: Any, *, yes: bool, **query: str) -> Any:
    """Store a whole definition. Show the stored fields that it does not name and so drops; ask first if standard input is a terminal.

    Returns the stored resource. Raises `TocsinError`, and `CommandFailed` for a no.
    """
    try:
        now: AppReply | None = call(session, "GET", address)
    except NotFound:
        now = None
    dropped = _dropped(session, address, now.document, body, query) if now is not None else ()
    if now is None or not dropped:
        return call(session, "PUT", address, body, **query).document
    session.activity.hide()
    typer.echo(f"{address}: the new definition does not name these fields, which are reset (set changes named fields only):", err=True)
    for each in dropped:
        typer.echo(printable(f"  {each.text()}"), err=True)
    if sys.stdin.isatty():
        session.confirm(f"Replace {address}", yes)
    # What was shown is what is dropped.
    return call(session, "PUT", address, body, if_match=now.etag, **query).document


def _dropped(session: CommandSession, address: Address, stored: Any, body: Any, query: Mapping[str, str]) -> tuple[FieldChange, ...]:
    planned = call(session, "PUT", address, body, dry_run="true", **query)
    named = {path for path, _ in leaves(body)} if isinstance(body, dict) else set()
    changes = differences(definition(address.kind, stored), definition(address.kind, planned.document))
    return tuple(each for each in changes if each.before is not None and each.field not in named)
