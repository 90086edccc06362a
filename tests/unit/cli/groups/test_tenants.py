"""Changes of tenants and channels by the command: what is not named stays, and what a replacement drops is shown."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from shared.cli.exits import Exit
from shared.cli.session import CommandSession
from shared.client.resources.definitions import merged
from shared.core.settings import LOCAL_ADMIN_KEY

from ..conftest import Command

CHANNEL = (
    '{"type": "http", "url": "http://receiver.test/x", "headers": {"x-team": "blue", "authorization": "Bearer s3cret"}, '
    '"timeout": "PT20S", "limits": {"concurrency": 3}, "per_key": {"ordered": true}}'
)


@pytest.fixture
def admin(tocsin: Command) -> Command:
    tocsin.environment.setenv("TOCSIN_KEY", LOCAL_ADMIN_KEY)
    return tocsin


@pytest.fixture
def shop(admin: Command) -> Command:
    settings = '{"limits": {"events_per_second": 50, "open_events": 9}, "searchable": ["order"], "retry": {"attempts": 3}}'
    admin.ok("tenants", "put", "shop", "--settings", settings, "--yes")
    admin.ok("tenants", "channels", "put", "shop", "default", "--settings", CHANNEL, "--yes")
    return admin


def channel_of(command: Command) -> dict[str, Any]:
    [found] = command.ok("tenants", "channels", "get", "shop", "default", "--json").documents
    return dict(found)


def test_set_changes_the_named_settings_of_a_tenant_and_keeps_the_others(shop: Command) -> None:
    notices = '{"notices": {"channel": "default", "kinds": ["event.dead"]}, "limits": {"open_events": 7}}'
    [changed] = shop.ok("tenants", "set", "shop", "--settings", notices, "--json").documents
    assert (changed["limits"]["events_per_second"], changed["limits"]["open_events"]) == (50, 7)
    assert changed["searchable"] == ["order"] and changed["retry"]["attempts"] == 3
    assert changed["notices"] == {"channel": "default", "kinds": ["event.dead"]}
    [reset] = shop.ok("tenants", "set", "shop", "--settings", '{"notices": null, "limits": {"open_events": null}}', "--json").documents
    assert "notices" not in reset and reset["limits"]["open_events"] is None and reset["limits"]["events_per_second"] == 50
    [other] = shop.ok("tenants", "set", "shop", "--settings", '{"retry": {"schedule": ["PT1M"]}}', "--json").documents
    assert other["retry"]["schedule"] == ["PT1M"] and other["retry"].get("attempts") is None


def test_set_changes_the_named_fields_of_a_channel_and_keeps_the_others_and_its_secrets(shop: Command) -> None:
    before = channel_of(shop)
    shop.ok("tenants", "channels", "set", "shop", "default", "--to", "http://receiver.test/y", "--header", "X-Team=red")
    after = channel_of(shop)
    assert (after["url"], after["headers"]) == ("http://receiver.test/y", {"X-Team": "***", "authorization": "***"})
    kept = ("type", "timeout", "limits", "per_key")
    assert [after[name] for name in kept] == [before[name] for name in kept]
    shop.ok("tenants", "channels", "set", "shop", "default", "--settings", '{"limits": null}', "--timeout", "9s")
    assert "limits" not in channel_of(shop) and channel_of(shop)["timeout"] == "PT9S" and channel_of(shop)["per_key"] == before["per_key"]


def test_set_begins_again_if_somebody_else_has_changed_the_channel_meanwhile(shop: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, met = CommandSession.change, []

    def meeting(session: CommandSession, read: Any, write: Any, change: Any) -> Any:
        def after_another(stored: dict[str, Any]) -> Any:
            if not met:
                met.append(True)
                session.client.call("PUT", read.path, {"type": "http", "url": "http://receiver.test/x", "timeout": "PT11S"})
            return change(stored)

        return plain(session, read, write, after_another)

    monkeypatch.setattr(CommandSession, "change", meeting)
    shop.ok("tenants", "channels", "set", "shop", "default", "--to", "http://receiver.test/z")
    found = channel_of(shop)
    assert (found["url"], found["timeout"]) == ("http://receiver.test/z", "PT11S")


def test_set_of_nothing_and_of_what_does_not_exist_is_refused(shop: Command) -> None:
    assert shop("tenants", "set", "shop", "--settings", "{}").code == Exit.USAGE
    assert shop("tenants", "channels", "set", "shop", "default").code == Exit.USAGE
    assert shop("tenants", "set", "nobody", "--settings", '{"searchable": []}').code == Exit.REFUSED
    assert shop("tenants", "channels", "set", "shop", "nothing", "--timeout", "3s").code == Exit.REFUSED


def test_put_shows_what_it_drops_and_asks_on_a_terminal_only(shop: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    said = shop.ok("tenants", "channels", "put", "shop", "default", "--to", "http://receiver.test/x", "--header", "x-team=blue")
    assert "per_key.ordered: true -> none" in said.err and "limits.concurrency: 3 -> none" in said.err
    assert "s3cret" not in said.err and "headers.authorization" in said.err and "x-team" not in said.err
    assert shop.ok("tenants", "channels", "put", "shop", "default", "--to", "http://receiver.test/y", "--header", "x-team=blue").err == ""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    refused = shop("tenants", "put", "shop", "--settings", '{"retry": {"attempts": 3}}')
    assert refused.code != 0 and "limits.events_per_second: 50" in refused.err
    [kept] = shop.ok("tenants", "get", "shop", "--json").documents
    assert kept["limits"]["events_per_second"] == 50
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    [replaced] = shop.ok("tenants", "put", "shop", "--settings", '{"retry": {"attempts": 3}}', "--json").documents
    assert replaced["limits"]["events_per_second"] is None


def test_the_channel_of_notices_must_exist(shop: Command) -> None:
    refused = shop("tenants", "set", "shop", "--settings", '{"notices": {"channel": "ops", "kinds": ["event.dead"]}}')
    assert refused.code == Exit.REFUSED and "/notices/channel" in refused.err and "ops" in refused.err
    [kept] = shop.ok("tenants", "get", "shop", "--json").documents
    assert "notices" not in kept


def test_apply_makes_the_channel_of_notices_before_the_notices(shop: Command, tmp_path: Any) -> None:
    file = tmp_path / "tocsin.yaml"
    file.write_text(
        "tenants: {shop: {notices: {channel: ops, kinds: [event.dead]}, channels: {ops: {type: queue, queue: a-queue}}},"
        " fresh: {notices: {channel: ops, kinds: [event.dead]}, channels: {ops: {type: queue, queue: a-queue}}}}"
    )
    shop.ok("apply", "-f", str(file), "--dry-run")
    shop.ok("apply", "-f", str(file))
    for name in ("shop", "fresh"):
        [made] = shop.ok("tenants", "get", name, "--json").documents
        assert made["notices"]["channel"] == "ops"
    again = shop.ok("apply", "-f", str(file))
    assert "0 created, 0 changed" in again.out


def test_a_merge_replaces_lists_and_what_belongs_together_and_removes_with_null() -> None:
    stored = {"a": [1, 2], "b": {"c": 1, "d": {"e": 2}}, "retry": {"attempts": 3}}
    assert merged(stored, {"a": [3], "b": {"d": {"f": 1}}}) == {"a": [3], "b": {"c": 1, "d": {"e": 2, "f": 1}}, "retry": {"attempts": 3}}
    assert merged(stored, {"b": {"c": None}, "retry": {"schedule": [1]}, "x": None}) == {
        "a": [1, 2],
        "b": {"d": {"e": 2}},
        "retry": {"schedule": [1]},
    }
