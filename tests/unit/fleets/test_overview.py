"""The order of fleets that need a person."""

from __future__ import annotations

import pytest

from shared.core.clock import SettableClock, to_text
from shared.fleets.overview import REASONS, Need, Overview, Source, needs_of, ranked
from shared.fleets.watch.alarms import ALARMS, Alarm, alarm_text
from shared.fleets.watch.rules import WatchState
from shared.fleets.watch.state import WATCHED, watch_state_props
from shared.leases.rows import INDEX as FLEET_INDEX
from shared.maintenance.service.alarms import ALARMS as MAINTENANCE_ALARMS
from shared.maintenance.service.figures import MaintenanceCare
from shared.storage.memory import MemoryTables
from shared.storage.names import FLEETS, MAINTENANCE, SWEEPS
from shared.storage.ports import Upsert
from tests.texts import assert_text

QUIET = WatchState()
UNSERVED = WatchState(alarms={"unserved": Alarm("unserved", 5, ("1", "2"), 2)})
OVER = WatchState(alarms={"unserved": Alarm("unserved", 5, ("1",), 1, cleared=9)})


def test_a_fleet_without_alarms_approvals_and_silent_agents_needs_nobody() -> None:
    assert needs_of(QUIET, MaintenanceCare(agents=150, open=51)) == []
    assert needs_of(OVER, MaintenanceCare({"silent": 0})) == []


def test_reasons_are_named_with_their_subjects_the_most_urgent_first() -> None:
    found = needs_of(UNSERVED, MaintenanceCare({"single-monitor": 1, "silent": 3}, waiting=2, silent=4, silent_nodes=("n1", "n2")))
    assert [(each.source, each.what, each.count) for each in found] == [
        ("leases", "unserved", 2),
        ("maintenance", "silent", 3),
        ("agents", "silent", 4),
        ("approvals", "waiting", 2),
        ("maintenance", "single-monitor", 1),
    ]
    assert found[0].subjects == ("1", "2") and found[0].since == 5


def test_fleets_are_in_the_order_of_urgency_then_of_the_number_of_reasons_then_of_names() -> None:
    fleets = {
        "quiet": needs_of(QUIET, MaintenanceCare()),
        "later": needs_of(QUIET, MaintenanceCare({"single-monitor": 1})),
        "soon": needs_of(QUIET, MaintenanceCare(waiting=1)),
        "b": needs_of(UNSERVED, MaintenanceCare()),
        "a": needs_of(UNSERVED, MaintenanceCare()),
        "c": needs_of(UNSERVED, MaintenanceCare(waiting=1)),
    }
    assert [name for name, _ in ranked(fleets.items())] == ["c", "a", "b", "soon", "later"]


@pytest.mark.parametrize(
    ("source", "what", "count", "text"),
    [
        ("leases", "unserved", 1, "1 partition without an owner"),
        ("leases", "unserved", 1200, "1,200 partitions without an owner"),
        ("agents", "silent", 1, "1 silent agent"),
        ("maintenance", "callers-affected", 1, "1 event that affects callers"),
        ("maintenance", "domains-down zone-1", 1, "too many fault domains down"),
        ("maintenance", "of-a-later-release", 2, "of a later release (2)"),
    ],
)
def test_a_reason_is_named_for_people_with_its_count(source: Source, what: str, count: int, text: str) -> None:
    assert Need(source, what, count).text == text


def test_every_alarm_has_a_text() -> None:
    def needs(source: Source) -> list[str]:
        return [Need(source, kind, count).text for kind in REASONS[source] for count in (1, 2)]

    assert_text("alarm.needs", needs("leases"))
    assert_text("alarm.maintenance-needs", needs("maintenance"))
    assert_text("alarm.maintenance", [f"{kind}: {each.sentence}" for kind, each in MAINTENANCE_ALARMS.items()])
    alarms = [Alarm(kind, 1, ("a", "b")[:count], count, cleared) for kind in ALARMS for count, cleared in ((1, 0), (2, 0), (1, 2))]
    assert_text("alarm.leases", [alarm_text("web", alarm) for alarm in alarms], since=to_text(1), cleared=to_text(2))


async def test_an_alarm_of_leases_says_since_when() -> None:
    tables = MemoryTables(SettableClock())
    await tables.ensure([FLEETS, SWEEPS, MAINTENANCE])
    await tables.write(FLEETS, FLEET_INDEX, (Upsert("demo:search", {}),))
    await tables.write(SWEEPS, WATCHED, (Upsert("demo:search", watch_state_props(UNSERVED)),))
    [found] = (await Overview(tables).page("demo", 10, 0)).model_dump(mode="json")["items"]
    [need] = found["needs"]
    assert (found["fleet"], need["what"], need["since"]) == ("search", "unserved", to_text(5))
