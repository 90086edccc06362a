"""The protocol trace: what it records of each transaction, of which partitions, and that it changes nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from shared.core.clock import SettableClock
from shared.core.errors import OutcomeUnknown
from shared.extras.verification.lines import parse_line
from shared.leases.node.keeper import LeaseKeeper
from shared.storage.blocking import MemoryBlockingTables
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, EVENTS, FLEETS, IDS
from shared.storage.ports import ANY, Applied, Insert, Merge, WriteRefused
from shared.storage.transition_trace import (
    LONGEST,
    MARK,
    TracedTables,
    TransitionTrace,
    is_sampled,
    parse_share,
    short_etag,
    traced_blocking,
)
from tests.faults import Faults, Perform, Plan, Request

GATE = {"state": "open", "holder": "w", "epoch": 0, "bytes": 7, "index": "i", "bucket": "b", "accepted": 1}
EVENT = {"state": "scheduled", "id": "secret-id", "body": "secret", "due": 5}


async def losing(request: Request, perform: Perform) -> Any:
    """Lose the answers to writes."""
    answer = await perform()
    if request.kind == "write":
        raise OutcomeUnknown("lost")
    return answer


def traced(share: float = 1.0, plan: Plan | None = None) -> tuple[TracedTables, list[str]]:
    clock, lines = SettableClock(), list[str]()
    tables = Faults(MemoryTables(clock), plan)
    asyncio.run(tables.ensure(ALL_TABLES))
    return TracedTables(tables, TransitionTrace("p", share, clock.now, lines.append)), lines


def test_a_transaction_is_one_line_with_its_etags_and_what_was_read_and_without_payloads() -> None:
    tables, lines = traced()

    async def play() -> None:
        await tables.write(EVENTS, "12-0a-t", [Insert("gate", GATE), Insert("e000", EVENT)])
        gate = await tables.get(EVENTS, "12-0a-t", "gate")
        assert gate is not None
        await tables.write(EVENTS, "12-0a-t", [Merge("gate", {**GATE, "state": "owned", "epoch": 1}, gate.etag)])
        refused = await tables.write(EVENTS, "12-0a-t", [Merge("gate", GATE, gate.etag)])
        assert isinstance(refused, WriteRefused)
        await tables.write(IDS, "12-0a-t", [Insert("id", {"at": "x"})])

    asyncio.run(play())
    first, second = (parse_line(line.removeprefix(MARK)) for line in lines)
    assert [(op.verb, op.rk, op.required) for op in first.ops] == [("i", "gate", ""), ("i", "e000", "")]
    assert first.ops[1].props == {"state": "scheduled"} and "secret" not in "".join(lines)
    assert second.ops[0].required == first.ops[0].given == second.seen["gate"].etag
    assert second.seen["gate"].props["state"] == "open" and [first.number, second.number] == [1, 2]


def test_addresses_of_servers_and_of_probes_are_not_traced() -> None:
    tables, lines = traced()
    definition = '{"maintenance":{"probe":{"url":"https://user:secret@probe"}},"checkpoints":{"drift":0.02}}'

    async def play() -> None:
        await tables.write(FLEETS, "acme:f", [Insert("s:s1", {"state": "live", "endpoint": "https://secret:8443"})])
        await tables.write(FLEETS, "acme:f", [Insert("fleet", {"partitions": 4, "rest": definition})])
        for rest in ("", "[]", "7"):
            await tables.write(FLEETS, "acme:f", [Merge("fleet", {"rest": rest}, ANY)])

    asyncio.run(play())
    assert len(lines) == 5 and "secret" not in "".join(lines)
    fleet = parse_line(lines[1].removeprefix(MARK)).ops[0].props
    assert fleet == {"partitions": 4, "rest": '{"checkpoints":{"drift":0.02}}'}, "turns depend on the drift"


def test_a_lost_answer_is_a_line_of_its_own_and_still_raised() -> None:
    tables, lines = traced(plan=losing)
    with pytest.raises(OutcomeUnknown):
        asyncio.run(tables.write(FLEETS, "t:f", [Insert("p:00000", {"owner": "", "epoch": 0})]))
    assert parse_line(lines[0].removeprefix(MARK)).lost


def test_a_partition_is_traced_whole_or_not_at_all_and_a_larger_share_contains_a_smaller_one() -> None:
    names = [f"{number:02x}-0abc{number}-t" for number in range(4000)]
    few, more = ({name for name in names if is_sampled(name, share)} for share in (0.05, 0.2))
    assert few < more and 100 < len(few) < 300 and 600 < len(more) < 1000
    tables, lines = traced(share=0.05)
    for name in names[:200]:
        asyncio.run(tables.write(EVENTS, name, [Insert("gate", GATE)]))
    assert {parse_line(line.removeprefix(MARK)).partition for line in lines} == few & set(names[:200])


def test_a_line_that_back_ends_would_cut_leaves_out_rows_of_events_and_says_so() -> None:
    trace = TransitionTrace("p", 1, lambda: 0, (lines := list[str]()).append)
    ops = [Insert("gate", GATE), *(Insert(f"e{number:03d}", {"state": "x" * 500}) for number in range(99))]
    trace.record_write("gate", "s", ops, Applied([str(number) for number in range(100)]))
    assert len(lines[0]) < LONGEST and parse_line(lines[0].removeprefix(MARK)).cut == 99


def test_lines_go_where_logs_go(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        TransitionTrace("p", 1, lambda: 0).record_write("gate", "s", [Insert("gate", GATE)], Applied(["1"]))
    assert [record.action for record in caplog.records] == ["protocol_step"] and caplog.messages[0].startswith(MARK)  # type: ignore[attr-defined]


def test_etags_of_the_service_are_shortened_and_stay_apart() -> None:
    first, second = (f"W/\"datetime'2026-11-24T09%3A05%3A11.{part}Z'\"" for part in ("1234567", "1234568"))
    assert (short_etag(first), short_etag("7")) == ("20261124090511" + "1234567", "7") and short_etag(first) != short_etag(second)


def test_threads_of_a_server_write_lines_under_one_name_and_nothing_stands_before_tables_without_a_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SettableClock()
    memory = MemoryTables(clock)
    asyncio.run(memory.ensure(ALL_TABLES))
    plain = MemoryBlockingTables(memory)
    assert traced_blocking(plain, "off", clock.now) is plain
    tables = traced_blocking(plain, "all", clock.now)
    with caplog.at_level(logging.INFO):
        tables.write(FLEETS, "t:f", [Insert("p:00000", {"owner": "", "epoch": 0})], timeout=1)
        row = tables.get(FLEETS, "t:f", "p:00000", timeout=1)
        assert row is not None
        tables.write(FLEETS, "t:f", [Merge("p:00000", {"owner": "a", "epoch": 1}, row.etag)], timeout=1)
    first, second = (parse_line(message.removeprefix(MARK)) for message in caplog.messages)
    assert first.by == second.by and second.seen["p:00000"].props == {"owner": "", "epoch": 0}


def test_a_server_with_a_wrong_setting_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_TRACE", "some")
    with pytest.raises(ValueError, match="TOCSIN_TRACE"):
        LeaseKeeper("fleet", "a", MemoryBlockingTables(MemoryTables(SettableClock())))


@pytest.mark.parametrize(("text", "share"), [("off", 0), ("all", 1), ("sampled:0.01", 0.01), ("sampled:1", 1), ("sampled:.5", 0.5)])
def test_the_setting_names_a_share(text: str, share: float) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize("text", ["", "on", "sampled", "sampled:2", "sampled:-1", "sampled:1e-2", "ALL"])
def test_another_setting_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="TOCSIN_TRACE must be"):
        parse_share(text)
