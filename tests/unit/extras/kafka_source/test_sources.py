"""The setting that names topics and the tenants of their events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.core.errors import UnsafeSettings
from shared.extras.kafka_source.sources import read_sources

GOOD = {"servers": "ns.servicebus.windows.net:9093", "topic": "orders", "tenant": "acme"}


def test_blank_setting_is_no_source() -> None:
    assert read_sources("", emulated=False) == read_sources(" \n", emulated=False) == read_sources("[]", emulated=False) == ()


def test_source_by_identity_and_one_by_connection_string() -> None:
    first, second = read_sources(
        json.dumps([GOOD, GOOD | {"group": "b", "username": "$ConnectionString", "password": "Endpoint=sb://x"}]), emulated=True
    )
    assert first.login.by_identity and first.group == "tocsin"
    assert not second.login.by_identity and second.login.password == "Endpoint=sb://x"
    assert "Endpoint" not in repr(second)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{not json", "Invalid JSON"),
        ({}, "array"),
        ([{**GOOD, "tenant": "No Such Name"}], "0/tenant"),
        ([{**GOOD, "uid": ""}], "0/uid"),
        ([{**GOOD, "topic": "a b"}], "0/topic"),
        ([{**GOOD, "servers": "host"}], "0/servers"),
        ([{**GOOD, "servers": "host:99999"}], "host:port"),
        ([{**GOOD, "surprise": 1}], "0/surprise"),
        ([GOOD, {"topic": "x"}], "1/servers"),
        ([{**GOOD, "username": "u"}], "give both"),
        ([{**GOOD, "tls": False}], "needs tls"),
        ([GOOD, {**GOOD, "tenant": "other"}], "occurs twice"),
        ([{**GOOD, "username": ["hunter2"], "password": "hunter2"}], "0/username"),
    ],
)
def test_what_is_wrong_is_said_precisely_and_nothing_is_quoted(value: Any, words: str) -> None:
    with pytest.raises(UnsafeSettings) as raised:
        read_sources(value if isinstance(value, str) else json.dumps(value), emulated=True)
    assert words in str(raised.value) and "TOCSIN_KAFKA_SOURCES" in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert raised.value.__context__ is None or raised.value.__suppress_context__


def test_a_deployed_app_does_not_start_with_a_source_of_a_tenant_without_its_uid() -> None:
    known = GOOD | {"uid": "0123456789abcdef"}
    [found] = read_sources(json.dumps([known]), emulated=False)
    assert found.uid == "0123456789abcdef"
    with pytest.raises(UnsafeSettings, match=r"TOCSIN_KAFKA_SOURCES: 1/uid"):
        read_sources(json.dumps([known, GOOD | {"topic": "other"}]), emulated=False)
