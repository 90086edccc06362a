"""Settings of several accounts: what is refused before anything is sent, and that no refusal shows a secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.core.clock import SystemClock
from shared.core.errors import UnsafeSettings
from shared.core.settings import Settings
from shared.storage import open_storage
from shared.storage.several.tables import SpreadTables

EMULATOR = "UseDevelopmentStorage=true"
OTHER = "AccountName=devstoreaccount1;AccountKey=a2V5;TableEndpoint=http://127.0.0.1:11002/a;QueueEndpoint=http://127.0.0.1:11001/a"
THIRD = OTHER.replace("110", "120")
REAL = "AccountName=real;AccountKey=c2VjcmV0;DefaultEndpointsProtocol=https"
SAFE = {"admin_key": "x" * 20, "signing_key": "y" * 20}


def settings(**given: Any) -> Settings:
    return Settings(**({"storage": EMULATOR} | given))


@pytest.mark.parametrize(
    "given",
    [
        {"accounts": "not json"},
        {"accounts": '{"a": 1}'},
        {"accounts": "[1]"},
        {"accounts": '[""]'},
        {"accounts": json.dumps(["AN ACCOUNT"]), "storage": REAL, **SAFE},
        {"accounts": json.dumps([OTHER, OTHER])},
        {"accounts": json.dumps([EMULATOR])},
        {"accounts": json.dumps([OTHER + f";X={number}" for number in range(16)])},
        {"accounts": json.dumps([REAL])},
        {"accounts": json.dumps(["realname"])},
        {"accounts": json.dumps([OTHER]), "storage": REAL, **SAFE},
        {"mirror": REAL},
        {"mirror": EMULATOR},
        {"mirror_table_uri": "https://real.table.core.windows.net"},
        {"accounts": json.dumps([OTHER]), "new_shards": "2"},
        {"new_shards": "x"},
        {"new_shards": "-1"},
        {"mirror": OTHER, "mirror_stop_seconds": 5, "mirror_take_seconds": 5},
        {"storage": REAL, **SAFE, "mirror_stop_seconds": 1, "mirror_take_seconds": 44},
    ],
)
def test_unsafe_settings_are_refused_without_showing_the_secret(given: dict[str, Any]) -> None:
    with pytest.raises(UnsafeSettings) as caught:
        settings(**given)
    assert "c2VjcmV0" not in str(caught.value) and "a2V5" not in str(caught.value)


async def test_accounts_are_numbered_in_order_and_those_that_take_new_shards_can_be_named() -> None:
    storage = open_storage(settings(accounts=json.dumps([OTHER, THIRD]), new_shards="2, 0"), SystemClock())
    assert (storage.places, storage.fresh) == (("0", "1", "2"), ("0", "2"))
    assert isinstance(storage.tables, SpreadTables) and len(storage.tables.accounts) == 3
    await storage.close()


async def test_second_account_gives_a_place_of_its_own_and_a_view_of_its_own() -> None:
    storage = open_storage(settings(mirror=OTHER), SystemClock())
    assert (storage.places, storage.fresh) == (("0", "m"), ("0",))
    assert storage.second is not None and storage.second.fresh == ("m",)
    await storage.close()


async def test_one_account_is_spoken_to_without_a_detour() -> None:
    storage = open_storage(settings(), SystemClock())
    assert not isinstance(storage.tables, SpreadTables) and storage.places == storage.fresh == ("0",)
    await storage.close()


async def test_names_of_accounts_go_with_the_apps_identity_in_the_same_cloud() -> None:
    given = {
        "storage": None,
        "table_uri": "https://home.table.core.chinacloudapi.cn",
        "queue_uri": "https://home.queue.core.chinacloudapi.cn",
    }
    storage = open_storage(Settings(**given, **SAFE, accounts='["shards1"]'), SystemClock())
    assert isinstance(storage.tables, SpreadTables)
    account: Any = storage.tables.accounts[1]
    assert account.inner._transport.account.base == "https://shards1.table.core.chinacloudapi.cn"
    await storage.close()
