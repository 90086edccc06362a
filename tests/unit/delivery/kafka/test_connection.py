"""Permitted brokers, identities and settings of a connection."""

from __future__ import annotations

import pytest

from shared.delivery.egress_guard import Egress
from shared.delivery.kafka.connection import Login, NoToken, check_token, config, identity_tokens, is_azure, problem_of, scope_of, split

HUB = "Ns.servicebus.windows.net:9093"


def token(scope: str) -> tuple[str, float]:
    return f"token for {scope}", 1.0


def test_event_hubs_is_entered_by_identity_over_tls_with_a_token_for_that_namespace_alone() -> None:
    found = config(Login(HUB), token)
    assert found["security.protocol"] == "SASL_SSL" and found["sasl.mechanism"] == "OAUTHBEARER"
    assert found["oauth_cb"]("") == ("token for https://ns.servicebus.windows.net/.default", 1.0)
    assert scope_of(HUB) == "https://ns.servicebus.windows.net/.default"
    with pytest.raises(ValueError, match="identity"):
        config(Login(HUB), None)


@pytest.mark.parametrize(
    ("login", "protocol"),
    [
        (Login("b:9092", tls=False), "PLAINTEXT"),
        (Login("b:9093"), "SSL"),
        (Login("b:9092", False, "u", "p"), "SASL_PLAINTEXT"),
        (Login("b:9093", True, "u", "p"), "SASL_SSL"),
        (Login(HUB, True, "$ConnectionString", "p"), "SASL_SSL"),
    ],
)
def test_other_brokers_are_entered_by_password_or_by_nothing(login: Login, protocol: str) -> None:
    found = config(login, token)
    assert found["security.protocol"] == protocol and "oauth_cb" not in found
    assert found.get("sasl.password") == login.password
    assert "sasl.mechanism" not in found or found["sasl.mechanism"] == "PLAIN"


@pytest.mark.parametrize("servers", [HUB, "a.servicebus.usgovcloudapi.net:9093", "a.servicebus.chinacloudapi.cn:9093"])
def test_event_hubs_is_known_by_its_domains_and_port(servers: str) -> None:
    assert is_azure(servers) and problem_of(Login(servers), Egress()) is None


@pytest.mark.parametrize(
    "servers",
    ["servicebus.windows.net:9093", "x.servicebus.windows.net.evil:9093", "x.servicebus.windows.net:9092", f"{HUB},{HUB}", "x", "x:y", ""],
)
def test_what_only_looks_like_event_hubs_gets_no_token(servers: str) -> None:
    assert not is_azure(servers) and not Login(servers).by_identity


@pytest.mark.parametrize(
    ("login", "allowed", "field"),
    [
        (Login("b:9092", False), [], "servers"),
        (Login("b:9092", False), ["b"], None),
        (Login("B:9092,c:9092"), ["b"], "servers"),
        (Login("10.1.2.3:9092"), ["10.1.0.0/16"], None),
        (Login("10.2.2.3:9092"), ["10.1.0.0/16"], "servers"),
        (Login("[::1]:9092"), ["::1/128"], None),
        (Login("8.8.8.8:9092"), [], "servers"),
        (Login(HUB, tls=False), [], "tls"),
        (Login(HUB, True, "u", "p"), [], "username"),
        (Login("b:0"), ["b"], "servers"),
        (Login("b:70000"), ["b"], "servers"),
        (Login("b"), ["b"], "servers"),
        (Login("u@b:9092"), ["b"], "servers"),
    ],
)
def test_channels_reach_event_hubs_and_what_the_operator_named(login: Login, allowed: list[str], field: str | None) -> None:
    found = problem_of(login, Egress(allowed))
    assert (found[0] if found else None) == field


def test_password_is_never_shown() -> None:
    assert "hunter2" not in repr(Login("b:9092", True, "u", "hunter2"))


def test_servers_are_split_into_hosts_and_ports() -> None:
    assert split("A.example:1,[FE80::1]:2") == [("a.example", 1), ("fe80::1", 2)]


def test_credential_is_made_once_and_asked_for_each_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str | None] = []

    class Got:
        token, expires_on = "t", 17

    class Credential:
        def __init__(self, managed_identity_client_id: str | None) -> None:
            made.append(managed_identity_client_id)

        def get_token(self, scope: str) -> type[Got]:
            return Got

    monkeypatch.setattr("azure.identity.DefaultAzureCredential", Credential)
    tokens = identity_tokens("client")
    assert [tokens("a"), tokens("b")] == [("t", 17.0), ("t", 17.0)] and made == ["client"]


def test_identity_without_a_token_is_reported_before_a_client_is_made() -> None:
    def refuse(scope: str) -> tuple[str, float]:
        raise RuntimeError("hunter2")

    with pytest.raises(NoToken, match=r"^RuntimeError$"):
        check_token(Login(HUB), refuse)
    check_token(Login("b:9092"), refuse)
    # Later, from within the library, it must not raise: a token that has ended is what it understands as a refusal.
    assert config(Login(HUB), refuse)["oauth_cb"]("") == ("none", 0.0)
