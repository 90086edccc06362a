"""Locks over HTTP: grants, renewals, waiters, lost answers, revocations and limits."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest

from shared.locks import service
from shared.locks.rows import parse_lock
from shared.locks.timings import MOST_ENDED
from shared.storage.names import TURNS
from shared.storage.ports import Row
from tests.unit.scheduler.harness import Client, World


async def ask(client: Client, holder: str, *, lock: str = "nightly", **body: Any) -> tuple[int, dict[str, Any]]:
    """Ask for a lock of 10 s; return the status and the body."""
    reply = await client.put(f"/api/v1/locks/{lock}", {"holder": holder, "nonce": "n1", "ttl": "PT10S", **body})
    return reply.status, reply.json()


async def release(client: Client, holder: str, nonce: str = "n1", *, lock: str = "nightly") -> int:
    return (await client.delete(f"/api/v1/locks/{lock}?holder={holder}&nonce={nonce}")).status


async def held(client: Client, holder: str, **body: Any) -> dict[str, Any]:
    status, answer = await ask(client, holder, **body)
    assert (status, answer["state"], answer["valid_ms"]) == (200, "held", 10_000)
    return answer


def code(answer: tuple[int, dict[str, Any]]) -> tuple[int, str]:
    return answer[0], answer[1]["type"].rpartition("/")[2]


async def test_one_holds_the_lock_until_it_releases_it(world: World) -> None:
    demo = world.demo
    first = await held(demo, "a")
    assert code(await ask(demo, "b")) == (409, "lock-held")
    assert await release(demo, "a") == 204 == await release(demo, "a")
    second = await held(demo, "b")
    assert second["token"] > first["token"]
    assert code(await ask(demo, "a", token=first["token"])) == (409, "lock-lost")


async def test_a_grant_that_is_not_renewed_runs_out_for_others_after_its_holder_has_stopped(world: World) -> None:
    demo = world.demo
    first = await held(demo, "a")
    await world.clock.advance(12)
    assert code(await ask(demo, "b")) == (409, "lock-held"), "the margins for drift and for the clocks of storage are not over"
    await world.clock.advance(2)
    assert (await held(demo, "b"))["token"] > first["token"]
    assert code(await ask(demo, "a", token=first["token"], version=first["version"])) == (409, "lock-lost")


async def test_a_renewal_keeps_the_token_and_the_lock(world: World) -> None:
    demo = world.demo
    answer = first = await held(demo, "a")
    for _ in range(5):
        await world.clock.advance(8)
        answer = await held(demo, "a", token=first["token"], version=answer["version"])
    assert answer["token"] == first["token"]
    assert code(await ask(demo, "b")) == (409, "lock-held")


async def test_a_repeated_request_gets_the_same_grant_and_a_late_one_nothing(world: World) -> None:
    demo = world.demo
    first = await held(demo, "a")
    assert (await held(demo, "a"))["token"] == first["token"]
    assert code(await ask(demo, "a", nonce="n2")) == (409, "lock-held"), "another attempt of the same holder"
    await release(demo, "a")
    assert code(await ask(demo, "a")) == (409, "lock-lost"), "the request was under way until after the release"
    assert (await held(demo, "a", nonce="n2"))["token"] > first["token"]


async def test_a_waiter_that_has_vanished_keeps_a_free_lock_from_others_for_half_a_minute_at_most(world: World) -> None:
    demo = world.demo
    await held(demo, "a")
    assert (await ask(demo, "b", wait="PT5M"))[0] == 202
    await world.clock.advance(20)
    assert (await ask(demo, "c", wait="PT5M"))[0] == 202, "a vanished too, and b comes first"
    await world.clock.advance(6)
    await held(demo, "c")
    shown = (await demo.get("/api/v1/locks/nightly")).json()
    assert [each["holder"] for each in shown["waiters"]] == ["b"], "it keeps its place"


async def test_a_waiter_with_a_long_time_out_that_asks_as_it_is_told_is_not_passed_over(world: World) -> None:
    demo = world.demo
    await held(demo, "a", ttl="PT10S")
    for _ in range(20):
        assert (await ask(demo, "b", wait="PT5M"))[0] == 202
        assert (await ask(demo, "c", wait="PT5M"))[0] == 202
        await held(demo, "a")
        await world.clock.advance(5)
    await release(demo, "a")
    assert (await ask(demo, "c", wait="PT5M"))[0] == 202, "b comes first"
    await held(demo, "b")


async def test_a_late_request_of_an_attempt_that_has_ended_gets_nothing_whoever_had_the_lock_since(world: World) -> None:
    demo = world.demo
    for holder in ("a", "b", "c"):
        await held(demo, holder)
        await release(demo, holder)
    for holder in ("a", "b", "c"):
        assert code(await ask(demo, holder)) == (409, "lock-lost")
    await held(demo, "d")
    await world.clock.advance(20)
    await held(demo, "e")
    assert code(await ask(demo, "d")) == (409, "lock-lost"), "d vanished, and e got the lock: d has had its grant"
    assert (await demo.get("/api/v1/locks/nightly")).json()["holder"] == "e"


async def test_a_release_that_comes_before_its_request_leaves_the_lock_to_others(world: World) -> None:
    demo = world.demo
    assert await release(demo, "a") == 204, "no such lock yet"
    assert code(await ask(demo, "a")) == (409, "lock-lost")
    await held(demo, "b")
    assert await release(demo, "c") == 204, "c neither holds the lock nor waits for it"
    assert code(await ask(demo, "c", wait="PT5S")) == (409, "lock-lost")
    await held(demo, "b")
    assert (await demo.get("/api/v1/locks/nightly")).json()["waiters"] == []


async def test_ended_attempts_are_remembered_for_two_minutes_and_in_a_bounded_number(world: World) -> None:
    demo = world.demo
    for number in range(MOST_ENDED + 5):
        await release(demo, "a", f"n{number}")
    assert code(await ask(demo, "a", nonce=f"n{MOST_ENDED + 4}")) == (409, "lock-lost")
    await held(demo, "a", nonce="n0")
    await release(demo, "a", "n0")
    await world.clock.advance(130)
    await held(demo, "b")
    [row] = [row for row in world.rows(TURNS) if row.rk == "nightly"]
    assert len(parse_lock(row).ended) <= 1


async def test_a_wrong_token_releases_nothing_and_says_who_holds_the_lock(world: World) -> None:
    demo = world.demo
    token = (await held(demo, "a"))["token"]
    answer = await demo.delete(f"/api/v1/locks/nightly?token={token + 1}")
    assert answer.status == 409 and answer.json()["type"].endswith("/lock-held")
    assert f"a does, with token {token}" in answer.json()["detail"]
    assert [(await demo.delete(f"/api/v1/locks/nightly?token={token}")).status for _ in range(2)] == [204, 204]


async def test_a_version_renews_only_the_grant_of_the_attempt_that_got_it(world: World) -> None:
    demo = world.demo
    first = await held(demo, "a")
    known = {"token": first["token"], "version": first["version"]}
    assert code(await ask(demo, "b", **known)) == (409, "lock-lost")
    assert code(await ask(demo, "a", nonce="n2", **known)) == (409, "lock-lost")
    token, _, etag, mark = json.loads(urlsafe_b64decode(first["version"] + "==="))
    for ttl in (10**12, -1, 3_600_001):
        forged = urlsafe_b64encode(json.dumps([token, ttl, etag, mark]).encode()).decode().rstrip("=")
        await held(demo, "a", token=first["token"], version=forged)


async def test_waiters_get_the_lock_in_order_and_those_that_left_are_passed_over(world: World) -> None:
    demo = world.demo
    await held(demo, "a")
    for ahead, waiter in enumerate("bcd"):
        status, answer = await ask(demo, waiter, wait="PT4S")
        assert (status, answer["state"], answer["ahead"]) == (202, "waiting", ahead)
        assert 0 < answer["retry_ms"] <= 1000
    assert await release(demo, "c") == 204
    await release(demo, "a")
    assert code(await ask(demo, "e")) == (409, "lock-held"), "whoever does not wait comes after the waiters"
    assert (await ask(demo, "d", wait="PT4S"))[0] == 202
    # b does not ask again: after its time-out the next waiter gets the lock.
    for _ in range(8):
        await world.clock.advance(1)
        status, answer = await ask(demo, "d", wait="PT4S")
    assert (status, answer["state"]) == (200, "held")
    shown = (await demo.get("/api/v1/locks/nightly")).json()
    assert (shown["holder"], shown["waiters"]) == ("d", [])


async def test_callers_that_come_together_to_one_process_write_one_after_the_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    demo, counts = world.demo, world.tables.transactions
    read = world.tables.get

    async def get(*key: str) -> Row | None:
        row = await read(*key)
        await asyncio.sleep(0)  # the others go on
        return row

    monkeypatch.setattr(world.tables, "get", get)
    assert (await ask(demo, "a", ttl="PT1H"))[0] == 200

    async def costs(*asks: Any) -> tuple[int, list[Any]]:
        before = counts["write"]
        answers = await asyncio.gather(*asks)
        return counts["write"] - before, answers

    def waiters() -> list[Any]:
        return [ask(demo, f"w{number}", wait="PT20S") for number in range(40)]

    writes, answers = await costs(*waiters())
    assert writes == 40, "no write is refused, because another caller was faster"
    assert sorted(answer["ahead"] for _, answer in answers) == list(range(40))
    await world.clock.advance(6)
    assert (await costs(*waiters()))[0] == 0, "a request is stored after 7.5 s"
    await world.clock.advance(4)
    assert (await costs(*waiters()))[0] == 40


async def test_a_revoked_grant_ends_only_when_its_holder_has_stopped(world: World) -> None:
    demo = world.demo
    first = await held(demo, "a")
    reply = await demo.post("/api/v1/locks/nightly/revoke", {"note": "it blocks the release"})
    assert (reply.status, reply.json()) == (202, {"free_after_ms": 12_203})
    assert code(await ask(demo, "a", token=first["token"], version=first["version"])) == (409, "lock-lost")
    shown = (await demo.get("/api/v1/locks/nightly")).json()
    assert (shown["state"], shown["note"]) == ("revoked", "it blocks the release")
    assert code(await ask(demo, "b")) == (409, "lock-held")
    await world.clock.advance(13)
    assert (await held(demo, "b"))["token"] > first["token"]


async def test_whoever_knows_that_a_holder_has_stopped_releases_its_token(world: World) -> None:
    demo = world.demo
    first = await held(demo, "a")
    assert (await demo.delete("/api/v1/locks/nightly?token=7")).status == 409
    assert code(await ask(demo, "b")) == (409, "lock-held"), "another token"
    stale = {"if-match": '"x"'}
    assert (await demo.delete(f"/api/v1/locks/nightly?token={first['token']}", headers=stale)).status == 412
    shown = {"if-match": (await demo.get("/api/v1/locks/nightly")).headers["etag"]}
    assert (await demo.delete(f"/api/v1/locks/nightly?token={first['token']}", headers=shown)).status == 204
    await held(demo, "b")
    assert (await demo.delete("/api/v1/locks/nightly")).status == 422


async def test_locks_are_listed_by_name_and_belong_to_their_tenant(world: World) -> None:
    demo = world.demo
    names = sorted(f"job-{number}" for number in range(30))
    for each in names:
        await held(demo, "a", lock=each)
    found: list[str] = []
    cursor = ""
    while True:
        body = (await demo.get(f"/api/v1/locks?limit=7{cursor}")).json()
        found += [each["name"] for each in body["items"]]
        if body["next"] is None:
            break
        cursor = f"&cursor={body['next']}"
    assert found == names
    other = await world.tenant("other")
    assert (await other.get("/api/v1/locks")).json()["items"] == []
    assert (await other.get("/api/v1/locks/job-1")).status == 404
    assert (await held(other, "b", lock="job-1"))["state"] == "held"


async def test_a_page_of_locks_ends_early_when_many_wait_for_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_SHOWN", 5)
    monkeypatch.setattr(service, "AT_ONCE", 2)
    names = sorted(f"job-{number}" for number in range(70))
    for each in names:
        await held(world.demo, "a", lock=each)
    for each in names[20:40]:
        for waiter in "bcd":
            await ask(world.demo, waiter, lock=each, wait="PT1M")
    before = world.tables.transactions["query"]
    pages = list[list[dict[str, Any]]]()
    cursor: str | None = ""
    while cursor is not None:
        body = (await world.demo.get(f"/api/v1/locks?limit=1000{cursor}")).json()
        pages.append(body["items"])
        cursor = f"&cursor={body['next']}" if body["next"] else None
    assert [each["name"] for page in pages for each in page] == names
    assert [len(page) for page in pages] == [22, *[2] * 9, 30]
    assert world.tables.transactions["query"] - before < 16 * 2 * len(pages), "few reads, of two rows each"


async def test_tokens_grow_over_the_removal_of_a_row(world: World) -> None:
    demo = world.demo
    await world.admin.put("/api/v1/tenants/demo", {"limits": {"locks": 2}})
    await world.clock.advance(60)
    tokens = []
    for _ in range(3):
        tokens.append((await held(demo, "a", lock="x"))["token"])
        await release(demo, "a", lock="x")
        tokens.append((await held(demo, "b", lock="x"))["token"])
        await release(demo, "b", lock="x")
        await held(demo, "a", lock="y")
        reply = await demo.put("/api/v1/locks/z", {"holder": "a", "nonce": "n1"})
        assert (reply.status, reply.json()["detail"].partition(";")[0]) == (429, "the tenant may have 2 locks")
        await world.clock.advance(24 * 3600 + 10)
        # Whoever makes a lock too many has the rows removed that nobody uses.
        await held(demo, "c", lock="z")
        assert [each["name"] for each in (await demo.get("/api/v1/locks")).json()["items"]] == ["z"]
        await release(demo, "c", lock="z")
        await world.clock.advance(24 * 3600 + 10)
        await held(demo, "c", lock="w")
        await held(demo, "c", nonce="n2", lock="v")
        await release(demo, "c", lock="w")
        await release(demo, "c", "n2", lock="v")
        await world.clock.advance(24 * 3600 + 10)
    assert tokens == sorted(set(tokens))


async def test_bad_requests_are_refused(world: World) -> None:
    for body in (
        {"nonce": "n1"},
        {"holder": "", "nonce": "n1"},
        {"holder": "a\n", "nonce": "n1"},
        {"holder": "a", "nonce": ""},
        {"holder": "a"},
        {"holder": "a", "nonce": "n1", "ttl": "PT1S"},
        {"holder": "a", "nonce": "n1", "ttl": "PT2H"},
        {"holder": "a", "nonce": "n1", "wait": "PT0S"},
    ):
        assert (await world.demo.put("/api/v1/locks/x", body)).status == 422, body
    for name in ("-x", "x" * 101, "a%2Fb", "%F0%9F%94%92"):
        assert (await ask(world.demo, "a", lock=name))[0] == 422, name
    assert (await world.demo.delete("/api/v1/locks/x?holder=a")).status == 422
    # A version that nobody gave out counts as none.
    for made_up in ([5], [5, 1000, 'W/"\r\nx"'], [5, 1000, "*"], [5, 1000, 'W/"x", *'], [5, 1000, "W/" + '"' * 90]):
        version = urlsafe_b64encode(json.dumps(made_up).encode()).decode().rstrip("=")
        assert code(await ask(world.demo, "a", token=5, version=version)) == (409, "lock-lost"), made_up
    assert not [row for row in world.dump() if row[0] == TURNS]


async def test_requests_for_too_many_locks_do_not_read_all_rows_each_time(world: World) -> None:
    demo = world.demo
    await world.admin.put("/api/v1/tenants/demo", {"limits": {"locks": 3}})
    await world.clock.advance(60)
    answers = await asyncio.gather(*(ask(demo, "a", lock=f"x{number}") for number in range(9)))
    assert sorted(status for status, _ in answers) == [200] * 3 + [429] * 6, "those that come together are counted"
    counts = world.tables.transactions

    def queries() -> int:
        return counts["query"]

    await ask(demo, "a", lock="more")
    before = queries()
    for number in range(20):
        assert (await ask(demo, "a", lock=f"more-{number}"))[0] == 429
    assert queries() == before, "the count and the search for old rows are half a minute old at most"
    await world.clock.advance(31)
    assert (await ask(demo, "a", lock="more"))[0] == 429
    assert queries() > before


async def test_a_revocation_is_recorded_and_outcomes_are_counted(world: World) -> None:
    first = await held(world.demo, "a")
    await held(world.demo, "a", token=first["token"], version=first["version"])
    await ask(world.demo, "b")
    await ask(world.demo, "b", wait="PT4S")
    await world.demo.post("/api/v1/locks/nightly/revoke", {"note": "it hangs"})
    assert code(await ask(world.demo, "a", token=first["token"])) == (409, "lock-lost")
    await release(world.demo, "a")
    [record] = [each for each in (await world.admin.get("/api/v1/audit")).json()["items"] if "lock" in each["action"]]
    assert (record["action"], record["path"]) == ("locks_revoke", "/api/v1/locks/nightly/revoke")
    once = ("granted", "renewed", "refused", "waiting", "revoked", "lost", "released")
    assert world.app.locks.counters == {f"lock_{what}": 1 for what in once}


async def test_the_locks_of_a_tenant_end_with_it_and_later_tokens_are_greater(world: World) -> None:
    acme = await world.tenant("acme")
    first = await held(acme, "a")
    assert (await world.admin.delete("/api/v1/tenants/acme")).status < 300
    await world.run(180)
    assert not [row for row in world.dump() if row[0] == TURNS]
    again = await world.tenant("acme")
    assert (await held(again, "b"))["token"] > first["token"]
