"""Audiences: those of Azure's services are refused in every spelling, and tokens for them are never sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.delivery.entra.audiences import APPLICATIONS, DOMAINS, refusal, token_fault

from .jwts import CLIENT, jwt

STOLEN = (
    # Storage: the service, accounts, endpoints of other clouds and of DNS zones.
    *(
        "https://storage.azure.com",
        "https://storage.azure.com/",
        "https://acc.blob.core.windows.net",
        "https://acc.table.core.windows.net/",
    ),
    *("https://acc.queue.core.usgovcloudapi.net", "https://acc.blob.core.chinacloudapi.cn", "https://acc.z1.blob.storage.azure.net"),
    *("https://acc.dfs.core.windows.net", "https://acc.blob.core.cloudapi.de", "api://e406a681-f3d4-42a8-90b6-c2b029497af1"),
    # Vaults.
    *("https://vault.azure.net", "https://vault.azure.net/", "https://vault.azure.cn", "https://vault.usgovcloudapi.net"),
    *("https://vault.microsoftazure.de", "https://managedhsm.azure.net", "api://cfa8b339-82a2-471a-a3c9-0fc0be7a4093"),
    # Resource Manager.
    *("https://management.azure.com", "https://management.azure.com/", "https://management.core.windows.net/"),
    *("https://management.usgovcloudapi.net", "https://management.chinacloudapi.cn", "https://management.microsoftazure.de"),
    *("https://management.core.usgovcloudapi.net", "api://797f4846-ba00-4fd7-ba43-dac1f8f63013/"),
    # Graph.
    *("https://graph.microsoft.com", "https://graph.microsoft.com/", "https://graph.windows.net/", "https://graph.microsoft.us"),
    *("https://dod-graph.microsoft.us", "https://microsoftgraph.chinacloudapi.cn", "api://00000003-0000-0000-c000-000000000000"),
    *("api://00000002-0000-0000-c000-000000000000", "api://00000003-0000-0ff1-ce00-000000000000"),
    # Other planes that the app uses.
    *("https://servicebus.azure.net", "https://ns.servicebus.windows.net", "https://eventhubs.azure.net", "https://eventgrid.azure.net"),
    *("https://monitor.azure.com", "https://api.loganalytics.io", "https://database.windows.net", "https://cosmos.azure.com"),
    *("https://azconfig.io", "https://reg.azurecr.io", "https://app.vssps.visualstudio.com", "https://login.microsoftonline.com"),
    # Microsoft's other services.
    *("https://onenote.com", "https://api.aadrm.com", "https://eu.o365syncservice.com", "https://apps.azureiotcentral.com"),
    *("api://880da380-985e-4198-81b9-e05b1cc53158", "api://fc780465-2017-40d4-a0c5-307022471b92"),
    *("api://c5393580-f805-4401-95e8-94b7a6ef2fc2", "api://8578e004-a5c6-46e7-913e-12f58912df43"),
    *("api://475226c6-020e-4fb2-8a90-7a972cbfc1d4", "api://7df0a125-d3be-4c96-aa54-591f83ff541c"),
    "api://d3590ed6-52b3-4102-aeff-aad2292ab01c",
    # Tokens to become another application.
    *("api://AzureADTokenExchange", "api://AzureADTokenExchangeUSGov", "api://azureadtokenexchangechina", "api://x/AzureADTokenExchange"),
)
TRICKS = (
    *(f"{scheme}00000003-0000-0000-c000-000000000000" for scheme in ("", "spn:", "urn:", "http://")),
    *(f"{scheme}vault.azure.net" for scheme in ("", "spn:", "urn:", "http://")),
    *("https://vault.azure.net/.default", "api://orders/.default", "https://vault.azure.net//", "https://vault.azure.net//.default"),
    *("https://vault%2eazure.net", "https://vault.azure.net%2f", "https://vault\u3002azure\u3002net", "https://\uff56ault.azure.net"),
    *("https://vault.azure.net:443", "https://me@vault.azure.net", "https://orders.example@vault.azure.net", "https://vault.azure.net."),
    *("https://vault.azure.net\n", " https://vault.azure.net", "https://vault.azure.net https://orders.example"),
    "https:\\\\vault.azure.net",
    *(
        "https://orders.example/../vault",
        "https://orders.example/./x",
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://orders",
        "https://",
    ),
    *("api://", "api:///orders", "api://orders?x=1", "api://orders#x", "api://orders/\u00e9", "api://" + "x" * 250, ""),
)


@pytest.mark.parametrize("audience", STOLEN)
def test_audiences_of_azures_services_are_refused_in_every_case_and_with_any_end(audience: str) -> None:
    bare = audience.rstrip("/")
    for each in (audience, bare, f"{bare}/", bare.upper().replace("HTTPS", "https").replace("API:", "api:"), f"{bare}/user_impersonation"):
        assert "is refused: " in str(refusal(each)), each


@pytest.mark.parametrize("audience", TRICKS)
def test_other_spellings_have_no_form_of_an_audience(audience: str) -> None:
    assert str(refusal(audience)).startswith("must be the identifier URI")


_NAMES = st.from_regex(r"\A[a-z0-9]{1,8}(\.[a-z0-9]{1,8}){0,2}\Z")


@given(st.sampled_from(sorted(DOMAINS)), _NAMES, st.sampled_from(["https", "api"]), st.booleans())
def test_every_name_below_microsofts_domains_is_refused(domain: str, name: str, scheme: str, upper: bool) -> None:
    host = f"{name}.{domain}"
    assert refusal(f"{scheme}://{host.upper() if upper else host}/x") is not None


@pytest.mark.parametrize(
    "audience",
    [
        *("api://orders", "api://orders/", "api://0f8fad5b-d9cb-469f-a165-70867728950e", "api://contoso.onmicrosoft.com/orders"),
        *(
            "https://example.com/orders",
            "https://orders.example.com",
            "https://orders.azurewebsites.net",
            "https://myazure.net.example.com",
        ),
    ],
)
def test_audiences_of_ones_own_pass(audience: str) -> None:
    assert refusal(audience) is None


@pytest.mark.parametrize(
    ("claims", "fault"),
    [
        ({}, None),
        ({"aud": "api://orders/"}, None),
        ({"aud": "0f8fad5b-d9cb-469f-a165-70867728950e"}, None),
        ({"appid": None, "azp": CLIENT.upper()}, None),
        ({"aud": "https://vault.azure.net"}, "is for another audience"),
        ({"aud": ["api://orders"]}, "names no audience"),
        ({"aud": None}, "names no audience"),
        ({"appid": "11111111-51ef-4a3a-9d5b-0c5a4d9d8c11"}, "belongs to another identity"),
        ({"azp": "11111111-51ef-4a3a-9d5b-0c5a4d9d8c11"}, "belongs to another identity"),
        ({"appid": None}, "belongs to another identity"),
        *(({"aud": each}, "is for an audience that is refused") for each in (*APPLICATIONS, "00000003-0000-0000-c000-000000000000")),
    ],
)
def test_tokens_for_a_refused_service_or_of_another_identity_are_never_sent(claims: dict[str, Any], fault: str | None) -> None:
    found = token_fault(jwt("api://orders", **claims), "api://orders", CLIENT)
    assert found is None if fault is None else str(found).startswith(fault)


@pytest.mark.parametrize("token", ["", "a.b", "a.b.c.d.e", "a.!.c", "a.bnVsbA.c", "a.bm90IGpzb24.c"])
def test_what_cannot_be_read_is_never_sent(token: str) -> None:
    assert token_fault(token, "api://orders", CLIENT) == "is no readable JWT"
