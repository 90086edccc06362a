"""`tocsin what-if`: from the app to a file, and from the file to the table."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from shared.core.settings import LOCAL_ADMIN_KEY
from shared.testing import BlockingTocsin
from shared.whatif.snapshot import ExportedChannel, ExportedFleet, ExportedNode, PlannedEvent, Snapshot, parse_snapshot

from ..conftest import Command

SECRET, KEY_OF_A_PERSON = "hunter2", "bob@example.com"


@pytest.fixture(scope="module")
def planned(kit: BlockingTocsin) -> BlockingTocsin:
    """An app with a past, 300 events within the hour, two schedules, a fleet and secrets."""
    admin = kit.admin.call
    admin("PUT", "tenants/demo/channels/orders", {"type": "http", "url": "https://receiver.test/?code=hunter2", "headers": {"x": SECRET}})
    kit.channel("bills", "http://receiver.test/")
    for _ in range(3):
        kit.client.schedule({"past": SECRET}, delay=timedelta(seconds=5), channel="orders")
    kit.advance(minutes=1)
    for number in range(300):
        delay, key = timedelta(minutes=5, seconds=number), KEY_OF_A_PERSON if number % 5 == 0 else None
        kit.client.schedule({"n": number, "secret": SECRET}, delay=delay, channel="orders", ordering_key=key, id=f"{SECRET}-{number}")
    admin("PUT", "calendars/feasts?tenant=demo", {"dates": ["2027-01-16", "2029-12-24"]})
    admin("PUT", "schedules/nightly?tenant=demo", {"every": "PT10M", "payload": {"secret": SECRET}, "channel": "bills"})
    shut = {"cron": "*/5 * * * *", "payload": {}, "channel": "bills", "exclude": {"calendars": ["feasts"]}}
    admin("PUT", "schedules/shut?tenant=demo", shut)
    admin("PUT", "fleets/store?tenant=demo", {"partitions": 8, "notify": {"channel": "bills"}})
    return kit


def test_export_holds_what_a_twin_needs_and_no_secret(tocsin: Command, planned: BlockingTocsin, tmp_path: Path) -> None:
    file = tmp_path / "now.json"
    result = tocsin.ok("what-if", "export", str(file), "--from", planned.now.isoformat(), "--key", LOCAL_ADMIN_KEY, "--tenant", "demo")
    assert "300 events" in result.out.replace("\n", " ") and "now.json" in result.out
    text = file.read_text()
    assert not any(word in text for word in (SECRET, KEY_OF_A_PERSON, "receiver.test", "whsec_", "nightly"))
    found = parse_snapshot(text)
    assert found.total == 300 and {event.channel for event in found.events} == {"orders"}
    assert {event.key for event in found.events} == {None, 0} and all(event.size > 20 for event in found.events)
    orders = next(channel for channel in found.channels if channel.name == "orders")
    assert len(orders.took) == 3 and orders.failed == 0.0
    cron, every = sorted(found.schedules, key=lambda each: "every" in each)
    assert every["every"] == "PT10M" and every["start"] > "2027-01-15" and cron["exclude"] == {"dates": ["2027-01-16"]}
    assert [fleet.name for fleet in found.fleets] == ["store"] and found.fleets[0].definition["partitions"] == 8


def test_export_of_many_events_is_a_sample_that_says_so(tocsin: Command, planned: BlockingTocsin, tmp_path: Path) -> None:
    file = tmp_path / "sample.json"
    options = ("--limit", "100", "--without-fleets", "--json")
    [answer] = tocsin.ok("what-if", "export", str(file), "--from", planned.now.isoformat(), *options).documents
    found = parse_snapshot(file.read_text())
    # The shares of schedules, whose occurrences the twin makes itself, are those of the sample.
    assert found.total == answer["events"] and 298 <= found.total <= 304 and len(found.events) < 200 and found.fleets == ()
    assert any("events were read" in note for note in found.notes)
    # An ordinary key sees no channels.
    assert any("may not read channels" in note for note in answer["notes"])


SNAPSHOT = Snapshot(
    1_900_000_800_000,
    1_900_001_040_000,
    tuple(PlannedEvent(1_900_000_860_000 + 100 * number, "orders", 50) for number in range(100)),
    (ExportedChannel("orders", concurrency=4, took=(20, 40)),),
    notes=("A note of the export.",),
)


@pytest.fixture
def file(tmp_path: Path) -> str:
    found = tmp_path / "export.json"
    found.write_text(SNAPSHOT.text())
    return str(found)


def test_run_shows_both_runs_and_draws_them(tocsin: Command, file: str, tmp_path: Path) -> None:
    chart = tmp_path / "chart.svg"
    result = tocsin.ok("what-if", "run", file, "--slow", "orders=2s@+1m", "--chart", str(chart))
    assert "A note of the export." in result.lines
    cells = {line.split("  ")[0].strip(): line.split() for line in result.lines}
    assert cells["events due"][-3:] == ["100", "100", "0"]
    assert {"lateness, 99 of 100 events", "largest backlog", "dead events"} <= cells.keys()
    assert ElementTree.fromstring(chart.read_text()).tag.endswith("svg")
    # The same again, to the byte.
    assert tocsin.ok("what-if", "run", file, "--slow", "orders=2s@+1m").out == result.out


def test_a_file_of_changes_is_the_same_as_options(tocsin: Command, file: str, tmp_path: Path) -> None:
    changes = tmp_path / "changes.yaml"
    changes.write_text('slow:\n  - orders=2s@+1m\nadd-events: ["50@+2m"]\n')
    [by_file] = tocsin.ok("what-if", "run", file, "--changes", str(changes), "--json").documents
    [by_options] = tocsin.ok("what-if", "run", file, "--slow", "orders=2s@+1m", "--add-events", "50@+2m", "--json").documents
    assert by_file == by_options and by_file["conditions_met"] == []
    [events] = [each for each in by_file["figures"] if each["key"] == "events"]
    assert (events["unchanged"], events["changed"], events["difference"]) == (100, 150, 50)
    assert {"unchanged", "changed"} == by_file["series"].keys()


def test_exit_code_is_1_if_a_bound_is_broken_and_2_for_what_cannot_be_read(tocsin: Command, file: str, tmp_path: Path) -> None:
    broken = tocsin("what-if", "run", file, "--slow", "orders=2s@+1m", "--fail-if", "late_p99>5s", "--fail-if", "dead>0")
    assert broken.code == 1 and broken.err.startswith("late_p99>5s: ")
    assert tocsin("what-if", "run", file, "--fail-if", "late_p99>5s").code == 0
    for arguments in ((file, "--slow", "nobody=2s@+1m"), (file, "--fail-if", "speed>1"), (str(tmp_path / "none.json"),)):
        refused = tocsin("what-if", "run", *arguments)
        assert refused.code == 2 and refused.err, arguments
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"figures": []}))
    assert "not an export" in tocsin("what-if", "run", str(other)).err
    other.write_text(SNAPSHOT.text().replace('"timeout": 15000', '"timeout": 1'))
    changed = tocsin("what-if", "run", str(other))
    assert changed.code == 2 and "timeout" in changed.err


def test_an_admin_key_must_name_a_tenant(tocsin: Command, planned: BlockingTocsin, tmp_path: Path) -> None:
    refused = tocsin("what-if", "export", str(tmp_path / "x.json"), "--key", LOCAL_ADMIN_KEY)
    assert refused.code in (2, 3) and "tenant" in refused.err and not (tmp_path / "x.json").exists()


def test_removals_name_the_fleets_that_there_are(tocsin: Command, tmp_path: Path) -> None:
    found = tmp_path / "fleet.json"
    nodes = (ExportedNode("n1", fault_domain="0"), ExportedNode("n2", fault_domain="1"))
    found.write_text(Snapshot(SNAPSHOT.first, SNAPSHOT.end, fleets=(ExportedFleet("store", {"partitions": 2}, nodes),)).text())
    refused = tocsin("what-if", "run", str(found), "--remove-servers", "2@+1m")
    assert refused.code == 2 and "at least one server must stay" in refused.err


def test_a_library_that_is_missing_is_named_with_what_to_install(tocsin: Command, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shared.whatif.play", None)
    refused = tocsin("what-if", "run", file)
    assert refused.code == 1 and "dist/tocsin-*.whl)[cli,testing]" in refused.err.replace("\n", " ")
