"""Channels: which are refused and where it says so, secrets and their rotation, pauses, masks."""

from __future__ import annotations

import asyncio
import base64
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import OutcomeUnknown, Problem
from shared.core.signing import sign
from shared.delivery.channels.model import EventGridChannel, FleetChannel, HttpChannel, QueueChannel, ServiceBusChannel
from shared.delivery.channels.validation import find_faults
from shared.delivery.egress_guard import Egress
from shared.storage.names import TENANTS
from shared.tenants import rules
from shared.tenants.model import Tenant
from shared.tenants.rules import Generations

from .conftest import World, make_settings

DAY = 86_400_000
NOW = 1_800_000_000_000
QUEUE = QueueChannel(type="queue", queue="alarms")


def http(url: str = "https://hooks.example.com/x", **headers: str) -> HttpChannel:
    return HttpChannel(type="http", url=url, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.fixture
async def acme(world: World) -> World:
    await world.directory.put("acme", Tenant())
    return world


# -- what is refused

EGRESS = Egress(["localhost", "10.0.0.0/8"])


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/x?q=1",
        "https://a.example:8443/",
        "http://localhost:7072/",
        "https://10.1.2.3/x",
        "https://8.8.8.8/",
        "https://a%20b.example",
        "https://xn--mnchen-3ya.example/x",
        "https://XN--LS8H.example/x",
    ],
)
def test_addresses_that_may_be_reached_pass(url: str) -> None:
    expected = ["/url"] if "%20" in url else []
    assert [pointer for pointer, _ in find_faults(http(url), EGRESS)] == expected


@pytest.mark.parametrize(
    ("url", "helps"),
    [
        ("https://m\u00fcnchen.example/x", "xn--mnchen-3ya.example"),
        ("https://user@M\u00dcNCHEN.example:8443/x", "xn--mnchen-3ya.example"),
        ("https://m%C3%BCnchen.example/x", "xn--mnchen-3ya.example"),
        ("https://\U0001f4a9.example/x", "xn--ls8h.example"),
        ("https://a\u202eb.example/x", "such as xn--mnchen-3ya.example"),
        ("https://%61bc.example/x", "write abc.example"),
        ("https://a.b.c.xn--pokxncvks/x", "xn--pokxncvks, which is no valid Punycode"),
        ("https://xn--a.example/x", "no valid Punycode"),
        ("https://xn--/x", "no valid Punycode"),
        ("https://a.example/m\u00fcnchen", "percent-encode"),
        ("https://a.example/x y", "percent-encode"),
        ("ftp://x", "https"),
    ],
)
def test_a_refused_url_comes_with_the_advice_that_mends_it(url: str, helps: str) -> None:
    [(pointer, detail)] = find_faults(http(url), EGRESS)
    assert pointer == "/url" and helps in detail


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example/",
        "file:///etc/passwd",
        "//a.example/x",
        "a.example/xxxx",
        "https:///x-no-host",
        "https://user:hunter2@a.example/",
        "https://user@a.example/",
        "https://@a.example/",
        "https://a.example\\@b.example/",
        "https://a.example/<x>",
        "https://a.example/#part",
        "https://a.example/\nx",
        "https://a.example/ x",
        "https://a.example/\u00e9",
        "https://a.example:99999/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://169.254.169.254/metadata",
        "https://0x7f000001/",
        "https://2130706433/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::1",
    ],
)
def test_addresses_that_may_not_be_reached_are_refused_at_url(url: str) -> None:
    found = find_faults(http(url), Egress(["localhost"]))
    assert found
    assert {pointer for pointer, _ in found} == {"/url"}
    assert all("hunter2" not in detail for _, detail in found)


def test_plain_http_is_for_the_allow_list_only() -> None:
    assert find_faults(http("http://a.example/"), Egress(["localhost"]))
    assert not find_faults(http("http://localhost/"), Egress(["localhost"]))


@pytest.mark.parametrize(
    "name",
    ["Host", "content-length", "Content-Type", "Transfer-Encoding", "connection", "TE", "upgrade", "ce-id", "CE-x", "webhook-signature",
     "Proxy-Authorization", "keep-alive", "bad name", "bad:name", "", "n\u00e4me", "a" * 129],
)  # fmt: skip
def test_headers_that_are_not_the_channels_to_set_are_refused_by_name(name: str) -> None:
    found = find_faults(HttpChannel(type="http", url="https://a.example/", headers={name: "x"}), EGRESS)
    assert [pointer for pointer, _ in found] == ["/headers/" + name[:128]]


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\x00", "\u00e9", "x" * 4097, "***", "a\x7f"])
def test_values_that_cannot_be_sent_are_refused_and_not_repeated(value: str) -> None:
    found = find_faults(HttpChannel(type="http", url="https://a.example/", headers={"Authorization": value}), EGRESS)
    assert [pointer for pointer, _ in found] == ["/headers/Authorization"]
    assert value == "***" or all(value not in detail for _, detail in found)


def test_names_that_differ_only_in_case_and_too_many_characters_are_refused() -> None:
    twice = HttpChannel(type="http", url="https://a.example/", headers={"X-A": "1", "x-a": "2"})
    assert [pointer for pointer, _ in find_faults(twice, EGRESS)] == ["/headers/x-a"]
    much = HttpChannel(type="http", url="https://a.example/", headers={f"x-{n}": "v" * 4000 for n in range(5)})
    assert [pointer for pointer, _ in find_faults(much, EGRESS)] == ["/headers"]


def test_an_event_grid_endpoint_is_https() -> None:
    good = EventGridChannel(type="eventgrid", endpoint="https://t.westeurope-1.eventgrid.azure.net/api/events")
    assert find_faults(good, EGRESS) == []
    plain = EventGridChannel(type="eventgrid", endpoint="http://localhost/api/events")
    assert [pointer for pointer, _ in find_faults(plain, EGRESS)] == ["/endpoint"]


async def test_a_channel_of_a_tenant_that_is_made_again_gets_nothing_that_was_listed_for_the_former(world: World) -> None:
    await world.directory.put("shop", Tenant())
    former = (await world.directory.get("shop"))[0].uid
    host = "orders.servicebus.windows.net"
    world.settings = make_settings(client_certificates=f"shop@{former}/bank=env:BANK", service_bus=f"shop@{former}={host}")
    directory = world.instance()
    bank = HttpChannel(type="http", url="https://bank.example/", client_certificate="bank")
    bus = ServiceBusChannel(type="servicebus", namespace=host, entity="alarms")
    for name, spec in (("bank", bank), ("bus", bus)):
        await directory.channels.put("shop", name, spec)
    target = await directory.target("shop", "bank")
    assert target is not None and target.identity == ("shop", former)
    await directory.delete("shop")
    assert (await directory.put("shop", Tenant(), dry_run=True))[0].uid == ""
    later = (await directory.put("shop", Tenant()))[0].uid
    assert later not in ("", former) and (await directory.list(10))[0][0].uid == later
    for name, spec, pointer in (("bank", bank, "/client_certificate"), ("bus", bus, "/namespace")):
        with pytest.raises(Problem) as refused:
            await directory.channels.put("shop", name, spec)
        assert [each["pointer"] for each in refused.value.errors] == [pointer]
    await directory.channels.put("shop", "bank", http())
    target = await directory.target("shop", "bank")
    assert target is not None and target.identity == ("shop", later)


# -- secrets


@given(st.integers(1, NOW), st.lists(st.integers(0, 3 * DAY), max_size=6))
def test_a_rotation_keeps_the_one_before_for_a_day_and_never_repeats_a_generation(start: int, pauses: list[int]) -> None:
    now, generations = start, rules.first_generation(start)
    used = [generations.current]
    for pause in pauses:
        now += pause
        before = generations
        generations = rules.rotate(before, now)
        assert generations.current not in used
        used.append(generations.current)
        assert rules.in_use(generations, now) == [generations.current, before.current]
        assert rules.in_use(generations, now + DAY - 1) == [generations.current, before.current]
        assert rules.in_use(generations, now + DAY) == [generations.current]


def test_secrets_differ_by_tenant_channel_and_generation_and_are_32_bytes() -> None:
    made = {rules.secret_of("m", t, c, g) for t in ("a", "b") for c in ("x", "y") for g in (1, 2)}
    assert len(made) == 8
    assert all(len(base64.b64decode(secret.removeprefix("whsec_"))) == 32 for secret in made)
    assert rules.in_use(Generations(), NOW) == []


async def test_a_new_http_channel_shows_its_secret_once(acme: World) -> None:
    out, _, new = await acme.directory.channels.put("acme", "c", http())
    assert new
    target = await acme.other.target("acme", "c")
    assert target is not None
    assert target.secrets == (out.secret,)
    assert sign("id", 1, b"", target.secrets).startswith("v1,")
    again, _, new = await acme.directory.channels.put("acme", "c", http())
    assert (again.secret, new) == (None, False)
    shown, _ = await acme.directory.channels.get("acme", "c")
    assert shown.secret is None
    assert "whsec_" not in str(acme.tables.rows(TENANTS))
    assert (await acme.directory.target("acme", "c")) == target


async def test_rotating_signs_with_both_for_a_day(acme: World) -> None:
    first, _, _ = await acme.directory.channels.put("acme", "c", http())
    await acme.clock.advance(10)
    rotated = await acme.directory.channels.rotate("acme", "c")
    assert rotated.secret != first.secret
    assert rotated.previous_until == acme.clock.now() + DAY
    target = await acme.directory.target("acme", "c")
    assert target is not None
    assert target.secrets == (rotated.secret, first.secret)
    await acme.clock.advance(DAY / 1000)
    target = await acme.directory.target("acme", "c")
    assert target is not None
    assert target.secrets == (rotated.secret,)
    shown, _ = await acme.directory.channels.get("acme", "c")
    assert shown.previous_until is None


async def test_a_rotation_that_is_repeated_by_its_id_keeps_the_secret_that_the_receiver_has(acme: World) -> None:
    first, _, _ = await acme.directory.channels.put("acme", "c", http())
    await acme.clock.advance(10)
    rotated = await acme.directory.channels.rotate("acme", "c", "one")
    await acme.clock.advance(10)
    assert await acme.other.channels.rotate("acme", "c", "one") == rotated
    target = await acme.instance().target("acme", "c")
    assert target is not None and target.secrets == (rotated.secret, first.secret)
    others = [await acme.directory.channels.rotate("acme", "c", name) for name in ("two", "", "", "two")]
    assert len({each.secret for each in (first, rotated, *others)}) == 6, "another rotation has another secret"


async def test_a_channel_made_again_under_its_name_has_another_secret(acme: World) -> None:
    first, _, _ = await acme.directory.channels.put("acme", "c", http())
    await acme.directory.channels.delete("acme", "c")
    await acme.clock.advance(1)
    second, _, new = await acme.directory.channels.put("acme", "c", http())
    assert new
    assert first.secret != second.secret


async def test_a_channel_that_becomes_http_shows_its_secret_then(acme: World) -> None:
    out, _, _ = await acme.directory.channels.put("acme", "c", QUEUE)
    assert out.secret is None
    with pytest.raises(Problem) as caught:
        await acme.directory.channels.rotate("acme", "c")
    assert (caught.value.status, caught.value.code) == (409, "not-signed")
    out, _, new = await acme.directory.channels.put("acme", "c", http())
    assert out.secret
    assert not new


async def test_two_concurrent_rotations_give_different_secrets_and_both_count(acme: World) -> None:
    await acme.directory.channels.put("acme", "c", http())
    one, two = await asyncio.gather(acme.directory.channels.rotate("acme", "c"), acme.other.channels.rotate("acme", "c"))
    target = await acme.instance().target("acme", "c")
    assert target is not None
    assert set(target.secrets) == {one.secret, two.secret}


async def test_a_rotation_whose_answer_was_lost_is_found_by_reading_back(acme: World) -> None:
    await acme.directory.channels.put("acme", "c", http())
    acme.tables.lose(lambda pk, op: pk == "t:acme")
    rotated = await acme.directory.channels.rotate("acme", "c")
    target = await acme.directory.target("acme", "c")
    assert target is not None
    assert target.secrets[0] == rotated.secret
    acme.tables.lose(lambda pk, op: pk == "t:acme", applied=False)
    with pytest.raises(OutcomeUnknown):
        await acme.directory.channels.rotate("acme", "c")


# -- masks, pauses, conditions


async def test_header_values_never_come_back_and_the_mask_keeps_them(acme: World) -> None:
    await acme.directory.channels.put("acme", "c", http(Authorization="Bearer hunter2", x_a="1"))
    shown, _ = await acme.directory.channels.get("acme", "c")
    assert shown.headers == {"Authorization": "***", "x-a": "***"}
    listed, _ = await acme.directory.channels.list("acme", 10)
    assert "hunter2" not in str(listed)
    await acme.directory.channels.put("acme", "c", http("https://HOOKS.example.com:443/other", authorization="***", x_a="2"))
    target = await acme.directory.target("acme", "c")
    assert target is not None
    assert target.spec.headers == {"authorization": "Bearer hunter2", "x-a": "2"}  # type: ignore[union-attr]
    with pytest.raises(Problem) as caught:
        await acme.directory.channels.put("acme", "new", http(authorization="***"))
    assert caught.value.errors[0]["pointer"] == "/headers/authorization"


@pytest.mark.parametrize("url", ["https://hook.example:8443/a", "http://localhost:8080/a"])
async def test_a_masked_header_never_follows_the_channel_to_another_receiver(acme: World, url: str) -> None:
    """The attack: a caller who may change a channel but not read its secrets points it at a receiver of their own."""
    put = acme.directory.channels.put
    await put("acme", "c", http(url, authorization="Bearer hunter2"))
    parts = urlsplit(url)
    for elsewhere in (
        f"{parts.scheme}://evil.example{parts.path}",
        f"{parts.scheme}://{parts.hostname}.evil.example:{parts.port}/a",
        f"{parts.scheme}://{parts.hostname}:9999/a",
        f"{'http' if parts.scheme == 'https' else 'https'}://{parts.netloc}/a",
        f"{parts.scheme}://{parts.netloc}@evil.example/a",
        "https://[",
    ):
        with pytest.raises(Problem) as caught:
            await put("acme", "c", http(elsewhere, authorization="***"))
        assert "/headers/authorization" in [each["pointer"] for each in caught.value.errors], elsewhere
    target = await acme.directory.target("acme", "c")
    assert target is not None and isinstance(target.spec, HttpChannel)
    assert (target.spec.url, target.spec.headers) == (url, {"authorization": "Bearer hunter2"})
    await put("acme", "c", http(f"{parts.scheme}://{parts.netloc.upper()}/b?c", authorization="***"))


async def test_no_channel_writes_the_services_own_queues_by_naming_the_services_account(acme: World) -> None:
    [own] = make_settings().own_accounts or ()
    for queue in ("tocsin-shards", "tocsin-ingest", "tocsin-retries-poison", "azure-webjobs-host"):
        with pytest.raises(Problem) as caught:
            await acme.directory.channels.put("acme", "c", QueueChannel(type="queue", queue=queue, account=own))
        assert [each["pointer"] for each in caught.value.errors] == ["/queue"]
    for queue, account in (("orders", own), ("tocsin-shards", "partner1")):
        await acme.directory.channels.put("acme", "c", QueueChannel(type="queue", queue=queue, account=account))


async def test_a_pause_is_seen_everywhere_within_a_second(acme: World) -> None:
    await acme.directory.channels.put("acme", "c", QUEUE)
    assert (await acme.other.target("acme", "c")).paused is False  # type: ignore[union-attr]
    out, _ = await acme.directory.channels.pause("acme", "c", True, "moving house")
    assert (out.paused, out.reason) == (True, "moving house")
    again, _ = await acme.directory.channels.pause("acme", "c", True)
    assert again == out, "said again without a reason, it keeps the one it has"
    await acme.clock.advance(1)
    target = await acme.other.target("acme", "c")
    assert target is not None
    assert (target.paused, target.reason) == (True, "moving house")
    await acme.directory.channels.put("acme", "c", QUEUE)
    assert (await acme.directory.target("acme", "c")).paused  # type: ignore[union-attr]
    out, _ = await acme.directory.channels.pause("acme", "c", False)
    assert (out.paused, out.reason) == (False, None)


async def test_if_match_guards_channels(acme: World) -> None:
    _, tag, _ = await acme.directory.channels.put("acme", "c", QUEUE)
    await acme.directory.channels.pause("acme", "c", True)
    for verb in (
        acme.directory.channels.put("acme", "c", QUEUE, {"if-match": tag}),
        acme.directory.channels.delete("acme", "c", {"if-match": tag}),
    ):
        with pytest.raises(Problem, match="412"):
            await verb
    _, tag = await acme.directory.channels.get("acme", "c")
    await acme.directory.channels.delete("acme", "c", {"if-match": tag})


async def test_what_is_not_there_is_404(acme: World) -> None:
    channels = acme.directory.channels
    verbs: list[Any] = [
        channels.get("acme", "c"),
        channels.delete("acme", "c"),
        channels.rotate("acme", "c"),
        channels.pause("acme", "c", True),
        channels.get("nobody", "c"),
        channels.put("nobody", "c", QUEUE),
    ]
    for verb in verbs:
        with pytest.raises(Problem, match="404"):
            await verb
    assert await acme.directory.target("acme", "c") is None
    assert await acme.directory.target("acme", "../x") is None


async def test_a_channel_of_one_tenant_is_nothing_to_another(acme: World) -> None:
    await acme.directory.put("other", Tenant())
    await acme.directory.channels.put("acme", "c", QUEUE)
    assert await acme.directory.target("other", "c") is None
    assert (await acme.directory.channels.list("other", 10))[0] == []


@pytest.mark.parametrize("path", ["/a%5c..", "//evil.com/", "/%0d%0ax", "/%2e%2e/a", "/a/%252e", "/a%2fb", "/.%e2%80%8b."])
def test_a_path_at_servers_that_could_be_read_as_another_one_is_refused(path: str) -> None:
    spec = FleetChannel(type="fleet", fleet="search", path=path)
    assert [pointer for pointer, _ in find_faults(spec, EGRESS)] == ["/path"]
    assert find_faults(spec.model_copy(update={"path": "/events/a%20b/"}), EGRESS) == []
