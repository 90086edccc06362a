"""No address but public ones and those the operator named, however it is spelled or resolved."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from shared.core.errors import UnsafeSettings
from shared.core.http1.pool import addr_info
from shared.delivery.channels.http import HttpSender
from shared.delivery.channels.ports import Verdict
from shared.delivery.egress_guard import Egress, EgressRefused, SafeResolver, refusal
from tests.texts import assert_text

from .conftest import Listen, http_target, make_delivery, make_settings

CLOSED = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "169.254.1.1",
    "100.64.0.1",
    "100.127.255.255",
    "192.0.0.1",
    "192.0.0.9",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:168.63.129.16",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "8000::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "2606:4700::1111%1",
]
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "172.32.0.1",
    "100.128.0.1",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2606:4700::1111",
    "2a00:1450:4001::1",
]

ODD = [
    "http://2130706433/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.1/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://017700000001/",
    "https://127.0.0.1./",
    "https://127.0.0.256/",
    "https://8.8.8.8./",
    "https://0x08.8.8.8/",
    "https://134744072/",
    "https://1.2.3.0x/",
    "https://example.1/",
]


def scripted(answers: dict[str, list[list[str]]]) -> Any:
    """A resolver that gives its answers in turn, the last one for good."""
    asked: list[str] = []

    async def lookup(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        queue = answers.get(host)
        if not queue:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return queue.pop(0) if len(queue) > 1 else queue[0]

    lookup.asked = asked  # type: ignore[attr-defined]
    return lookup


def no_sockets(info: Any) -> socket.socket:
    raise AssertionError(f"a connection to {info[4]} was tried")


@pytest.mark.parametrize("text", CLOSED)
def test_addresses_that_are_not_public_are_refused(text: str) -> None:
    assert refusal(ip_address(text)) is not None


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_pass(text: str) -> None:
    assert refusal(ip_address(text)) is None


@given(st.ip_addresses())
def test_nothing_passes_that_python_does_not_call_global(address: Any) -> None:
    inner = getattr(address, "ipv4_mapped", None) or address
    if refusal(address) is None:
        assert inner.is_global and not inner.is_multicast


@given(st.ip_addresses(v=4))
def test_an_address_in_ipv6_clothes_is_judged_as_the_ipv4_address_it_is(address: Any) -> None:
    for prefix in ("::ffff:", "64:ff9b::"):
        assert refusal(ip_address(f"{prefix}{address}")) == refusal(address)


@pytest.mark.parametrize("text", CLOSED)
async def test_a_literal_address_that_is_not_public_is_refused_before_any_socket(text: str) -> None:
    host = f"[{text}]" if ":" in text else text
    sender = HttpSender(make_settings(), new_socket=no_sockets)
    verdict = await sender.send(http_target(f"https://{host}/x"), make_delivery())
    assert verdict.outcome == "final"
    assert verdict.error and verdict.error.startswith("egress refused: ")
    await sender.close()


@pytest.mark.parametrize("text", CLOSED)
async def test_a_name_that_resolves_to_what_is_not_public_is_refused_without_telling_the_address(text: str) -> None:
    sender = HttpSender(make_settings(), lookup=scripted({"evil.example": [[text]]}), new_socket=no_sockets)
    verdict = await sender.send(http_target("https://evil.example/x?token=abc"), make_delivery())
    assert verdict == Verdict("final", None, verdict.error)
    assert_text("egress.not-public", verdict.error, url="https://evil.example:443")
    await sender.close()


@pytest.mark.parametrize("url", ODD)
async def test_odd_spellings_of_addresses_are_refused(url: str) -> None:
    sender = HttpSender(make_settings("localhost, 127.0.0.0/8, 8.8.8.8"), lookup=scripted({}), new_socket=no_sockets)
    verdict = await sender.send(http_target(url), make_delivery())
    assert_text("egress.odd-spelling", verdict.error)
    await sender.close()


def test_letters_that_look_like_digits_are_judged_as_digits() -> None:
    assert Egress().problem(URL("https://①②⑦.0.0.1/")) == "the url's address is loopback"
    assert Egress().problem(URL("https://\uff11\uff16\uff19.254.169.254/")) == "the url's address is link-local"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.com/", "plain http"),
        ("http://1.1.1.1/", "plain http"),
        ("ftp://example.com/", "scheme"),
        ("file:///etc/passwd", "scheme"),
        ("//example.com/xx", "scheme"),
        ("https:///only-path", "no host"),
        ("https://a%2eb.c/", "valid name"),
        ("https://exa mple.com/", "valid name"),
        ("https://-x-.com/", "valid name"),
    ],
)
def test_a_url_says_why_it_can_never_work(url: str, why: str) -> None:
    assert why in (Egress().problem(URL(url)) or "")


def test_https_to_a_public_name_or_address_is_the_default() -> None:
    for url in (
        "https://example.com/x",
        "https://EXAMPLE.com./x",
        "https://1.1.1.1:8443/",
        "https://[2606:4700::1111]/",
        "https://bücher.de/",
    ):
        assert Egress().problem(URL(url)) is None


def test_the_allow_list_opens_named_hosts_exactly() -> None:
    egress = Egress(["LocalHost", "hook.internal"])
    assert egress.problem(URL("http://localhost:7072/")) is None
    assert egress.problem(URL("http://HOOK.internal/")) is None
    for url in ("http://hook.internal.example.com/", "http://xhook.internal/", "http://a.hook.internal/", "http://localhost./"):
        assert egress.problem(URL(url)) is not None
    assert egress.allows("localhost", ip_address("127.0.0.1"), plain=True)
    assert not egress.allows("other", ip_address("127.0.0.1"))
    assert egress.problem(URL("http://127.0.0.1/")) is not None


def test_the_allow_list_opens_networks() -> None:
    egress = Egress(["10.1.0.0/16", "fd00::/8", "127.0.0.1"])
    assert egress.problem(URL("http://10.1.2.3/")) is None
    assert egress.problem(URL("https://[fd00::1]/")) is None
    assert egress.problem(URL("http://127.0.0.1:8080/")) is None
    assert egress.problem(URL("http://10.2.0.1/")) is not None
    assert egress.problem(URL("http://127.0.0.2/")) is not None
    assert egress.problem(URL("http://[::ffff:10.1.0.1]/")) is None
    assert egress.allows("any.example", ip_address("10.1.9.9"), plain=True)
    assert not egress.allows("any.example", ip_address("1.1.1.1"), plain=True)


def test_where_plain_http_is_off_the_allow_list_opens_addresses_and_not_plain_http() -> None:
    egress = Egress(["hook.internal", "10.1.0.0/16"], plain=False)
    for url in ("http://hook.internal/", "http://10.1.2.3/", "http://any.example/"):
        assert "must be https" in (egress.problem(URL(url)) or "")
    assert egress.problem(URL("https://hook.internal/")) is None
    assert egress.problem(URL("https://10.1.2.3/")) is None
    assert egress.allows("hook.internal", ip_address("10.9.9.9"))
    for address in ("10.1.9.9", "1.1.1.1"):
        assert not egress.allows("hook.internal", ip_address(address), plain=True)


@pytest.mark.parametrize("entry", ["*.example.com", "https://x.example", "localhost:7072", "10.0.0.0/33", "0x7f.1", "a b", "127.1"])
def test_an_allow_list_entry_that_means_nothing_stops_the_start(entry: str) -> None:
    with pytest.raises(UnsafeSettings, match="TOCSIN_EGRESS_ALLOW"):
        Egress([entry])


async def test_the_resolver_drops_what_is_not_allowed_and_keeps_the_rest() -> None:
    resolver = SafeResolver(Egress(), scripted({"mixed.example": [["10.0.0.1", "1.1.1.1", "::1", "2606:4700::1111", "1.1.1.1"]]}))
    found = await resolver.resolve("mixed.example", 443)
    assert [info[4] for info in found] == [("1.1.1.1", 443), ("2606:4700::1111", 443, 0, 0)]


async def test_the_resolver_distinguishes_no_address_from_no_allowed_address() -> None:
    resolver = SafeResolver(Egress(), scripted({"empty.example": [[]], "inner.example": [["10.0.0.1"]]}))
    with pytest.raises(EgressRefused):
        await resolver.resolve("inner.example", 443)
    for host in ("empty.example", "missing.example"):
        with pytest.raises(OSError) as caught:
            await resolver.resolve(host, 443)
        assert not isinstance(caught.value, EgressRefused)


async def test_a_resolver_that_changes_its_answer_reaches_the_checked_address_only(listen: Listen) -> None:
    # 127.0.0.2 stands for a public address, 127.0.0.1 for the private one that the second answer points at.
    public = await listen(host="127.0.0.2")
    private = await listen(host="127.0.0.1")
    lookup = scripted({"rebind.example": [["127.0.0.2"], ["127.0.0.1"]]})
    sender = HttpSender(make_settings("127.0.0.2/32"), lookup=lookup)
    url = f"http://rebind.example:{public.port}/"
    assert (await sender.send(http_target(url), make_delivery())).outcome == "delivered"
    assert lookup.asked == ["rebind.example"]
    await sender.close()
    # A new session asks again, gets the private address, and must not go there.
    verdict = await sender.send(http_target(f"http://rebind.example:{private.port}/"), make_delivery())
    assert verdict.outcome == "final" and verdict.error and "egress refused" in verdict.error
    assert (public.connections, private.connections) == (1, 0)
    await sender.close()


async def test_of_several_addresses_only_the_allowed_ones_are_connected_to(listen: Listen) -> None:
    allowed = await listen(host="127.0.0.2")
    lookup = scripted({"many.example": [["10.9.9.9", "169.254.169.254", "127.0.0.2", "::1"]]})
    tried: list[str] = []

    def record(info: Any) -> socket.socket:
        tried.append(info[4][0])
        return socket.socket(info[0], info[1], info[2])

    sender = HttpSender(make_settings("127.0.0.2/32"), lookup=lookup, new_socket=record)
    assert (await sender.send(http_target(f"http://many.example:{allowed.port}/"), make_delivery())).outcome == "delivered"
    assert tried == ["127.0.0.2"]
    await sender.close()


async def test_plain_http_by_a_name_needs_an_address_within_a_named_network() -> None:
    sender = HttpSender(make_settings("10.1.0.0/16"), lookup=scripted({"a.example": [["1.1.1.1", "1.0.0.1"]]}), new_socket=no_sockets)
    verdict = await sender.send(http_target("http://a.example/"), make_delivery())
    assert verdict.outcome == "final"
    assert_text("egress.plain-http", verdict.error, url="http://a.example:80")
    await sender.close()


async def test_the_socket_is_the_last_guard_whatever_the_resolver_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve_to_private(self: SafeResolver, host: str, port: int) -> Any:
        return [addr_info("127.0.0.1", port)]

    monkeypatch.setattr(SafeResolver, "resolve", resolve_to_private)
    sender = HttpSender(make_settings(), new_socket=no_sockets)
    verdict = await sender.send(http_target("https://liar.example/"), make_delivery())
    assert verdict.outcome == "final" and verdict.error and verdict.error.startswith("egress refused")
    await sender.close()


async def test_a_name_that_does_not_resolve_is_tried_again() -> None:
    sender = HttpSender(make_settings(), lookup=scripted({}), new_socket=no_sockets)
    verdict = await sender.send(http_target("https://nowhere.example/hook?key=s3cret"), make_delivery())
    assert verdict == Verdict("retry", None, verdict.error, unreached=True)
    assert_text("delivery.name-not-resolved", verdict.error, url="https://nowhere.example:443")
    await sender.close()
