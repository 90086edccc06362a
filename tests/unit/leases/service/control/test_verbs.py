"""Operators' verbs, end to end: the word, the orders it leads to, and servers that follow them with their next beat."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.errors import OutcomeUnknown, Problem
from shared.leases.rows import NO_PARTITION, Fleet, Intent, Partition
from shared.leases.service.control.verbs import MAX_INTENTS, ControlRequest, decide
from shared.storage.names import FLEETS
from shared.storage.ports import Applied, Merge, RowQuery
from tests.logs import actions

from ...nodes import Node, World, pair, settle

HOUR = 3_600_000


@pytest.fixture
async def world() -> World:
    return await World().open()


async def refused(world: World, *said: Any, **more: Any) -> tuple[int, str]:
    with pytest.raises(Problem) as caught:
        await world.say(*said, **more)
    return caught.value.status, caught.value.code


async def test_a_drained_server_loses_all_with_its_next_beat_and_gets_a_share_again_once_undrained(world: World) -> None:
    key, a, b = await pair(world)
    said = await world.say("drain", server="a", note="new disk")
    assert (said.verb, said.server, said.note, said.author, said.exit) == ("drain", "a", "new disk", "abc", False)
    await a.beat()
    assert a.has == set()
    await b.beat()
    assert b.has == {0, 1, 2, 3}
    assert await world.intents(key) == [said]
    undone = await world.say("undrain", server="a")
    assert undone.key == said.key and await world.intents(key) == []
    for _ in range(3):
        await world.scan()
        await settle(b, a)
    assert len(a.has) == len(b.has) == 2


async def test_drain_with_exit_orders_the_server_to_end_and_undrain_withdraws_that(world: World) -> None:
    key, a, _ = await pair(world)
    await world.say("drain", server="a")
    assert (await world.server(key, "a")).tell == "drain", "it speaks HTTP: its beats say so"
    await world.say("drain", server="a", exit=True)
    assert (await world.server(key, "a")).tell == "exit"
    await a.beat()
    assert a.session.tell == "exit" and a.has == set()
    await world.say("undrain", server="a")
    assert (await world.server(key, "a")).tell == ""


@pytest.mark.parametrize("exits", [False, True])
async def test_a_drain_that_expires_is_untold(world: World, exits: bool) -> None:
    key, a, b = await pair(world)
    await world.say("drain", server="a", exit=exits, expires=world.clock.now() + 10_000)
    await settle(a, b)
    assert (await world.scan())["untold"] == 0 and (await world.server(key, "a")).tell
    await world.clock.advance(10)
    for _ in range(3):
        await world.scan()
        await settle(b, a)
    assert (await world.server(key, "a")).tell == "" and len(a.has) == 2


async def test_only_http_servers_learn_of_a_drain_and_until_neither_drain_nor_prohibition_stands(world: World) -> None:
    key = await world.fleet()
    await Node(world, key, "a", scans=True).join()
    await Node(world, key, "b").join()
    for verb, tells in {"drain": ("", "drain"), "prohibit": ("", "drain"), "undrain": ("", "drain"), "permit": ("", "")}.items():
        for name, tell in zip("ab", tells, strict=True):
            await world.say(verb, server=name)
            assert (await world.server(key, name)).tell == tell, (verb, name)


async def test_a_report_that_comes_while_the_watch_looks_is_not_withdrawn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _, _ = await pair(world)
    real = world.tables.query

    async def said_after_the_intents_were_read(asked: RowQuery) -> Any:
        if asked.table == FLEETS and asked.first == "s:":
            monkeypatch.undo()
            await world.say("drain", server="a", exit=True)
        return await real(asked)

    monkeypatch.setattr(world.tables, "query", said_after_the_intents_were_read)
    await world.scan()
    assert (await world.server(key, "a")).tell == "exit"


async def test_a_prohibited_pair_is_never_claimed_even_when_other_servers_end(world: World) -> None:
    _, a, b = await pair(world)
    number = min(a.has)
    await world.say("prohibit", number, "a")
    await settle(a, b)
    assert number in b.has and len(b.has) == 2
    await world.say("drain", server="b")
    await settle(b, a)
    assert a.has == {0, 1, 2, 3} - {number} and b.has == {number}
    await world.say("permit", number, "a")
    await settle(b, a)
    assert a.has == {0, 1, 2, 3}


async def test_a_prohibited_server_gets_nothing_even_when_it_joins_later(world: World) -> None:
    key = await world.fleet()
    await world.say("prohibit", server="a")
    a, b = await Node(world, key, "a").join(), await Node(world, key, "b").join()
    await world.scan()
    await settle(a, b)
    assert (a.has, b.has) == (set(), {0, 1, 2, 3})
    await world.say("permit", server="a")
    await world.scan()
    await settle(b, a)
    assert a.has


async def test_a_pinned_partition_goes_to_its_server_and_stays_there(world: World) -> None:
    key, a, b = await pair(world)
    number = min(a.has)
    await world.say("pin", number, "b")
    await settle(a, b)
    assert number in b.has
    await world.say("drain", server="b")
    await settle(b, a)
    assert number in a.has, "a pin holds nobody to a server that may have nothing"
    await world.say("undrain", server="b")
    await settle(a, b)
    assert number in b.has
    await world.say("unpin", number)
    assert await world.intents(key) == []


async def test_offline_ends_service_within_a_beat_and_online_brings_it_back_under_a_higher_epoch(world: World) -> None:
    key, a, b = await pair(world)
    number = min(a.has)
    epoch = (await world.partition(key, number)).epoch
    await world.say("offline", number)
    await a.beat()
    assert number not in a.has
    await settle(b, a)
    await world.scan()
    await settle(b, a)
    assert number not in a.has | b.has
    await world.say("online", number)
    await settle(a, b)
    assert number in a.has | b.has
    assert (await world.partition(key, number)).epoch == epoch + 1


async def test_bump_hands_off_and_claims_again_once(world: World) -> None:
    key, a, b = await pair(world)
    number = min(a.has)
    epoch = (await world.partition(key, number)).epoch
    await world.say("bump", number)
    await settle(a, b)
    assert number in a.has and (await world.partition(key, number)).epoch == epoch + 1
    await world.scan()
    await settle(a, b)
    assert (await world.partition(key, number)).epoch == epoch + 1
    assert (await world.inspect())["expired"] == 1 and await world.intents(key) == []


async def test_bump_with_a_server_prohibits_that_one_for_as_long(world: World) -> None:
    key, a, b = await pair(world)
    number = min(a.has)
    await world.say("bump", number, "a", expires=world.clock.now() + HOUR)
    await settle(a, b)
    assert number in b.has
    [prohibited] = [intent for intent in await world.intents(key) if intent.verb == "prohibit"]
    assert (prohibited.partition, prohibited.server, prohibited.expires) == (number, "a", world.clock.now() + HOUR)


async def test_expiry_ends_a_manual_control_and_counts_as_a_change(world: World) -> None:
    key, a, b = await pair(world)
    number = min(a.has)
    await world.say("offline", number, expires=world.clock.now() + 10_000)
    await settle(a, b)
    changes = (await world.row(key)).changes
    await world.clock.advance(10)
    assert await world.control.intents("demo", "fleet") == []
    counts = await world.scan()
    assert counts["expired"] == 1 and (await world.row(key)).changes == changes + 1 and await world.intents(key) == []
    await settle(a, b)
    assert number in a.has | b.has


async def test_a_repeated_manual_control_changes_nothing_and_is_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    key, _, _ = await pair(world)
    first = await world.say("offline", 1)
    changes = (await world.row(key)).changes
    await world.clock.advance(1)
    assert await world.say("offline", 1) == first
    assert (await world.row(key)).changes == changes
    other = await world.say("offline", 1, note="another reason")
    assert other.note == "another reason" and len(await world.intents(key)) == 1
    logged = [record.getMessage() for record in caplog.records if getattr(record, "action", "") == "lease_control"]
    assert len(logged) == 2 and [part for part in (key, "offline", "partition 1", "abc", "another reason") if part not in logged[1]] == []


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (("online", 1), "not-offline"),
        (("unpin", 1), "not-pinned"),
        (("permit", 1, "a"), "not-prohibited"),
        (("permit", NO_PARTITION, "a"), "not-prohibited"),
        (("undrain", NO_PARTITION, "a"), "not-drained"),
        (("bump", 1), "not-owned"),
    ],
)
async def test_what_cannot_be_answers_409_and_changes_nothing(world: World, said: tuple[Any, ...], code: str) -> None:
    key = await world.fleet()
    await Node(world, key, "a").join()
    before = await world.row(key)
    assert await refused(world, *said) == (409, code)
    assert (await world.row(key), await world.intents(key)) == (before, [])


async def test_an_expired_manual_control_has_no_effect(world: World) -> None:
    key = await world.fleet()
    await world.say("offline", 1, expires=world.clock.now() + 1000)
    await world.clock.advance(1)
    assert await refused(world, "online", 1) == (409, "not-offline")
    changes = (await world.row(key)).changes
    await world.say("offline", 1)
    assert (await world.row(key)).changes == changes + 1 and [intent.expires for intent in await world.intents(key)] == [0]


async def test_a_server_prohibited_for_a_partition_cannot_get_it_pinned(world: World) -> None:
    await world.fleet()
    await world.say("prohibit", 1, "a")
    assert await refused(world, "pin", 1, "a") == (409, "prohibited")
    await world.say("pin", 1, "b")
    await world.say("pin", 1, "c")
    assert [intent.server for intent in await world.control.intents("demo", "fleet") if intent.verb == "pin"] == ["c"]


async def test_what_is_not_there_answers_404(world: World) -> None:
    await world.fleet()
    assert (await refused(world, "offline", 4))[0] == 404
    assert (await refused(world, "drain", server="nobody"))[0] == 404
    assert (await refused(world, "offline", 1, fleet="other"))[0] == 404
    await world.say("prohibit", server="nobody")


def test_texts_are_bounded() -> None:
    intents = [Intent("prohibit", 1, f"s{number}") for number in range(MAX_INTENTS)]
    word = ControlRequest("prohibit", 2, "s", "why", "abc", 1)
    with pytest.raises(Problem) as caught:
        decide(word, Fleet(4), intents, Partition(2), None)
    assert caught.value.code == "too-many-intents"
    assert decide(ControlRequest("permit", 1, "s0", "why", "abc", 1), Fleet(4), intents, Partition(1), None).ops


async def test_a_manual_control_with_a_lost_answer_is_found_applied_and_not_repeated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    key = await world.fleet()
    real = world.tables.write

    async def loses(table: str, pk: str, ops: Any) -> Any:
        answer = await real(table, pk, ops)
        if table == FLEETS and isinstance(answer, Applied):
            monkeypatch.undo()
            raise OutcomeUnknown("the answer is lost")
        return answer

    for verb in ("offline", "online"):
        changes = (await world.row(key)).changes
        monkeypatch.setattr(world.tables, "write", loses)
        assert (await world.say(verb, 1)).partition == 1
        assert (await world.row(key)).changes == changes + 1
    assert await world.intents(key) == []


async def test_a_beat_or_another_operator_in_between_is_no_failure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _, _ = await pair(world)
    real, disturbed = world.tables.write, 0

    async def disturbs(table: str, pk: str, ops: Any) -> Any:
        nonlocal disturbed
        if disturbed < 3 and table == FLEETS and ops[0].rk == "fleet":
            disturbed += 1
            await real(FLEETS, key, [Merge("fleet", {"changes": (await world.row(key)).changes + 1}, "*")])
        return await real(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", disturbs)
    await world.say("drain", server="a", exit=True)
    assert disturbed == 3 and [intent.verb for intent in await world.intents(key)] == ["drain"]


async def test_a_dry_run_shows_moves_with_reasons_and_does_nothing(world: World) -> None:
    key, a, b = await pair(world)
    planned = await world.control.plan("demo", "fleet", dry_run=True)
    assert planned.plan.moves == () and planned.settled
    c = await Node(world, key, "c").join()
    planned = await world.control.plan("demo", "fleet", dry_run=True)
    assert [(move.target, move.reason) for move in planned.plan.moves] == [("c", "balance")]
    await settle(a, b, c)
    assert c.has == set()
    planned = await world.control.plan("demo", "fleet", dry_run=False)
    assert planned.ordered == len(planned.orders) == 2
    await settle(a, b, c)
    assert len(c.has) == 1


async def test_orders_are_given_though_servers_beat_in_between(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _, a, _ = await pair(world)
    real, beats = world.tables.write, 0

    async def disturbs(table: str, pk: str, ops: Any) -> Any:
        nonlocal beats
        if beats < 1 and ops[0].rk == "s:a" and "take" in ops[0].props and "beat" not in ops[0].props:
            beats += 1
            await a.beat()
        return await real(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", disturbs)
    await world.say("drain", server="a")
    assert beats == 1
    await a.beat()
    assert a.has == set()


async def test_a_manual_control_stands_though_its_orders_cannot_be_given(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    _, a, _ = await pair(world)

    async def away(*_: Any) -> Any:
        raise OutcomeUnknown("away")

    monkeypatch.setattr(world.control._planning, "look", away)
    await world.say("drain", server="a")
    assert actions(caplog, "WARNING") == ["lease_orders_wait"]
    monkeypatch.undo()
    await world.scan()
    await a.beat()
    assert a.has == set()
