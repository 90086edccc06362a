"""`tocsin tenants`: tenants, their keys and their channels. Needs an admin key."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ...client.resources.definitions import merged
from ..commands import Yes, add_commands
from ..declared.plan import change_fields, replace_all
from ..declared.resources import Address
from ..exits import Exit
from ..failures import CommandFailed
from ..session import CommandSession, api_path, parse_json_option, parse_pairs
from ..terminal.times import duration_option, time_option

_HELP = "Manage tenants, their keys and their channels. Needs an admin key."
_SETTINGS_HELP = 'Settings of the tenant as JSON, such as \'{"limits": {"events_per_second": 100}}\', or @FILE.'
_SET_HELP = 'The settings to change as JSON, such as \'{"limits": {"events_per_second": 100}}\', or @FILE.'
_OBJECT_ADVICE = """Give a JSON object, such as '{"limits": {"concurrency": 5}}'."""
_INHERIT_HELP = "Take over the events that a deleted tenant of this name has left."
_CHANNEL_HELP = "Fields to change as JSON or @FILE; null resets one. `per_key` is replaced as a whole."
_AUDIENCE_HELP = "With --to: send a token of Entra for this audience with each delivery, such as api://orders."
Name = Annotated[str, typer.Argument(metavar="TENANT", help="Name of the tenant, such as shop.", show_default=False)]
Channel = Annotated[str, typer.Argument(help="Name of the channel, such as default.", show_default=False)]
KeyPrefix = Annotated[str, typer.Argument(help="Prefix of the key, such as tsn_3ijpvmo2. keys list shows it.", show_default=False)]
_SCOPE_HELP = "Scope of the key: events, fleets, agent, read, metrics or admin. Repeatable."
Scopes = Annotated[list[str], typer.Option("--scope", help=_SCOPE_HELP, show_default=False)]
Settings = Annotated[str, typer.Option("--settings", help=_SETTINGS_HELP)]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    add_commands(group, {"put": put, "set": set_, "get": get, "list": list_, "delete": delete}, tenant=False)
    keys = typer.Typer(no_args_is_help=True, help="Create, list and revoke keys of a tenant.")
    add_commands(keys, {"create": create_key, "list": list_keys, "revoke": revoke_key}, tenant=False)
    group.add_typer(keys, name="keys")
    channels = typer.Typer(no_args_is_help=True, help="Manage channels of a tenant: where its events are delivered.")
    add_commands(channels, {"list": list_channels}, tenant=False, watch=True)
    add_commands(channels, {"put": put_channel, "set": set_channel, "get": get_channel, "delete": delete_channel}, tenant=False)
    add_commands(channels, {"rotate": rotate, "pause": pause, "resume": resume}, tenant=False)
    group.add_typer(channels, name="channels")
    app.add_typer(group, name="tenants")


def put(
    session: CommandSession,
    name: Name,
    settings: Settings = "{}",
    inherit: Annotated[bool, typer.Option("--inherit", help=_INHERIT_HELP)] = False,
    yes: Yes = False,
) -> None:
    """Create a tenant, or replace all its settings: `set` changes some of them.

    Stored settings that are reset are listed. On a terminal it asks first.

    Examples:
        tocsin tenants put shop
        tocsin tenants put shop --settings '{"limits": {"events_per_second": 100}}'
    """
    body = parse_json_option(settings, "--settings")
    query = {"inherit": "true"} if inherit else {}
    session.print_document(replace_all(session, Address("tenant", name, name), body, yes=yes, **query))


def set_(
    session: CommandSession, name: Name, settings: Annotated[str, typer.Option("--settings", help=_SET_HELP, show_default=False)]
) -> None:
    """Change the named settings of a tenant, and keep all others. Null resets a setting. `retry` is replaced as a whole.

    Examples:
        tocsin tenants set shop --settings '{"limits": {"events_per_second": 100}}'
        tocsin tenants set shop --settings '{"notices": null}'
    """
    named = _object(parse_json_option(settings, "--settings"))
    session.print_document(change_fields(session, Address("tenant", name, name), lambda stored: merged(stored, named)))


def _object(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict) or not given:
        raise CommandFailed("name at least one field", where="--settings", advice=_OBJECT_ADVICE, status=Exit.USAGE)
    return given


def get(session: CommandSession, name: Name) -> None:
    """Show a tenant.

    Examples:
        tocsin tenants get shop
    """
    session.print_document(session.get(api_path("tenants", name)))


def list_(session: CommandSession) -> None:
    """List all tenants.

    Examples:
        tocsin tenants list
    """

    def row(each: dict[str, Any]) -> Sequence[Any]:
        return each["name"], each.get("durability") or "standard", _limits(each.get("limits")), each["created"]

    session.print_list(session.items("tenants"), ("tenant", "durability", "limits", "created"), row, empty="no tenants")


def delete(session: CommandSession, name: Name, yes: Yes = False) -> None:
    """Delete a tenant with its keys, channels and fleets. Its open events become dead letters.

    Examples:
        tocsin tenants delete shop --yes
    """
    session.confirm(f"Delete the tenant {name}, its keys, channels and fleets", yes)
    session.send("DELETE", api_path("tenants", name))
    session.print_result({"tenant": name, "deleted": True}, f"tenant {name} is deleted")


def create_key(
    session: CommandSession,
    name: Name,
    scope: Scopes,
    fleet: Annotated[str | None, typer.Option(help="With scope agent: the only fleet that the key may act for, such as web.")] = None,
    node: Annotated[str | None, typer.Option(help="With scope agent: the only node that the key may act for, such as s7.")] = None,
    note: Annotated[str | None, typer.Option(help="Purpose of the key, such as 'the web shop'.")] = None,
    expires: Annotated[str | None, time_option("When the key ends, such as 2027-01-01T00:00:00Z.")] = None,
) -> None:
    """Create a key. Only this call shows it.

    The key is the only text on standard output, so that a script can pass it directly to a secret store.

    Examples:
        tocsin tenants keys create shop --scope events --note 'the web shop'
        tocsin tenants keys create shop --scope agent --fleet web --node s7
        tocsin tenants keys create shop --scope read --expires 2027-01-01T00:00:00Z
    """
    given = {"scopes": scope, "fleet": fleet, "node": node, "note": note, "expires": expires}
    made = session.send("POST", api_path("tenants", name, "keys"), {key: value for key, value in given.items() if value is not None})
    if session.json:
        session.emit(made)
        return
    typer.echo(f"tocsin: key {made['prefix']} of {name} for {', '.join(made['scopes'])}; it is not shown again", err=True)
    session.screen.line(made["key"])


def list_keys(session: CommandSession, name: Name) -> None:
    """List the keys of a tenant by prefix. The keys themselves are never shown.

    Examples:
        tocsin tenants keys list shop
    """

    def row(each: dict[str, Any]) -> Sequence[Any]:
        return each["prefix"], ", ".join(each["scopes"]), *(each.get(name) for name in given)

    given = ("fleet", "node", "note", "created", "expires", "last_used")
    columns = ("prefix", "scopes", "fleet", "node", "note", "created", "expires", "last used")
    session.print_list(session.items(api_path("tenants", name, "keys")), columns, row, empty="no keys")


def revoke_key(session: CommandSession, name: Name, prefix: KeyPrefix, yes: Yes = False) -> None:
    """Revoke a key. It stops working within seconds.

    Examples:
        tocsin tenants keys revoke shop tsn_3ijpvmo2 --yes
    """
    session.confirm(f"Revoke the key {prefix} of {name}", yes)
    session.send("DELETE", api_path("tenants", name, "keys", prefix))
    session.print_result({"prefix": prefix, "revoked": True}, f"key {prefix} is revoked")


def put_channel(
    session: CommandSession,
    name: Name,
    channel: Channel,
    to: Annotated[str | None, typer.Option("--to", metavar="URL", help="Address for an http channel: https://shop.example/hook.")] = None,
    fleet: Annotated[str | None, typer.Option(help="Fleet whose servers get the deliveries: each the keys of its partitions.")] = None,
    path: Annotated[str | None, typer.Option(help="With --fleet: path of the deliveries at each server, such as /events.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", help="With --to or --fleet: header as NAME=VALUE.")] = None,
    timeout: Annotated[str | None, duration_option("With --to or --fleet: longest time for an answer, such as 15s.")] = None,
    entra_audience: Annotated[str | None, typer.Option("--entra-audience", help=_AUDIENCE_HELP)] = None,
    queue: Annotated[str | None, typer.Option(help="Name of the storage queue of a queue channel, such as orders.")] = None,
    account: Annotated[str | None, typer.Option(help="With --queue: name of another storage account.")] = None,
    settings: Annotated[str | None, typer.Option("--settings", help="The whole channel as JSON or @FILE, instead of the options.")] = None,
    yes: Yes = False,
) -> None:
    """Create a channel, or replace it: `set` changes some of its fields.

    The secret of a new http or fleet channel is shown only by this call. Stored fields that are reset are listed. On a terminal it asks
    first.

    Examples:
        tocsin tenants channels put shop default --to https://shop.example/hook --header x-team=blue
        tocsin tenants channels put shop owners --fleet search --path /events
        tocsin tenants channels put shop archive --queue orders
    """
    if sum(each is not None for each in (to, fleet, queue, settings)) != 1:
        advice = "For example: --to https://shop.example/hook, or --settings JSON for types such as kafka, eventgrid and servicebus."
        raise CommandFailed("give exactly one of --to, --fleet, --queue and --settings", advice=advice, status=Exit.USAGE)
    if settings is not None:
        body = parse_json_option(settings, "--settings")
    elif to is not None or fleet is not None:
        headers = {"headers": parse_pairs(header, "--header")} if header else {}
        body = {"type": "http", "url": to, **headers} if to is not None else {"type": "fleet", "fleet": fleet, **headers}
        given = {"timeout": timeout, "entra_audience": entra_audience, "path": path}
        body |= {name: value for name, value in given.items() if value is not None}
    else:
        body = {"type": "queue", "queue": queue, **({"account": account} if account is not None else {})}
    session.print_document(replace_all(session, Address("channel", name, channel), body, yes=yes))


def set_channel(
    session: CommandSession,
    name: Name,
    channel: Channel,
    to: Annotated[str | None, typer.Option("--to", metavar="URL", help="New address of an http channel.")] = None,
    fleet: Annotated[str | None, typer.Option(help="Another fleet of a fleet channel, such as search.")] = None,
    path: Annotated[str | None, typer.Option(help="Path of a fleet channel's deliveries, such as /events.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", help="Header to add or change, as NAME=VALUE. Repeatable.")] = None,
    timeout: Annotated[str | None, duration_option("Longest time for an answer, such as 15s.")] = None,
    entra_audience: Annotated[str | None, typer.Option("--entra-audience", help="Audience of the token, such as api://orders.")] = None,
    queue: Annotated[str | None, typer.Option(help="Another storage queue of a queue channel, such as orders.")] = None,
    account: Annotated[str | None, typer.Option(help="Storage account of a queue channel.")] = None,
    settings: Annotated[str | None, typer.Option("--settings", help=_CHANNEL_HELP)] = None,
) -> None:
    """Change the named fields of a channel, and keep all others: its type, secret, headers and limits.

    Examples:
        tocsin tenants channels set shop default --to https://shop.example/new
        tocsin tenants channels set shop default --settings '{"limits": {"concurrency": 5}, "long_work": null}'
    """
    texts = {"url": to, "fleet": fleet, "path": path, "timeout": timeout, "entra_audience": entra_audience, "queue": queue}
    named: dict[str, Any] = {field: value for field, value in {**texts, "account": account}.items() if value is not None}
    named |= {"headers": parse_pairs(header, "--header")} if header else {}
    if settings is not None:
        named = {**_object(parse_json_option(settings, "--settings")), **named}
    if not named:
        raise CommandFailed("name at least one field", advice="For example: --to https://shop.example/new", status=Exit.USAGE)
    session.print_document(change_fields(session, Address("channel", name, channel), lambda stored: merged(stored, named)))


def get_channel(session: CommandSession, name: Name, channel: Channel) -> None:
    """Show a channel.

    Examples:
        tocsin tenants channels get shop default
    """
    session.print_document(session.get(api_path("tenants", name, "channels", channel)))


def list_channels(session: CommandSession, name: Name) -> None:
    """List the channels of a tenant, and the state of deliveries to them.

    Examples:
        tocsin tenants channels list shop
        tocsin tenants channels list shop --watch 5
    """

    def row(each: dict[str, Any]) -> Sequence[Any]:
        flow = each["flow"]
        return each["name"], each["type"], _target(each), "paused" if each["paused"] else "ok", flow["breaker"], flow.get("error")

    columns = ("channel", "type", "to", "state", "breaker", "last failure")
    session.print_list(session.items(api_path("tenants", name, "channels")), columns, row, empty="no channels")


def delete_channel(session: CommandSession, name: Name, channel: Channel, yes: Yes = False) -> None:
    """Delete a channel.

    Examples:
        tocsin tenants channels delete shop archive --yes
    """
    session.confirm(f"Delete the channel {channel} of {name}", yes)
    session.send("DELETE", api_path("tenants", name, "channels", channel))
    session.print_result({"channel": channel, "deleted": True}, f"channel {channel} is deleted")


def rotate(
    session: CommandSession,
    name: Name,
    channel: Channel,
    id: Annotated[str | None, typer.Option("--id", help="Name of the rotation: a repeated call with it shows the same secret.")] = None,
) -> None:
    """Create a new webhook secret. Only this call shows it; the previous secret stays valid for 24 hours.

    Examples:
        tocsin tenants channels rotate shop default
        tocsin tenants channels rotate shop default --id 2026-11
    """
    path = api_path("tenants", name, "channels", channel, "secret", "rotate")
    made = session.send("POST", path, {"id": id or uuid.uuid4().hex}, repeatable=True)
    if session.json:
        session.emit(made)
        return
    typer.echo(f"tocsin: the previous secret is valid until {made.get('previous_until') or 'now'}", err=True)
    session.screen.line(made["secret"])


def pause(
    session: CommandSession,
    name: Name,
    channel: Channel,
    reason: Annotated[str, typer.Option(help="Reason for the pause, such as 'the receiver moves'.")] = "",
) -> None:
    """Pause a channel: its events are held until it is resumed.

    Examples:
        tocsin tenants channels pause shop default --reason 'the receiver moves'
    """
    body = {"reason": reason} if reason else None
    session.print_document(session.send("POST", api_path("tenants", name, "channels", channel, "pause"), body))


def resume(session: CommandSession, name: Name, channel: Channel) -> None:
    """Resume deliveries to a channel. Also closes its circuit breaker.

    Examples:
        tocsin tenants channels resume shop default
    """
    session.print_document(session.send("POST", api_path("tenants", name, "channels", channel, "resume")))


def _target(channel: dict[str, Any]) -> Any:
    if channel["type"] == "fleet":
        return f"fleet {channel['fleet']}, {channel['path']}"
    return channel.get("url") or channel.get("queue") or channel.get("endpoint") or channel.get("topic") or channel.get("entity")


def _limits(limits: dict[str, Any] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in (limits or {}).items() if value is not None) or "-"
