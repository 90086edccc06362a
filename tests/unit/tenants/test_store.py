"""Tenants and keys: made, changed, revoked and deleted, over two instances, crashes and races."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from shared.core.clock import to_text
from shared.core.errors import OutcomeUnknown, Problem, Unavailable
from shared.delivery.channels.model import ChannelSpec, QueueChannel
from shared.scheduler.model import RetryIn
from shared.storage.names import TENANTS
from shared.storage.ports import Delete, Insert, Merge, Op
from shared.tenants import rows, rules, store
from shared.tenants.model import KeyIn, Limits, Retry, Tenant
from shared.tenants.store import REMEMBER, OtherJobs, TenantDirectory, seed_local
from shared.web.auth import authenticate

from .conftest import ADMIN, World, make_settings

EVENTS = KeyIn(scopes=["events"])


def code(failure: pytest.ExceptionInfo[Problem]) -> tuple[int, str]:
    return failure.value.status, failure.value.code


async def test_a_tenant_is_created_then_replaced(world: World) -> None:
    out, tag, new = await world.directory.put("acme", Tenant())
    assert (out.name, new) == ("acme", True)
    again, tag2, new = await world.directory.put("acme", Tenant(limits=Limits(events_per_second=5)))
    assert (again.created, new) == (out.created, False)
    assert tag != tag2
    assert await world.directory.get("acme") == (again, tag2)
    found = await world.directory.tenant("acme")
    assert found is not None
    assert found.limits.events_per_second == 5


async def test_other_instances_see_a_change_within_five_seconds(world: World) -> None:
    await world.directory.put("acme", Tenant())
    assert await world.other.tenant("acme") == Tenant()
    changed = Tenant(limits=Limits(open_events=1))
    await world.directory.put("acme", changed)
    assert await world.directory.tenant("acme") == changed
    assert await world.other.tenant("acme") == Tenant()
    await world.clock.advance(5)
    assert await world.other.tenant("acme") == changed


async def test_two_concurrent_creations_make_one_tenant(world: World) -> None:
    results = await asyncio.gather(world.directory.put("acme", Tenant()), world.other.put("acme", Tenant()))
    assert [new for _, _, new in results].count(True) == 1


async def test_if_match_guards_a_change(world: World) -> None:
    _, tag, _ = await world.directory.put("acme", Tenant())
    await world.directory.put("acme", Tenant(limits=Limits(open_events=1)), {"if-match": tag})
    for verb in (world.directory.put("acme", Tenant(), {"if-match": tag}), world.directory.delete("acme", {"if-match": tag})):
        with pytest.raises(Problem) as caught:
            await verb
        assert code(caught) == (412, "precondition-failed")
    with pytest.raises(Problem, match="412"):
        await world.directory.put("new", Tenant(), {"if-match": "*"})


async def test_a_lost_answer_that_was_applied_counts_as_done(world: World) -> None:
    world.tables.lose(lambda pk, op: pk == "tenant")
    _, _, new = await world.directory.put("acme", Tenant())
    assert new


async def test_a_lost_write_is_reported(world: World) -> None:
    world.tables.lose(lambda pk, op: pk == "tenant", applied=False)
    with pytest.raises(OutcomeUnknown):
        await world.directory.put("acme", Tenant())


async def test_lists_go_page_by_page_without_gap_or_double(world: World) -> None:
    names = sorted(["a", "a-1", "a0", "b", "b-b", "zz", "demo"])
    for name in reversed(names):
        await world.directory.put(name, Tenant())
    for limit in (1, 2, 3, 7, 100):
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            items, after = await world.directory.list(limit, after)
            assert len(items) <= limit
            found += [item.name for item in items]
        assert sorted(found) == names
        assert len(found) == len(names)


# -- keys


async def test_a_key_works_and_says_what_it_may_do(world: World) -> None:
    await world.directory.put("acme", Tenant())
    made = await world.directory.keys.issue("acme", KeyIn(scopes=["agent"], fleet="web", node="VM_1.a", note="rack 7"))
    found = await world.other.key(made.key)
    assert found is not None
    assert (found.tenant, found.scopes, found.fleet, found.node) == ("acme", {"agent"}, "web", "VM_1.a")
    assert made.key.startswith(made.prefix)
    assert len(made.key) >= 40
    assert await world.directory.key(made.key[:-1] + ("y" if made.key.endswith("x") else "x")) is None


async def test_keys_are_stored_as_hashes_and_listed_by_prefix(world: World) -> None:
    await world.directory.put("acme", Tenant())
    made = await world.directory.keys.issue("acme", EVENTS)
    stored = str(world.tables.rows(TENANTS))
    assert made.key not in stored
    assert made.key[len(made.prefix) :] not in stored
    items, more = await world.directory.keys.list("acme", 100)
    assert ([item.prefix for item in items], more) == ([made.prefix], None)
    assert made.key not in items[0].model_dump_json()


async def test_a_revoked_key_ends_here_at_once_and_elsewhere_within_five_seconds(world: World) -> None:
    await world.directory.put("acme", Tenant())
    made = await world.directory.keys.issue("acme", EVENTS)
    assert await world.other.key(made.key)
    await world.directory.keys.revoke("acme", made.prefix)
    assert await world.directory.key(made.key) is None
    assert await world.other.key(made.key)
    await world.clock.advance(5)
    assert await world.other.key(made.key) is None
    with pytest.raises(Problem, match="404"):
        await world.directory.keys.revoke("acme", made.prefix)


async def test_a_revocation_that_crashes_half_way_has_ended_the_key_and_can_be_repeated(world: World) -> None:
    await world.directory.put("acme", Tenant())
    made = await world.directory.keys.issue("acme", EVENTS)
    world.tables.lose(lambda pk, op: isinstance(op, Delete) and pk.startswith("t:"), applied=False)
    with pytest.raises(OutcomeUnknown):
        await world.directory.keys.revoke("acme", made.prefix)
    assert await world.directory.key(made.key) is None
    assert (await world.directory.keys.list("acme", 10))[0]
    await world.directory.keys.revoke("acme", made.prefix)
    assert not (await world.directory.keys.list("acme", 10))[0]


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("partition", ["t:", "key:"])
@pytest.mark.parametrize("kind", [Insert, Merge])
async def test_making_a_key_that_crashes_never_leaves_one_that_works_unlisted(
    world: World, kind: type[Op], partition: str, applied: bool
) -> None:
    await world.directory.put("acme", Tenant())
    world.tables.lose(lambda pk, op: pk.startswith(partition) and isinstance(op, kind), applied=applied, failure=RuntimeError("crash"))
    with contextlib.suppress(RuntimeError):
        await world.directory.keys.issue("acme", EVENTS)
    listed = {item.prefix for item in (await world.directory.keys.list("acme", 100))[0]}
    assert {str(row.props["prefix"]) for row in world.tables.rows(TENANTS, "key:")} <= listed


async def test_a_key_revoked_while_it_is_made_does_not_come_to_life(world: World) -> None:
    await world.directory.put("acme", Tenant())
    prefixes: list[str] = []

    def revoke(pk: str, op: Op) -> None:
        if isinstance(op, Insert) and op.rk.startswith("key:"):
            prefixes.append(op.rk.removeprefix("key:"))
        if isinstance(op, Insert) and pk.startswith("key:") and prefixes:
            world.tables.remove(TENANTS, "t:acme", f"key:{prefixes.pop()}")

    world.tables.after.append(revoke)
    with pytest.raises(Problem) as caught:
        await world.directory.keys.issue("acme", EVENTS)
    assert code(caught) == (409, "changed-meanwhile")
    assert world.tables.rows(TENANTS, "key:") == []


async def test_an_expired_key_is_refused_at_once_and_says_so(world: World) -> None:
    await world.directory.put("acme", Tenant())
    ends = world.clock.now() + 3_000
    spec = KeyIn.model_validate({"scopes": ["events"], "expires": to_text(ends)})
    made = await world.directory.keys.issue("acme", spec)
    assert await world.directory.key(made.key) is not None and await world.directory.expired_at(made.key) is None
    assert world.directory.checked(made.key) is not None
    await world.clock.advance(3.0)
    assert world.directory.checked(made.key) is None
    assert await world.directory.key(made.key) is None, "although its row is cached for longer"
    assert await world.directory.expired_at(made.key) == ends
    with pytest.raises(Problem) as refused:
        await authenticate(world.directory, {"authorization": f"Bearer {made.key}"})
    assert refused.value.status == 401 and f"expired at {to_text(ends)}" in str(refused.value.detail)
    with pytest.raises(Problem) as late:
        await world.directory.keys.issue("acme", spec)
    assert late.value.status == 422


async def test_a_checked_key_needs_no_further_look_until_its_key_or_tenant_changes_or_is_too_old(world: World) -> None:
    await world.directory.put("acme", Tenant())
    made = await world.directory.keys.issue("acme", EVENTS)
    for instance in (world.directory, world.other):
        assert instance.checked(made.key) is None
        assert await instance.key(made.key) == instance.checked(made.key) is not None
    await world.directory.put("acme", Tenant(durability="fast"))
    assert world.directory.checked(made.key) is None and world.other.checked(made.key) is not None
    assert await world.directory.key(made.key) == world.directory.checked(made.key) is not None
    await world.directory.keys.revoke("acme", made.prefix)
    assert world.directory.checked(made.key) is None and await world.directory.key(made.key) is None
    await world.clock.advance(5.0)
    assert world.other.checked(made.key) is None and await world.other.key(made.key) is None


async def test_checked_keys_are_few_and_none_of_them_is_a_guess(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CACHE_SIZE", 2)
    await world.directory.put("acme", Tenant())
    made = [(await world.directory.keys.issue("acme", EVENTS)).key for _ in range(3)]
    for key in (*made, "guess-0123456789"):
        await world.directory.key(key)
    assert [world.directory.checked(key) is not None for key in (*made, "guess-0123456789")] == [False, True, True, False]


async def test_the_last_day_of_use_is_written_once_a_day_and_never_revives_a_key(world: World) -> None:
    await world.directory.put("acme", Tenant())
    made = await world.directory.keys.issue("acme", EVENTS)

    async def last_used() -> list[str | None]:
        await world.directory.close()
        return [each.last_used for each in (await world.directory.keys.list("acme", 10))[0]]

    assert await last_used() == [None]
    for _ in range(3):
        for _ in range(20):
            await world.directory.key(made.key)
        await world.clock.advance(10.0)
    day = to_text(world.clock.now())[:10]
    assert await last_used() == [day]
    assert len([written for written in world.tables.written if written[1] == "Merge"]) == 3, "one of its creation, two of its use"
    await world.clock.advance(86_400.0)
    world.tables.lose(lambda pk, op: isinstance(op, Merge), applied=False, failure=Unavailable("away"))
    await world.directory.key(made.key)
    assert await last_used() == [day]
    await world.directory.key(made.key)
    assert await last_used() == [to_text(world.clock.now())[:10]]
    await world.clock.advance(86_400.0)
    await world.directory.key(made.key)
    await world.directory.keys.revoke("acme", made.prefix)
    assert await last_used() == [] and await world.directory.key(made.key) is None


async def test_a_taken_prefix_is_passed_over(world: World) -> None:
    await world.directory.put("acme", Tenant())
    draws = iter([bytes(25), bytes(25), bytes(range(25))])
    world.directory.keys._entropy = lambda n: next(draws)
    first, second = await world.directory.keys.issue("acme", EVENTS), await world.directory.keys.issue("acme", EVENTS)
    assert first.prefix != second.prefix


async def test_the_bootstrap_key_is_admin_without_a_tenant(world: World) -> None:
    found = await world.directory.key(ADMIN)
    assert found is not None
    assert (found.tenant, found.scopes) == ("", {"admin"})
    assert world.tables.transactions["get"] == 0


async def test_guesses_are_looked_up_once_a_second_each(world: World) -> None:
    for _ in range(10):
        assert await world.directory.key("guess-0123456789") is None
    assert world.tables.transactions["get"] == 1
    await world.clock.advance(1)
    await world.directory.key("guess-0123456789")
    assert world.tables.transactions["get"] == 2


# -- deletion


async def test_deleting_a_tenant_ends_keys_channels_and_the_tenant(world: World) -> None:
    await world.directory.put("acme", Tenant())
    made = await world.directory.keys.issue("acme", EVENTS)
    await world.directory.channels.put("acme", "c", QueueChannel(type="queue", queue="alarms"))
    assert await world.directory.key(made.key)
    assert await world.other.key(made.key)
    await world.directory.delete("acme")
    assert await world.directory.key(made.key) is None
    assert await world.directory.tenant("acme") is None
    assert await world.directory.target("acme", "c") is None
    assert [(row.pk, row.rk) for row in world.tables.rows(TENANTS)] == [("tenant", "acme")]
    await world.clock.advance(5)
    assert await world.other.key(made.key) is None
    with pytest.raises(Problem, match="404"):
        await world.directory.delete("acme")


async def test_a_channel_whose_queue_is_absent_is_refused_unless_it_stays_as_it_is(world: World) -> None:
    absent: list[str] = []

    async def find_absent(spec: ChannelSpec) -> list[tuple[str, str]]:
        return [("/queue", "is absent")] if isinstance(spec, QueueChannel) and spec.queue in absent else []

    directory = TenantDirectory(world.tables, world.clock, make_settings(), jobs=OtherJobs(find_absent=find_absent))
    await directory.put("acme", Tenant())
    alarms, other = (QueueChannel(type="queue", queue=name) for name in ("alarms", "other"))
    absent.append("other")
    await directory.channels.put("acme", "c", alarms)
    for dry_run in (True, False):
        for name in ("c", "d"):
            with pytest.raises(Problem, match="422") as refused:
                await directory.channels.put("acme", name, other, dry_run=dry_run)
            assert refused.value.errors == [{"pointer": "/queue", "detail": "is absent"}]
    # Its queue was removed after it was stored: the same settings again change nothing.
    absent.append("alarms")
    _, _, new = await directory.channels.put("acme", "c", alarms)
    assert not new and (await directory.channels.list("acme", 10))[0][0].queue == "alarms"


async def test_a_deleted_tenant_is_forgotten_once_all_instances_have_learned_of_its_end(world: World) -> None:
    await world.directory.put("acme", Tenant())
    await world.directory.delete("acme")
    await world.clock.advance(REMEMBER / 1000 - 1)
    assert await world.directory.tidy() == 0
    await world.clock.advance(1)
    assert (await world.directory.tidy(), await world.directory.tidy()) == (1, 0)
    assert world.tables.rows(TENANTS) == []


async def test_nobody_gets_in_once_the_tenant_is_marked_even_if_the_rest_crashes(world: World) -> None:
    await world.directory.put("acme", Tenant())
    made = await world.directory.keys.issue("acme", EVENTS)
    world.tables.lose(lambda pk, op: isinstance(op, Delete), applied=False)
    with pytest.raises(OutcomeUnknown):
        await world.directory.delete("acme")
    await world.clock.advance(5)
    for instance in (world.directory, world.other):
        assert await instance.key(made.key) is None
        assert await instance.tenant("acme") is None
        for verb in (instance.get("acme"), instance.keys.issue("acme", EVENTS), instance.keys.list("acme", 10)):
            with pytest.raises(Problem, match="404"):
                await verb
    assert (await world.directory.list(10))[0] == []
    await world.directory.delete("acme")
    assert [(row.pk, row.rk) for row in world.tables.rows(TENANTS)] == [("tenant", "acme")]


async def test_a_name_taken_again_inherits_nothing(world: World) -> None:
    await world.directory.put("acme", Tenant())
    made = await world.directory.keys.issue("acme", EVENTS)
    await world.directory.channels.put("acme", "c", QueueChannel(type="queue", queue="alarms"))
    # What a crash or a race could leave behind.
    left = world.tables.rows(TENANTS, "key:") + world.tables.rows(TENANTS, "t:")
    await world.directory.delete("acme")
    await world.directory.put("acme", Tenant())
    for row in left:
        await world.tables.write(TENANTS, row.pk, [Insert(row.rk, row.props)])
    await world.clock.advance(5)
    assert await world.directory.key(made.key) is None
    assert await world.directory.target("acme", "c") is None
    assert (await world.directory.keys.list("acme", 10))[0] == []
    assert (await world.directory.channels.list("acme", 10))[0] == []
    _, _, new = await world.directory.channels.put("acme", "c", QueueChannel(type="queue", queue="other"))
    assert new


async def test_a_deletion_that_goes_on_late_takes_nothing_from_the_next_tenant_of_the_name(world: World) -> None:
    await world.directory.put("acme", Tenant())
    await world.directory.channels.put("acme", "c", QueueChannel(type="queue", queue="alarms"))
    late = await world.directory.home("acme")
    await world.other.delete("acme")
    await world.other.put("acme", Tenant())
    await world.other.channels.put("acme", "c", QueueChannel(type="queue", queue="alarms"))
    made = await world.other.keys.issue("acme", EVENTS)
    await world.directory.keys.delete_all(late)
    await world.directory.channels.delete_all(late)
    await world.clock.advance(5)
    assert await world.other.key(made.key) is not None
    assert await world.other.target("acme", "c") is not None


async def test_a_channel_that_changes_while_its_tenant_is_deleted_is_deleted_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.directory.put("acme", Tenant())
    for name in ("a", "b"):
        await world.directory.channels.put("acme", name, QueueChannel(type="queue", queue="alarms"))
    home = await world.directory.home("acme")
    plain, changed = rows.listed, []

    async def listed(*args: Any) -> Any:
        answer = await plain(*args)
        if not changed:
            changed.append(await world.other.channels.pause("acme", "a", True))
        return answer

    monkeypatch.setattr(rows, "listed", listed)
    await world.directory.channels.delete_all(home)
    assert changed and world.tables.rows(TENANTS, "t:") == []


async def test_putting_a_tenant_whose_deletion_was_cut_short_finishes_it_first(world: World) -> None:
    await world.directory.put("acme", Tenant())
    made = await world.directory.keys.issue("acme", EVENTS)
    world.tables.lose(lambda pk, op: pk == "tenant" and isinstance(op, Merge), applied=True)
    with pytest.raises(OutcomeUnknown):
        await world.directory.delete("acme")
    _, _, new = await world.directory.put("acme", Tenant())
    assert new
    assert await world.directory.key(made.key) is None
    assert (await world.directory.keys.list("acme", 10))[0] == []


# -- the local default


async def test_the_local_default_is_made_once_however_often_it_is_asked_for(world: World) -> None:
    await asyncio.gather(seed_local(world.directory, world.settings), seed_local(world.other, world.settings))
    await seed_local(world.instance(), world.settings)
    found = await world.other.key("local-demo-key")
    assert found is not None
    assert (found.tenant, found.scopes) == ("demo", {"events", "fleets"})
    target = await world.directory.target("demo", "default")
    assert target is not None
    assert target.spec.url == "http://localhost:7072/"  # type: ignore[union-attr]
    assert target.secrets
    keys, _ = await world.directory.keys.list("demo", 10)
    assert [key.prefix for key in keys] == ["local-demo"]


async def test_what_was_changed_locally_stays(world: World) -> None:
    await seed_local(world.directory, world.settings)
    before = await world.directory.target("demo", "default")
    await world.directory.put("demo", Tenant(limits=Limits(open_events=7)))
    await seed_local(world.instance(), world.settings)
    found = await world.instance().tenant("demo")
    assert found is not None
    assert found.limits.open_events == 7
    assert await world.instance().target("demo", "default") == before


async def test_the_public_key_works_again_after_its_tenant_was_deleted_and_seeded_again(world: World) -> None:
    await seed_local(world.directory, world.settings)
    await world.directory.delete("demo")
    assert await world.directory.key("local-demo-key") is None
    await seed_local(world.directory, world.settings)
    assert await world.directory.key("local-demo-key") is not None


async def test_without_the_setting_nothing_is_made(world: World) -> None:
    await seed_local(world.directory, make_settings(local=False))
    assert world.tables.written == []


def test_keys_are_readable_and_show_their_prefix() -> None:
    key = rules.make_key(bytes(range(25)))
    assert key == "tsn_aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyy"
    assert rules.prefix_of(key) == "tsn_aaaqeaye"
    assert rules.prefix_of("local-demo-key") == "local-demo"


# ---- retries


FIGURES = {"attempts": 8, "first": "PT5S", "max": "PT1H", "within": "P1D"}


@pytest.mark.parametrize("retry", [{}, {"attempts": 3}, {"within": "PT1H"}, FIGURES, {"schedule": ["PT1S", "P1D"], "within": "P2D"}])
async def test_retry_is_stored_as_it_was_given_and_shown_with_what_follows(world: World, retry: dict[str, object]) -> None:
    await world.directory.put("acme", Tenant.model_validate({"retry": retry}))
    shown, _ = await world.other.get("acme")
    rest = {"attempts": 8, "first": "PT5S", "max": "PT1H", "within": "P4D"} if "attempts" in retry else {}
    assert shown.model_dump(mode="json")["retry"] == rest | retry
    [row] = [row for row in world.tables.rows(TENANTS) if row.rk == "acme"]
    body = json.loads(str(row.props["body"]))
    assert body["retry"].keys() == retry.keys()


async def test_a_tenant_and_a_channel_with_fields_of_a_later_version_can_be_read(world: World) -> None:
    limits = Limits.model_validate({**dict.fromkeys(Limits.model_fields, 9), "partitions": 7, "servers": 0})
    await world.directory.put("acme", Tenant(limits=limits))
    await world.directory.channels.put("acme", "c", QueueChannel(type="queue", queue="later"))
    for pk, rk in ((rows.PK_TENANTS, "acme"), (rows.of_tenant("acme"), "channel:c")):
        [row] = [row for row in world.tables.rows(TENANTS) if (row.pk, row.rk) == (pk, rk)]
        body = json.loads(str(row.props["body"])) | {"later": {"x": 1}}
        if "limits" in body:
            body["limits"]["later"] = 3
        await world.tables.write(TENANTS, pk, [Merge(rk, {"body": json.dumps(body), "later": "x"}, row.etag)])
    shown, _ = await world.other.get("acme")
    assert shown.limits == limits
    channel = await world.other.target_now("acme", "c")
    assert channel is not None and channel.spec == QueueChannel(type="queue", queue="later")


async def test_a_change_of_limits_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for limits in (Limits(), Limits(fleets=300), Limits(fleets=300), Limits()):
        await world.directory.put("acme", Tenant(limits=limits))
    found = [record.__dict__ for record in caplog.records if record.__dict__.get("action") == "tenant_limits_changed"]
    assert [(each["before"], each["after"]) for each in found] == [({}, {"fleets": 300}), ({"fleets": 300}, {})]


@pytest.mark.parametrize(
    ("retry", "fault"),
    [
        ({"schedule": ["PT1S"], "attempts": 2}, "names schedule together with attempts"),
        ({"schedule": ["PT1S"], "first": "PT1S", "max": "PT1S"}, "names schedule together with first and max"),
        ({"schedule": []}, "at least 1"),
        ({"schedule": ["PT1S"] * 100}, "at most 99"),
        ({"schedule": ["PT0S"]}, "greater than or equal to 1"),
        ({"schedule": ["P8D"]}, "less than or equal to"),
    ],
)
@pytest.mark.parametrize("model", [Retry, RetryIn])
def test_pauses_exclude_the_figures_and_have_bounds(model: type[BaseModel], retry: dict[str, object], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        model.model_validate(retry)
