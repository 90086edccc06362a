"""The operator's list: which hosts fit, and which rules are refused."""

from __future__ import annotations

import pytest

from shared.delivery.entra.grants import EntraAudience, refused_target, rule_faults
from tests.texts import assert_text

RULES = (
    EntraAudience(audience="api://orders", hosts=["orders.example.com", "orders.example.com:8443", "*.eu.orders.example.com"]),
    EntraAudience(audience="api://bills", hosts=["bills.example.com"]),
)


@pytest.mark.parametrize(
    ("host", "port"),
    [("orders.example.com", 443), ("orders.example.com", 8443), ("a.eu.orders.example.com", 443), ("1.eu.orders.example.com", 443)],
)
def test_listed_hosts_fit(host: str, port: int) -> None:
    assert refused_target(RULES, "api://orders", host, port) is None


@pytest.mark.parametrize(
    ("host", "port"),
    [
        *(("orders.example.com", port) for port in (80, 444, 0)),
        *((host, 443) for host in ("orders.example.com.", "xorders.example.com", "orders.example.com.evil.example", "example.com", "")),
        *((f"{part}eu.orders.example.com", 443) for part in ("", "b.a.", ".", "*.")),
        *((host, 443) for host in ("bills.example.com", "127.0.0.1", "::1", "[::1]", "1.2.3.4", "ORDERS.example.com", "a_b.example.com")),
        ("a.eu.orders.example.com", 8443),
    ],
)
def test_other_hosts_and_ports_do_not(host: str, port: int) -> None:
    assert "does not have the host" in str(refused_target(RULES, "api://orders", host, port))


def test_an_audience_counts_with_its_own_hosts_and_exactly() -> None:
    assert "does not have the audience" in str(refused_target(RULES, "api://Orders", "orders.example.com", 443))
    assert "does not have the audience" in str(refused_target((), "api://orders", "orders.example.com", 443))
    assert "does not have the host" in str(refused_target(RULES, "api://bills", "orders.example.com", 443))


def test_a_stored_rule_for_a_refused_audience_gives_nothing() -> None:
    rule = EntraAudience(audience="https://vault.azure.net", hosts=["orders.example.com"])
    assert "is refused" in str(refused_target((rule,), "https://vault.azure.net", "orders.example.com", 443))


@pytest.mark.parametrize(
    ("host", "detail"),
    [
        ("*.example.com", "at least 3 labels"),
        ("*.com", "at least 3 labels"),
        ("*.shop.azurewebsites.net", "anybody can get a name"),
        ("*.westeurope.cloudapp.azure.com", "anybody can get a name"),
        ("*.execute-api.eu-west-1.amazonaws.com", "anybody can get a name"),
        *((f"*.{each}", "anybody can get a name") for each in ("westeurope.azurecontainer.io", "app.github.dev", "m.pipedream.net")),
        ("*.eu.auth0.com", "anybody can get a name"),
        ("1.2.3.4", "the name of a host"),
        ("*.1.2.3.4", "the name of a host"),
        ("-x.example.com", "the name of a host"),
        ("orders.example.com:443", "leave :443 out"),
        ("orders.example.com:0", "a port from 1"),
        ("orders.example.com:0080", "without leading zeros"),
        ("orders.example.com:65536", "a port from 1"),
    ],
)
def test_rules_that_open_too_much_are_refused(host: str, detail: str) -> None:
    ((pointer, found),) = rule_faults([EntraAudience(audience="api://orders", hosts=["orders.example.com", host])])
    assert pointer == "/0/hosts/1" and detail in found
    # A former version may have stored it: it still gives nothing.
    assert refused_target([EntraAudience(audience="api://orders", hosts=[host])], "api://orders", host.replace("*", "a"), 443) is not None


@pytest.mark.parametrize(
    "host", ["ORDERS.example.com", "https://orders.example.com", "a.*.example.com", "*", "*.", "**.a.b.c", "[::1]", "a b", "a/b", "u@a"]
)
def test_what_is_no_host_has_not_the_form_of_a_rule(host: str) -> None:
    with pytest.raises(ValueError, match="must be a host in lower case"):
        EntraAudience(audience="api://orders", hosts=[host])


def test_an_audience_is_listed_once() -> None:
    rules = [EntraAudience(audience="api://orders", hosts=["a.example.com"])] * 2
    [(pointer, detail)] = rule_faults(rules)
    assert pointer == "/1/audience"
    assert_text("entra.audience-twice", detail)
