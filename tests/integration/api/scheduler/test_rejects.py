"""Rejects: messages of the ingest queue that could not be accepted. Their tenant, their lists, and that they contain no key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.core.errors import Unavailable
from shared.scheduler.ingest.messages import MAX_PRODUCER_MESSAGE
from shared.scheduler.ingest.rejects import without_keys
from shared.scheduler.timings import CARRIED_FROM_TRY, KEEP_FINISHED
from shared.storage.names import LEDGER
from shared.storage.ports import Message
from tests.unit.scheduler.harness import ADMIN, DEMO, START, World

from ..calls import GOOD, REJECTS, changes_nothing, code, letter, rejects, send, waiting

KEY = "tsn_abcdefghsecret"
BAD_MESSAGES = [
    ("", "malformed-json"),
    ("hello", "malformed-json"),
    ("[]", "invalid-content"),
    (f'{{"tenant": "demo", "key": "{KEY}", "event": {{', "malformed-json"),
    (f'{{"tenant": "demo", "key": "{KEY}', "malformed-json"),
    ({"tenant": "demo", "event": GOOD}, "invalid-content"),
    ({"tenant": "demo", "key": KEY}, "invalid-content"),
    ({"tenant": "demo", "key": KEY, "event": GOOD, "events": [GOOD]}, "invalid-content"),
    ({"tenant": "demo", "key": KEY, "events": None}, "invalid-content"),
    ({"tenant": "demo", "key": KEY, "events": []}, "invalid-content"),
    ({"tenant": "demo", "key": KEY, "event": GOOD, "colour": 1}, "invalid-content"),
    ({"tenant": "demo", "key": KEY, "event": GOOD}, "unauthenticated"),
    ({"tenant": "demo", "key": "x", "event": GOOD}, "unauthenticated"),
    ({"tenant": "nobody", "key": ADMIN, "event": GOOD}, "not-found"),
    ({"tenant": "demo:rejects", "key": ADMIN, "event": GOOD}, "not-found"),
    (f"tocsin1.{'0' * 32}.{{}}", "forged"),
]
BAD_ENVELOPES = [
    ({"tenant": "acme", "key": DEMO, "event": GOOD}, "not-your-tenant"),
    ({"tenant": "demo", "key": DEMO, "event": GOOD | {"payload": "x" * MAX_PRODUCER_MESSAGE}}, "content-too-large"),
    ({"tenant": "demo", "key": DEMO}, "invalid-content"),
    ({"key": DEMO, "event": GOOD}, "invalid-content"),
    ({"tenant": "demo", "key": DEMO, "event": GOOD, "colour": 1}, "invalid-content"),
    (f'{{"tenant": "demo", "key": "{DEMO}", "event": {{"delay": "PT1M", "payload": 1}},}}', "malformed-json"),
]


@pytest.mark.parametrize(("body", "expected"), BAD_MESSAGES)
async def test_a_message_of_an_unknown_sender_is_shown_to_admins_without_its_key(world: World, body: Any, expected: str) -> None:
    await send(world, body)
    await world.run(1)
    assert world.events() == [] and waiting(world) == 0
    assert await rejects(world.demo) == [] and await rejects(world.admin, "?tenant=demo") == []
    [reject] = await rejects(world.admin)
    assert code(reject) == expected and "tenant" not in reject
    for key in (KEY, DEMO, ADMIN):
        assert key not in reject["message"] and key not in json.dumps(reject["problem"])


@pytest.mark.parametrize(("body", "expected"), BAD_ENVELOPES)
async def test_a_message_with_a_tenants_key_is_that_tenants_reject_whatever_else_is_wrong(world: World, body: Any, expected: str) -> None:
    acme = await world.tenant("acme")
    await send(world, body)
    await world.run(1)
    assert world.events() == [] and waiting(world) == 0
    [reject] = await rejects(world.demo)
    assert (code(reject), reject["tenant"]) == (expected, "demo") and DEMO not in json.dumps(reject)
    assert await rejects(acme) == [] and await rejects(world.admin) == []


async def test_a_bad_envelope_comes_again_while_its_key_cannot_be_looked_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise Unavailable("throttled")

    message = Message("m", "", json.dumps({"key": str((await world.tenant("acme")).key), "event": GOOD}), 1, START)
    await world.clock.advance(60)
    with monkeypatch.context() as patch, pytest.raises(Unavailable):
        patch.setattr(world.tables, "get", away)
        await world.do(world.app.scheduler.intake.serve(message))
    assert await rejects(world.admin) == []


async def test_a_message_that_is_not_utf_8_is_a_reject(world: World) -> None:
    await world.do(world.app.scheduler.intake.serve(Message("m", "", b'{"tenant":\xff\x00'.decode(errors="surrogateescape"), 1, START)))
    [reject] = await rejects(world.admin)
    assert code(reject) == "malformed-json" and reject["message"] == '{"tenant":?\ufffd'


@pytest.mark.parametrize("begin", [b"", b"tocsin1."])
@pytest.mark.parametrize("poison_queue", [False, True])
async def test_a_message_that_is_not_utf_8_is_a_reject_also_after_failures(world: World, begin: bytes, poison_queue: bool) -> None:
    intake = world.app.scheduler.intake
    message = Message("m", "", (begin + b"\xff").decode(errors="surrogateescape"), 1 if poison_queue else CARRIED_FROM_TRY, START)
    await world.do(intake.poisoned(message) if poison_queue else intake.serve(message))
    [reject] = await rejects(world.admin)
    assert code(reject) == "malformed-json" and waiting(world) == 0


async def test_a_key_needs_the_scope(world: World) -> None:
    client = await world.tenant("acme", ["fleets"])
    await send(world, letter(GOOD, tenant="acme", key=str(client.key)))
    await world.run(1)
    [reject] = await rejects(world.admin, "?tenant=acme")
    assert code(reject) == "missing-scope" and str(client.key) not in json.dumps(reject)


def test_keys_go_out_of_what_is_kept_however_they_are_written() -> None:
    assert without_keys('{"k\\u0065y": "secret", "a": 1}') == '{"key":"***","a":1}'
    assert without_keys('{"key" : "sec\\"ret", "a": ') == '{"key" : "***", "a": '


SPELLED = "".join(f"\\u{ord(letter):04X}" for letter in "tsn_Abc123")


@pytest.mark.parametrize(
    "message",
    [
        f'{{"event": {{"payload": "{SPELLED}"}}}}',
        f'{{"event": {{"payload": "a {SPELLED[:24]}Abc123"}}, ',
        f'["{SPELLED}"]',
        f'{{"k\\u0065y": "{SPELLED}", "a": ',
        '{"k\\u0065y": "secret-Abc123", "a": ',
        f'"{SPELLED}',
    ],
)
def test_keys_spelled_with_escapes_go_too(message: str) -> None:
    kept = without_keys(message)
    assert "Abc123" not in kept and "0041" not in kept and "***" in kept


@pytest.mark.parametrize("message", ['{"a": "\\\\u0074sn_"}', '{"a": "\\u00e9\\u0022\\n"}', "\\u00", "plain"])
def test_other_escapes_stay_as_sent(message: str) -> None:
    assert without_keys(message) == message
    assert without_keys('{"key":"sec\\') == '{"key":"***"'
    assert without_keys('{"event": {"x": "tsn_abcd1234efgh"}}') == '{"event": {"x": "***"}}'
    assert without_keys("no key here") == "no key here"


async def test_rejects_are_listed_by_time_and_removed_one_by_one(world: World) -> None:
    for _ in range(5):
        await send(world, letter({"delay": "PT1M"}, {"delay": "PT2M"}))
        await world.run(10, step=1.0)
    found = await rejects(world.demo)
    assert len(found) == 10 and [each["at"] for each in found] == sorted(each["at"] for each in found)
    assert [len(page) for page in await world.demo.pages(f"{REJECTS}?limit=4")] == [4, 4, 2]
    assert await rejects(world.demo, "?limit=3") == found
    first, third = to_text(START), to_text(START + 20_000)
    assert await rejects(world.demo, f"?from={first}&to={third}") == found[:4]
    assert await rejects(world.demo, f"?from={third}") == found[4:]
    one = f"{REJECTS}/{found[0]['id']}"
    assert (await changes_nothing(world.demo, "DELETE", one, if_match='"other"')).status == 412
    assert (await changes_nothing((await world.tenant()), "DELETE", one)).status == 404
    assert (await changes_nothing(world.admin, "DELETE", one)).status == 404
    assert (await world.demo.delete(one)).status == 204
    assert (await changes_nothing(world.demo, "DELETE", one)).status == 404
    assert (await changes_nothing(world.demo, "DELETE", f"{REJECTS}/nonsense")).status == 404
    assert await rejects(world.admin, "?tenant=demo") == found[1:]


async def test_rejects_of_others_are_not_to_be_seen(world: World) -> None:
    client = await world.tenant()
    await send(world, letter(17))
    await send(world, "hello")
    await world.run(1)
    assert await rejects(client) == []
    assert (await client.get(f"{REJECTS}?tenant=demo")).status == 403
    assert (await world.nobody.get(REJECTS)).status == 401
    fleets = await world.key("acme", ["fleets"])
    assert (await fleets.get(REJECTS)).status == 403
    admin_of_acme = await world.key("acme", ["admin"])
    assert await rejects(admin_of_acme) == []
    assert len(await rejects(admin_of_acme, "?tenant=demo")) == 1


async def test_a_message_that_comes_again_makes_no_second_reject(world: World) -> None:
    message = Message("m1", "", json.dumps(letter(17, 18)), 1, START)
    other = Message("m2", "", "hello", 1, START)
    for each in (message, message, other, other):
        await world.do(world.app.scheduler.intake.serve(each))
    assert len(await rejects(world.demo)) == 2 and len(await rejects(world.admin)) == 1


async def test_rejects_go_after_a_week_and_the_ledger_never_sees_them(world: World) -> None:
    await world.tenant()
    await send(world, letter(*[17] * 120))
    await send(world, "hello")
    await send(world, letter(GOOD))
    await world.run(80)
    assert (await world.demo.get("/api/v1/stats")).json()["delivered"] == 1
    assert len(world.rows(LEDGER, "demo:rejects")) == 120 and len(world.rows(LEDGER, "demo")) >= 1
    await world.clock.advance(KEEP_FINISHED / 1000 - 100)
    await world.do(world.app.timers.run_once("retention_scan"))
    assert len(world.rows(LEDGER, "demo:rejects")) == 120
    await world.clock.advance(200)
    await world.do(world.app.timers.run_once("retention_scan"))
    assert world.rows(LEDGER, "demo:rejects") == [] and world.rows(LEDGER, ":rejects") == []
