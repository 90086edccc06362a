"""`tocsin apply` and `tocsin export`: what a file declares, the app has; a second run changes nothing, and nothing is removed unasked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from shared.cli.declared.export import exported_definition
from shared.cli.declared.references import resolve
from shared.cli.declared.resources import Address, parse_declared
from shared.cli.declared.yaml_text import parse_yaml, to_yaml
from shared.cli.terminal.documents import parse
from shared.core.settings import LOCAL_ADMIN_KEY
from shared.testing import BlockingTocsin
from shared.testing.kit import KEY
from tests.texts import assert_text
from tests.unit.delivery.entra.jwts import CLIENT

from ..conftest import Command, CommandResult

FILE = """
tenants:
  bakery:
    limits: {open_events: 1000}
    channels:
      orders:
        type: http
        url: "https://bakery.example/hook?code=${env:HOOK_CODE}"
        headers: {x-key: "Bearer ${env:HOOK_KEY}", x-team: plain}
      archive: {type: queue, queue: archive}
    fleets:
      ovens: {partitions: 4, notify: {channel: orders}}
    calendars:
      holidays: {dates: [2026-12-25, 2026-12-26]}
    schedules:
      open:
        {cron: "30 6 * * MON-SAT", timezone: Europe/Berlin, channel: orders, payload: {at: 06:30, on: on, price: 1.10, none: null},
         exclude: {calendars: [holidays]}}
      poll: {every: PT15M, channel: archive, payload: "${env:HOOK_CODE}"}
"""

LAUGHS = "\n".join(["a0: &a0 [1]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9))])
"""A few lines that stand for a hundred million values."""


@pytest.fixture
def admin(tocsin: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("TOCSIN_KEY", LOCAL_ADMIN_KEY)
    for name, value in {"HOOK_CODE": "c0de", "HOOK_KEY": "s3cret"}.items():
        monkeypatch.setenv(name, value)
    return tocsin


def _calls(tocsin: Command) -> int:
    """The number of administrative calls that left a record."""
    return len(tocsin.ok("audit", "-n", "1000", "--json").lines)


def _write(tmp_path: Path, text: str) -> str:
    file = tmp_path / "tocsin.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def _counts(applied: CommandResult, line: int = -1) -> list[int]:
    """Return the numbers of created, changed, unchanged and removed resources, which are in this line."""
    return [int(number) for number in re.findall(r"\d+", applied.lines[line])]


WRONG = """
tenants:
  cafe:
    channels:
      orders: {type: http, url: "https://10.0.0.1/hook"}
    fleets:
      ovens: {partitions: 0}
      mills: {partitions: 4, notify: {channel: elsewhere}}
    calendars:
      holidays: {dates: [2026-02-30]}
    schedules:
      open: {cron: "61 6 * * *", channel: orders, payload: 1}
      close: {cron: "0 18 * * *", channel: nowhere, payload: 1}
      clean: {cron: "0 19 * * *", payload: 1}
      count: {cron: "0 20 * * *", channels: [orders, stock], payload: 1}
      rest: {cron: "0 21 * * *", channel: orders, exclude: {calendars: [feasts]}, payload: 1}
"""


def test_a_dry_run_finds_every_fault_inside_a_tenant_that_the_file_creates(admin: Command, tmp_path: Path) -> None:
    file = _write(tmp_path, WRONG)
    before = _calls(admin)
    for words in (("--dry-run",), ()):
        failed = admin("apply", "-f", file, *words)
        assert (failed.code, failed.out) == (3, "") and "the app refuses 9 definitions" in failed.err
        faults = ("channel cafe/orders: ", "fleet cafe/ovens: ", "calendar cafe/holidays: ", "schedule cafe/open: ")
        assert all(fault in failed.err for fault in faults)
        for name, absent in (
            ("close", "channel nowhere"),
            ("clean", "channel default"),
            ("count", "channel stock"),
            ("rest", "calendar feasts"),
        ):
            assert re.search(rf"schedule cafe/{name}: .*the file declares no {absent}", failed.err)
        assert re.search(r"fleet cafe/mills: /notify/channel: the file declares no channel elsewhere", failed.err)
    assert _calls(admin) == before and admin("tenants", "get", "cafe").code != 0


def test_a_schedule_with_channels_that_the_file_creates(admin: Command, tmp_path: Path) -> None:
    file = _write(tmp_path, FILE.replace("bakery", "cafe").replace("channel: archive", "channels: [orders, archive]"))
    assert _counts(admin.ok("apply", "-f", file, "--dry-run"))[:2] == [7, 0]
    assert _counts(admin.ok("apply", "-f", file)) == [7, 0, 0, 0]
    again = admin.ok("apply", "-f", file)
    assert_text("apply.counts", again.lines, created=0, changed=0, unchanged=7, removed=0)
    exported = tmp_path / "exported.yaml"
    exported.touch(mode=0o644)
    admin.ok("export", "cafe", "-o", str(exported))
    assert exported.stat().st_mode & 0o777 == 0o600, "payloads of schedules are in it"
    assert _counts(admin.ok("apply", "-f", str(exported))) == [0, 0, 7, 0]
    admin.ok("schedules", "put", "twice", "--every", "1h", "--channel", "orders", "--channel", "archive", "--tenant", "cafe")
    assert admin.ok("schedules", "list", "--tenant", "cafe").row("twice")[-1] == "archive, orders"


def test_life_of_a_file(admin: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _write(tmp_path, FILE)
    before = _calls(admin)
    planned = admin.ok("apply", "-f", file, "--dry-run")
    assert planned.lines[0].startswith("create  tenant bakery") and _counts(planned)[:2] == [7, 0], planned.out
    assert _calls(admin) == before
    made = admin.ok("apply", "-f", file)
    assert "s3cret" not in made.out and "c0de" not in made.out
    assert _counts(made) == [7, 0, 0, 0]
    payload = json.loads(admin.ok("schedules", "get", "open", "--tenant", "bakery", "--json").out)["payload"]
    assert payload == {"at": "06:30", "on": "on", "price": 1.10, "none": None}

    before = _calls(admin)
    unchanged = admin.ok("apply", "-f", file)
    assert len(unchanged.lines) == 1 and _counts(unchanged) == [0, 0, 7, 0]
    assert _calls(admin) == before, "a second run changes nothing"
    for name in ("HOOK_CODE", "HOOK_KEY"):
        monkeypatch.delenv(name)
    # The payload of a schedule is stored as it is, so that it can be kept too.
    unchanged = admin.ok("apply", "-f", file)
    assert len(unchanged.lines) == 1 and _counts(unchanged) == [0, 0, 7, 0]

    exported = tmp_path / "exported.yaml"
    admin.ok("export", "bakery", "-o", str(exported))
    text = exported.read_text(encoding="utf-8")
    assert "s3cret" not in text and "code=${env:BAKERY_ORDERS_CODE}" in text and "x-key: ${env:BAKERY_ORDERS_X_KEY}" in text
    assert _counts(admin.ok("apply", "-f", str(exported))) == [0, 0, 7, 0]
    admin.ok("export", "bakery", "-o", str(exported))
    assert exported.read_text(encoding="utf-8") == text

    monkeypatch.setenv("HOOK_CODE", "c0de")
    monkeypatch.setenv("HOOK_KEY", "0ther")
    changed = FILE.replace("open_events: 1000", "open_events: 2000").replace("      archive: {type: queue, queue: archive}\n", "")
    changed = changed.replace("channel: archive", "channel: orders")
    kept = admin.ok("apply", "-f", _write(tmp_path, changed))
    assert _counts(kept, -2) == [0, 3, 3, 0]
    assert_text("apply.changes", kept.lines, was=1000, now=2000)
    event = {"id": "held", "due": "2036-01-01T00:00:00Z", "payload": 1, "channel": "archive"}
    admin.kit.client_with(LOCAL_ADMIN_KEY, tenant="bakery").call("POST", "events", event)
    refused = admin("apply", "-f", file.replace(FILE, changed), "--prune")
    assert refused.code == 2 and "bakery/archive" in refused.err and "1 open event" in refused.err
    assert "--yes" in refused.err
    pruned = admin.ok("apply", "-f", file, "--prune", "--yes", "--json")
    assert [each["name"] for each in pruned.documents if each["action"] == "remove"] == ["archive"]
    assert admin("tenants", "channels", "get", "bakery", "archive").code == 3

    kept_tenant = _write(tmp_path, "tenants: {second: }")
    assert "removed tenant bakery" not in admin.ok("apply", "-f", kept_tenant, "--prune", "--yes").out
    listed = admin("apply", "-f", kept_tenant, "--prune", "--prune-tenants")
    assert_text("apply.tenants-to-remove", listed.err.splitlines())


def test_the_key_of_a_service_bus_channel_is_exported_as_a_reference() -> None:
    stored = {"type": "servicebus", "namespace": "a.servicebus.windows.net", "entity": "q", "key_name": "send", "key": "***"}
    found = exported_definition(Address("channel", "shop", "bus"), stored)
    assert found == {**stored, "key": "${env:SHOP_BUS_KEY}"}


def test_failure_in_the_middle_is_told_and_the_next_run_goes_on(admin: Command, tmp_path: Path) -> None:
    second = "{type: http, url: 'https://mill.example/x', client_certificate: m}"
    wrong = f"tenants: {{mill: {{channels: {{a: {{type: queue, queue: a-queue}}, b: {second}}}}}}}"
    # Only a tenant that exists can have a certificate.
    failed = admin("apply", "-f", _write(tmp_path, wrong))
    assert failed.code == 3 and "2 of 3 changes are done" in failed.err and "/client_certificate" in failed.err
    done = admin.ok("apply", "-f", _write(tmp_path, wrong.replace(", client_certificate: m", "")))
    assert done.lines[0] == "created channel mill/b" and len(done.lines) == 3 and _counts(done) == [1, 0, 2, 0]
    # What exists is checked before anything is changed.
    both = wrong.replace("a-queue", "c-queue")
    assert admin("apply", "-f", _write(tmp_path, both)).code == 3
    assert json.loads(admin.ok("tenants", "channels", "get", "mill", "a", "--json").out)["queue"] == "a-queue"


def test_all_definitions_that_the_app_refuses_are_reported_at_once(admin: Command, tmp_path: Path) -> None:
    text = "tenants: {mint: {channels: {a: {type: queue, queue: old}, b: {type: queue, queue: kept}, c: {type: queue, queue: mint}}}}"
    admin.ok("apply", "-f", _write(tmp_path, text))
    before = _calls(admin)
    wrong = text.replace("old", "A").replace("kept", "d-queue").replace("{type: queue, queue: mint}", "{type: http, url: 1}")
    failed = admin("apply", "-f", _write(tmp_path, wrong))
    assert failed.code == 3 and _calls(admin) == before
    told = [line.partition(":")[0] for line in failed.err.splitlines() if line.startswith("channel")]
    assert told == ["channel mint/a", "channel mint/c"] and "/queue" in failed.err and "/url" in failed.err
    assert "d-queue" not in admin.ok("tenants", "channels", "list", "mint", "--json").out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tenants: {a: {channels: [b]}}", "tenants.a.channels must be an object"),
        ("tenant: {}", "tenant is unknown"),
        ("tenants: {a: {}, a: {}}", "line 1: a is named twice"),
        ("tenants:\n  1: {}", "line 2: the name 1 is not a text"),
        ("tenants: {a: &x {b: *x}}", "recursive"),
        (LAUGHS, "more than 1,000,000 values"),
        ("tenants: [", "line 1"),
        ("tenants: {a: {channels: {b: {type: queue, queue: '${env:NOT_SET}'}}}}", "channel a/b, queue: NOT_SET"),
        ("tenants: {a: {channels: {b: {type: queue, queue: '${env:1x}'}}}}", "does not name a variable"),
    ],
)
def test_wrong_file_changes_nothing_and_says_where(admin: Command, tmp_path: Path, text: str, told: str) -> None:
    before = _calls(admin)
    failed = admin("apply", "-f", _write(tmp_path, text))
    assert failed.code == 2 and told in failed.err, failed
    assert _calls(admin) == before
    assert admin("apply", "-f", str(tmp_path / "none.yaml")).code == 2


def test_variable_that_is_not_set_keeps_only_a_stored_value_of_the_same_form() -> None:
    given = {"a": "x${env:A}y", "b": "${env:B}", "c": "$${env:C}", "d": "x${env:A}"}
    found = resolve(given, {}, {"a": "x1y", "b": "***", "d": "z1"})
    assert found.document == {"a": "x1y", "b": "***", "c": "${env:C}", "d": "x${env:A}"}
    assert [(each.path, each.name) for each in found.missing] == [("d", "A")]
    assert resolve(given, {"A": "1", "B": ""}, {}).document == {"a": "x1y", "b": "", "c": "${env:C}", "d": "x1"}


TEXTS = ["1e5", "12:30", "on", "~", "2027-01-01", "0x1f", "-", "1_000", "null", "", " x", "a: b", "${env:X}", "'", "é\x07"]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_and_numbers_survive_a_file(text: str) -> None:
    document: dict[str, Any] = parse(json.dumps({"tenants": {"t": {"schedules": {"s": {"payload": [text, {text: text}]}}}}}))
    numbers = parse("[1.10, 1e400, 12345678901234567890123, -0.0, 1E+2]")
    document["tenants"]["t"]["schedules"]["n"] = {"payload": numbers}
    again = parse_yaml(to_yaml(document).encode())
    assert again == document
    assert [str(each) for each in again["tenants"]["t"]["schedules"]["n"]["payload"]] == [str(each) for each in numbers]
    assert len(parse_declared(again)) == 3


def test_audiences_of_entra_are_declared_with_their_channels_and_refused_ones_through_no_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = """
tenants:
  bakery:
    entra_audiences: [{audience: "api://ovens", hosts: [ovens.example.com]}]
    channels:
      ovens: {type: http, url: "https://ovens.example.com/bake", entra_audience: "api://ovens"}
"""
    with BlockingTocsin(token_client_id=CLIENT) as kit:
        command = Command(capsys, monkeypatch, kit)
        monkeypatch.setenv("TOCSIN_KEY", LOCAL_ADMIN_KEY)
        file = _write(tmp_path, text)
        assert _counts(command.ok("apply", "-f", file)) == [2, 0, 0, 0]
        assert _counts(command.ok("apply", "-f", file)) == [0, 0, 2, 0]
        exported = command.ok("export", "bakery").out
        assert "api://ovens" in exported and "ovens.example.com" in exported
        assert _counts(command.ok("apply", "-f", _write(tmp_path, exported))) == [0, 0, 2, 0]
        # Rule and channel change together: the dry run leaves the channel to the rule that comes first.
        both = text.replace("api://ovens", "api://stoves")
        planned = command.ok("apply", "-f", _write(tmp_path, both), "--dry-run")
        assert _counts(planned)[:2] == [0, 2], planned.out
        assert _counts(command.ok("apply", "-f", _write(tmp_path, both))) == [0, 2, 0, 0]
        for hostile in (
            both.replace('entra_audience: "api://stoves"', 'entra_audience: "https://vault.azure.net"'),
            both.replace("api://stoves", "https://vault.azure.net"),
            both.replace("api://stoves", "https://acc.blob.core.windows.net/"),
            both.replace("url: https://ovens.example.com", "url: https://evil.example").replace('"https://ovens', '"https://evil'),
        ):
            for options in ((), ("--dry-run",)):
                refused = command("apply", "-f", _write(tmp_path, hostile), *options)
                assert refused.code != 0 and "created" not in refused.out and "changed" not in refused.out, refused
        stored = json.loads(command.ok("tenants", "channels", "get", "bakery", "ovens", "--json").out)
        assert (stored["url"], stored["entra_audience"]) == ("https://ovens.example.com/bake", "api://stoves")
        monkeypatch.setenv("TOCSIN_KEY", KEY)
        assert command("apply", "-f", _write(tmp_path, text)).code != 0


def test_a_fleet_channel_is_declared_exported_and_put(admin: Command, tmp_path: Path) -> None:
    declared = "tenants: {mill: {channels: {owners: {type: fleet, fleet: search, path: /events}}, fleets: {search: {partitions: 4}}}}"
    done = admin.ok("apply", "-f", _write(tmp_path, declared))
    assert "tocsin tenants channels rotate mill owners" in done.out
    assert _counts(admin.ok("apply", "-f", _write(tmp_path, declared)), 0) == [0, 0, 3, 0]
    exported = admin.ok("export", "mill").out
    assert "type: fleet" in exported and "fleet: search" in exported and "path: /events" in exported
    options = ("--fleet", "search", "--path", "/more", "--header", "x-team=blue")
    put = admin.ok("tenants", "channels", "put", "mill", "more", *options, "--json")
    [shown] = put.documents
    assert (shown["type"], shown["fleet"], shown["path"], shown["headers"]) == ("fleet", "search", "/more", {"x-team": "***"})
    assert "fleet search, /more" in admin.ok("tenants", "channels", "list", "mill").out
    assert admin("tenants", "channels", "put", "mill", "both", "--fleet", "search", "--queue", "q").code == 2
