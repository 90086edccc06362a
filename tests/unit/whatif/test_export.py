"""The parts of a fleet that an export takes, and those that it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared.core.durations import parse_time
from shared.whatif.export import ExportOptions, SnapshotExporter
from shared.whatif.snapshot import AnnouncedMaintenance, ExportedNode, Snapshot

FIRST = parse_time("2026-11-23T12:00:00Z")
AGENT = {"vm": "vm-1", "scope": "group", "location": "west", "fault_domain": "2", "disabled": False}
BEAT = {"seq": 1, "age_ms": 10, "state": "live", "fault_domain": "7", "capacity": 5}
EVENT = {"not_before": "2026-11-23T12:20:00Z", "duration_s": -1, "nodes": {"n1": {}}, "rehearsal": False}
LISTS: dict[str, list[dict[str, Any]]] = {
    "fleets": [
        {
            "name": "store",
            "partitions": 8,
            "profile": "default",
            "generation": 3,
            "notify": {"channel": "pager"},
            "maintenance": {"lead": "PT30S", "transport": "arm", "probe": {"url": "https://internal.example/?key=hunter2"}},
        },
        {"name": "search", "partitions": 4},
    ],
    "schedules": [
        {"id": "often", "channel": "a", "cron": "*/5 * * * *", "timezone": "UTC", "next": "2026-11-23T12:10:00.000Z"},
        {"id": "nightly", "channel": "b", "cron": "30 2 * * *", "timezone": "UTC", "next": "2026-11-24T02:30:00.000Z"},
        {"id": "ended", "channel": "c", "cron": "30 2 * * *", "timezone": "UTC", "next": None},
    ],
    "fleets/store/nodes": [
        {"node": "n1", "beat": BEAT, "maintenance": AGENT, "turn": {"role": "secondary"}},
        {"node": "n2", "beat": None, "maintenance": {**AGENT, "disabled": True}, "turn": None},
        {"node": "n3", "beat": BEAT, "maintenance": None, "turn": {"role": "primary"}},
    ],
    "fleets/store/turns": [
        {"state": "done", "granted": "2026-11-23T11:00:00Z", "ended": "2026-11-23T11:01:30Z"},
        {"state": "timed-out", "granted": "2026-11-23T11:02:00Z", "ended": "2026-11-23T11:20:00Z"},
    ],
    "fleets/store/maintenance/events": [
        EVENT,
        {**EVENT, "rehearsal": True},
        {**EVENT, "started": "2026-11-23T11:59:00Z"},
        {**EVENT, "not_before": "2026-11-23T14:00:00Z"},
        {**EVENT, "not_before": None},
    ],
}


class FakeApi:
    """An app with fleets and nothing else."""

    def __init__(self) -> None:
        self.limits: list[int | None] = []

    def get(self, path: str, **query: Any) -> Any:
        return {"items": []} if path == "load" else {"retry": {"attempts": 3}, "limits": {"concurrency": 7}}

    def items(self, path: str, *, limit: int | None = None, **query: Any) -> Iterator[Any]:
        self.limits.append(limit)
        yield from LISTS.get(path, [])


def exported(*fleets: str, names: bool = True) -> Snapshot:
    options = ExportOptions(FIRST, FIRST + 3_600_000, fleets=fleets if names else None)
    return SnapshotExporter(FakeApi(), FakeApi(), lambda read: (read(), ""), "shop", options).read()


def test_schedules_without_an_occurrence_in_the_window_are_left_out() -> None:
    assert [each["cron"] for each in exported("store").schedules] == ["*/5 * * * *"]


def test_nodes_are_servers_agents_and_replicas_as_they_report() -> None:
    [fleet] = exported("store").fleets
    assert fleet.nodes == (
        ExportedNode("n1", "vm-1", "group", "west", "2", 5, True, True, "secondary", "7"),
        ExportedNode("n2", "vm-1", "group", "west", "2", 0, False, False, ""),
        ExportedNode("n3", "", "", "", "7", 5, True, False, "primary", "7"),
    )
    assert fleet.domains == ["2", "7"] and fleet.checkpoints_took == (90.0,)


def test_a_definition_has_no_probe_no_transport_and_no_channel_of_alarms() -> None:
    [fleet] = exported("store").fleets
    # The API does not show the former guard, and a new fleet would get the other one.
    assert fleet.definition == {"partitions": 8, "profile": "default", "maintenance": {"guard": "approve", "lead": "PT30S"}}
    assert "hunter2" not in exported("store").text()


def test_maintenance_counts_if_it_is_announced_for_the_window() -> None:
    [fleet] = exported("store").fleets
    assert fleet.announced == (AnnouncedMaintenance(("n1",), FIRST + 20 * 60_000, 7_000),)


def test_fleets_are_all_or_those_that_are_named() -> None:
    assert [fleet.name for fleet in exported(names=False).fleets] == ["store", "search"]
    assert exported().fleets == () and (exported().retry, exported().tenant_concurrency) == ({"attempts": 3}, 7)
