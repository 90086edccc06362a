"""`tocsin tenants`: tenants, their keys and their channels. Needs an admin key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..exits import Exit
from ..failures import CommandFailed
from ..session import Session, Yes, at, commands, given_json, pairs

_HELP = "Tenants, their keys and channels; with an admin key."
Name = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant.", show_default=False)]
Channel = Annotated[str, typer.Argument(help="The channel.", show_default=False)]
Settings = Annotated[str, typer.Option("--settings", help="The whole document: JSON, or @FILE.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    commands(group, {"put": put, "get": get, "list": list_, "delete": delete}, tenant=False)
    keys = typer.Typer(no_args_is_help=True, help="Keys of a tenant.")
    commands(keys, {"create": create_key, "list": list_keys, "revoke": revoke_key}, tenant=False)
    group.add_typer(keys, name="keys")
    channels = typer.Typer(no_args_is_help=True, help="Channels of a tenant: where its events go.")
    commands(channels, {"list": list_channels}, tenant=False, watch=True)
    commands(channels, {"put": put_channel, "get": get_channel, "delete": delete_channel}, tenant=False)
    commands(channels, {"rotate": rotate, "pause": pause, "resume": resume}, tenant=False)
    group.add_typer(channels, name="channels")
    app.add_typer(group, name="tenants")


def put(
    session: Session,
    name: Name,
    settings: Settings = "{}",
    inherit: Annotated[bool, typer.Option("--inherit", help="Take over what a deleted tenant of this name has left.")] = False,
) -> None:
    """Create a tenant, or replace its settings."""
    body = given_json(settings, "--settings")
    session.shown(session.send("PUT", at("tenants", name), body, inherit="true" if inherit else None))


def get(session: Session, name: Name) -> None:
    """One tenant."""
    session.shown(session.get(at("tenants", name)))


def list_(session: Session) -> None:
    """All tenants."""

    def row(each: dict[str, Any]) -> Sequence[Any]:
        return each["name"], each.get("durability") or "standard", _limits(each.get("limits")), each["created"]

    session.listed(session.items("tenants"), ("tenant", "durability", "limits", "created"), row, empty="no tenants")


def delete(session: Session, name: Name, yes: Yes = False) -> None:
    """Remove a tenant with its keys, channels and fleets; events that are still open end as dead letters."""
    session.confirm(f"Delete the tenant {name}, its keys, channels and fleets", yes)
    session.send("DELETE", at("tenants", name))
    session.said({"tenant": name, "deleted": True}, f"tenant {name} is deleted")


def create_key(
    session: Session,
    name: Name,
    scope: Annotated[list[str], typer.Option("--scope", help="events, fleets, agent or admin; any number of times.", show_default=False)],
    fleet: Annotated[str | None, typer.Option(help="For scope agent: the only fleet it is for.")] = None,
    node: Annotated[str | None, typer.Option(help="For scope agent: the only node.")] = None,
    note: Annotated[str | None, typer.Option(help="What it is for.")] = None,
) -> None:
    """Make a key. It is shown this once, alone on standard output, so that it can go straight to where it is kept."""
    told = {"scopes": scope, "fleet": fleet, "node": node, "note": note}
    made = session.send("POST", at("tenants", name, "keys"), {key: value for key, value in told.items() if value is not None})
    if session.json:
        session.emit(made)
        return
    typer.echo(f"tocsin: key {made['prefix']} of {name} for {', '.join(made['scopes'])}; it is not shown again", err=True)
    session.screen.line(made["key"])


def list_keys(session: Session, name: Name) -> None:
    """The keys, by prefix; never the keys themselves."""

    def row(each: dict[str, Any]) -> Sequence[Any]:
        return each["prefix"], ", ".join(each["scopes"]), each.get("fleet"), each.get("node"), each.get("note"), each["created"]

    columns = ("prefix", "scopes", "fleet", "node", "note", "created")
    session.listed(session.items(at("tenants", name, "keys")), columns, row, empty="no keys")


def revoke_key(session: Session, name: Name, prefix: Annotated[str, typer.Argument(show_default=False)], yes: Yes = False) -> None:
    """Revoke a key: it stops working within seconds."""
    session.confirm(f"Revoke the key {prefix} of {name}", yes)
    session.send("DELETE", at("tenants", name, "keys", prefix))
    session.said({"prefix": prefix, "revoked": True}, f"key {prefix} is revoked")


def put_channel(
    session: Session,
    name: Name,
    channel: Channel,
    to: Annotated[str | None, typer.Option("--to", metavar="URL", help="An http channel that leads there.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", help="With --to: NAME=VALUE, sent with each delivery.")] = None,
    timeout: Annotated[str | None, typer.Option(help="With --to: how long an answer may take, PT15S.")] = None,
    queue: Annotated[str | None, typer.Option(help="A queue channel: the storage queue's name.")] = None,
    account: Annotated[str | None, typer.Option(help="With --queue: another storage account.")] = None,
    settings: Annotated[str | None, typer.Option("--settings", help="Instead: the whole document, JSON or @FILE.")] = None,
) -> None:
    """Create a channel, or replace it. The secret of a new http channel is shown this once."""
    if sum(each is not None for each in (to, queue, settings)) != 1:
        raise CommandFailed("give one of --to, --queue and --settings", status=Exit.USAGE)
    if settings is not None:
        body = given_json(settings, "--settings")
    elif to is not None:
        body = {"type": "http", "url": to, **({"headers": pairs(header, "--header")} if header else {})}
        body |= {"timeout": timeout} if timeout is not None else {}
    else:
        body = {"type": "queue", "queue": queue, **({"account": account} if account is not None else {})}
    session.shown(session.send("PUT", at("tenants", name, "channels", channel), body))


def get_channel(session: Session, name: Name, channel: Channel) -> None:
    """One channel."""
    session.shown(session.get(at("tenants", name, "channels", channel)))


def list_channels(session: Session, name: Name) -> None:
    """The channels, and how deliveries to them flow."""

    def row(each: dict[str, Any]) -> Sequence[Any]:
        flow = each["flow"]
        return each["name"], each["type"], _where(each), "paused" if each["paused"] else "ok", flow["breaker"], flow.get("error")

    columns = ("channel", "type", "to", "state", "breaker", "last failure")
    session.listed(session.items(at("tenants", name, "channels")), columns, row, empty="no channels")


def delete_channel(session: Session, name: Name, channel: Channel, yes: Yes = False) -> None:
    """Remove a channel."""
    session.confirm(f"Delete the channel {channel} of {name}", yes)
    session.send("DELETE", at("tenants", name, "channels", channel))
    session.said({"channel": channel, "deleted": True}, f"channel {channel} is deleted")


def rotate(session: Session, name: Name, channel: Channel) -> None:
    """Make a new webhook secret, shown this once; the one before it counts for 24 hours more."""
    made = session.send("POST", at("tenants", name, "channels", channel, "secret", "rotate"))
    if session.json:
        session.emit(made)
        return
    typer.echo(f"tocsin: the secret before it counts until {made.get('previous_until') or 'now'}", err=True)
    session.screen.line(made["secret"])


def pause(session: Session, name: Name, channel: Channel, reason: Annotated[str, typer.Option(help="Why.")] = "") -> None:
    """Hold all deliveries to a channel."""
    body = {"reason": reason} if reason else None
    session.shown(session.send("POST", at("tenants", name, "channels", channel, "pause"), body))


def resume(session: Session, name: Name, channel: Channel) -> None:
    """Let deliveries go on; closes the breaker too."""
    session.shown(session.send("POST", at("tenants", name, "channels", channel, "resume")))


def _where(channel: dict[str, Any]) -> Any:
    return channel.get("url") or channel.get("queue") or channel.get("endpoint") or channel.get("topic")


def _limits(limits: dict[str, Any] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in (limits or {}).items() if value is not None) or "-"
