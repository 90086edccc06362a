"""Parts: an application gets them as values, knows none by name, and gives each its points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import pytest
from pydantic import Field, SecretStr

from shared.app.application import Application
from shared.app.given_functions import GivenFunctions
from shared.app.parts import Part, PartHost, PartService, PartTimer, schedules_of
from shared.app.routes import RouteTable
from shared.core.clock import SettableClock
from shared.core.errors import UnsafeSettings
from shared.core.ids import SeededIds
from shared.core.settings import GivenSettings, PartSettings, Settings
from shared.delivery.channels import Sender, open_senders
from shared.scheduler.keys import RowBesideId
from shared.storage import memory_storage
from shared.storage.names import IDS
from shared.storage.ports import Insert, Props
from shared.web.routes import Answer, Call, RouteGroup, Routes
from tests.unit.scheduler.harness import World, make_settings


class TallySettings(PartSettings):
    """Settings of the part of this test."""

    tally_step: int = Field(1, ge=1, description="Counted by each run.")

    def check(self, app: Settings) -> None:
        """See `PartSettings`."""
        if self.tally_step == 13:
            raise UnsafeSettings("TOCSIN_TALLY_STEP must not be 13")


class Tally(PartService):
    """Counts the runs of its timer."""

    def __init__(self, app: PartHost) -> None:
        self.step, self.clock = app.settings.of(TallySettings).tally_step, app.clock
        self.counts: Counter[str] = Counter()

    async def run_once(self, now: int) -> Mapping[str, int]:
        self.counts["runs"] += self.step
        return {"runs": self.step}

    def leave(self) -> None:
        self.counts["left"] += 1

    async def close(self) -> None:
        self.counts["closed"] += 1


group = RouteGroup[Tally]("tally")


@group.get("v1/tally", answers={204: None})
async def tally_get(call: Call[Tally]) -> Answer:
    """Answer."""
    return Answer(204, headers={"x-runs": str(call.service.counts["runs"])})


def add_routes(routes: Routes[Any]) -> None:
    routes.add(group, lambda app: app.part("tally"))


def note_of(tenant: str, event_id: str) -> tuple[RowBesideId, ...]:
    def ends(props: Props) -> bool:
        return props["last"] == event_id

    return (RowBesideId(f"{tenant}-00", "!note", ends),)


class Trace:
    """Keeps the lines of the trace."""

    def __init__(self, monotonic: Any) -> None:
        self.lines: list[str] = []

    @property
    def counters(self) -> Mapping[str, int]:
        return {"tally_lines": len(self.lines)}

    def take(self, text: str) -> None:
        self.lines.append(text)


sender = cast(Sender, object())
TALLY = Part(
    name="tally",
    settings=TallySettings,
    routes={"tally": add_routes},
    senders={"pigeon": lambda settings: sender},
    timers={
        "tally_scan": PartTimer(
            "0 0 * * * *",
            3600.0,
            "TOCSIN_TALLY_STEP",
            lambda settings: settings.of(TallySettings).tally_step > 1,
            lambda app: (("tally", lambda now: app.part("tally").run_once(now)),),
        )
    },
    beside_ids=note_of,
    trace=Trace,
    service=Tally,
)


async def opened(**settings: Any) -> World:
    world = World(**settings)
    world.app = await Application.open(
        world.settings,
        parts=(TALLY,),
        clock=world.clock,
        ids=SeededIds(1),
        storage=world.storage,
        senders={"queue": cast(Sender, world.receiver), "http": cast(Sender, world.receiver)},
    )
    return world


async def test_a_job_of_a_part_runs_where_its_settings_want_it_and_not_in_the_sweep() -> None:
    world = await opened(tally_step=3)
    assert await world.app.timers.run_once("tally_scan") == {"tally": {"runs": 3}}
    await world.do(world.app.timers.sweep())
    assert world.app.part("tally").counts["runs"] == 3
    await world.close()
    idle = await opened()
    assert "tally_scan" not in idle.app.part_timers
    await idle.close()


async def test_a_part_that_was_used_leaves_and_closes_with_its_application() -> None:
    world = await opened()
    tally = world.app.part("tally")
    await world.close()
    assert tally.counts["left"] > 0 and tally.counts["closed"] == 1


async def test_a_part_that_is_first_used_while_the_process_ends_starts_nothing() -> None:
    world = await opened()
    world.app.leave()
    assert world.app.part("tally").counts["left"] == 1
    await world.close()


async def test_a_wrong_setting_of_a_part_is_found_when_the_application_opens() -> None:
    for step, why in ((0, "TOCSIN_TALLY_STEP: .*greater than or equal to 1"), (13, "must not be 13")):
        with pytest.raises(UnsafeSettings, match=why):
            await opened(tally_step=step)


async def test_a_route_of_a_part_is_indexed_and_answered_by_its_service() -> None:
    table = RouteTable((TALLY,))
    indexed = next(each for each in table.index() if each.name == "tally_get")
    assert indexed.parts == ("tally",)
    world = await opened()
    assert table.find(indexed).service(world.app) is world.app.part("tally")
    assert "bigben_ping" not in {each.name for each in table.index()}
    await world.close()


def test_two_groups_of_routes_have_two_names() -> None:
    with pytest.raises(ValueError, match="events"):
        RouteTable((Part(name="other", routes={"events": add_routes}),))


def test_a_function_of_a_part_is_demanded_where_its_setting_is_given() -> None:
    assert schedules_of((TALLY,), {}) == schedules_of((TALLY,), {"TOCSIN_TALLY_STEP": " "}) == {}
    given = {"TOCSIN_TALLY_STEP": "not a number"}
    assert schedules_of((TALLY,), given) == {"tally_scan": "0 0 * * * *"}
    assert "tally_scan" in GivenFunctions(["sweep"], given, (TALLY,)).fault(make_settings(), second=False)
    assert "tally_scan" not in GivenFunctions(["sweep"], {}, (TALLY,)).fault(make_settings(), second=False)


async def test_a_channel_type_of_a_part_has_its_sender() -> None:
    clock = SettableClock()
    senders = open_senders(make_settings(), memory_storage(clock).queues, clock, TALLY.senders)
    assert senders["pigeon"] is sender


async def test_the_row_beside_an_id_is_removed_with_the_event_that_it_ends_with() -> None:
    world = await opened()
    for event in ("one", "two"):
        await world.demo.create(id=event, delay="PT1S")
    await world.tables.write(IDS, "demo-00", (Insert("!note", {"last": "two"}),))
    await world.run(5)
    await world.clock.advance(8 * 86_400)
    await world.do(world.app.timers.run_once("retention_scan"))
    assert world.rows(IDS, "demo-00") == []
    await world.close()


async def test_a_part_reads_the_trace_only_where_there_is_one() -> None:
    for trace, readers in (("off", 0), ("all", 1)):
        world = await opened(trace=trace)
        assert len(world.app.ports.trace_readers) == readers
        await world.close()


def test_settings_from_arguments_ignore_the_environment_for_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_TALLY_STEP", "5")
    storage: Any = "UseDevelopmentStorage=true"
    assert (Settings(storage=storage).of(TallySettings).tally_step, GivenSettings(storage=storage).of(TallySettings).tally_step) == (5, 1)


def test_settings_that_are_shown_leave_out_what_is_given_to_parts() -> None:
    given = Settings(storage=SecretStr("UseDevelopmentStorage=true"), tally_key="hunter2")
    assert "hunter2" not in repr(given) and "hunter2" not in str(given) and "body_limit" in repr(given)
