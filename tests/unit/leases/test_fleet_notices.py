"""The channel for a fleet's notices, and what its refusals mean."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from shared.core.errors import Problem
from shared.leases.fleet_notices import channel_for, send_notice

KEY = "demo:web"
NOTICE = {"id": "lease:web:silent:1:raised", "channel": "ops", "payload": {}}
ABOUT = {"alarm": "silent"}


@pytest.mark.parametrize(
    ("definition", "kind", "channel"),
    [
        ("{}", "stale", None),
        ('{"notify": null}', "stale", None),
        ('{"notify": {"channel": null, "kinds": ["stale"]}}', "stale", None),
        ('{"notify": {"channel": "ops"}}', "stale", None),
        ('{"notify": {"channel": "ops", "kinds": ["stale"]}}', "stale", "ops"),
        ('{"notify": {"channel": "ops", "kinds": ["stale"]}}', "dead", None),
        ('{"notify": {"channel": "ops", "kinds": ["dead", "maintenance"]}}', "maintenance", "ops"),
    ],
)
def test_notices_go_where_the_fleet_wants_them(definition: str, kind: str, channel: str | None) -> None:
    assert channel_for(definition, kind) == channel


async def _send(refused: Problem | None) -> bool:
    async def publisher(tenant: str, content: Mapping[str, Any]) -> None:
        assert (tenant, content) == ("demo", NOTICE)
        if refused is not None:
            raise refused

    return await send_notice(publisher, KEY, NOTICE, ABOUT)


@pytest.mark.parametrize(
    ("refused", "ended", "warned"),
    [
        (None, True, False),
        (Problem(429, "too-many-requests", "later"), False, False),
        (Problem(503, "storage-unavailable", "later"), False, False),
        (Problem(409, "id-conflict", "an event with this id exists"), True, False),
        (Problem(422, "invalid-content", "the tenant has no channel of that name"), True, True),
    ],
)
async def test_only_a_refusal_that_passes_is_tried_again(caplog: Any, refused: Problem | None, ended: bool, warned: bool) -> None:
    with caplog.at_level(logging.WARNING):
        assert await _send(refused) is ended
    assert [record.action for record in caplog.records] == ["fleet_notice_refused"] * warned
    assert all(
        (record.fleet, record.alarm) == (KEY, "silent") and "ops" in record.message and "no channel" in record.message
        for record in caplog.records
    )
