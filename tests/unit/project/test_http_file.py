"""`test.http` is sent to a whole service in memory: each request is answered as the file says, the first time and again."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx

from shared.core.settings import LOCAL_ADMIN_KEY
from shared.testing import Tocsin
from shared.testing.kit import KEY
from tests.paths import ROOT

from .http_file import Request, filled, parse

VARIABLES, REQUESTS = parse((ROOT / "test.http").read_text())


def receive(request: httpx.Request) -> int:
    """Answer as the receiver of `tocsin dev`."""
    asked = re.search(r"/status/(\d{3})$", request.url.path)
    return int(asked[1]) if asked else 204


async def send(kit: Tocsin, request: Request, answers: dict[str, Any]) -> tuple[int, str]:
    await kit.advance(seconds=request.wait)
    url, *headers = (filled(each, VARIABLES, answers) for each in (request.url, *request.headers.values()))
    content = filled(request.body, VARIABLES, answers).encode()
    made = httpx.Request(request.method, url, headers=dict(zip(request.headers, headers, strict=True)), content=content)
    status, _, body = await kit.answer(made)
    if request.name:
        answers[request.name] = json.loads(body)
    return status, body.decode()


async def test_every_request_is_answered_as_the_file_says() -> None:
    assert (VARIABLES["admin"], VARIABLES["demo"]) == (LOCAL_ADMIN_KEY, KEY) and len(REQUESTS) > 15
    answers: dict[str, Any] = {}
    async with Tocsin(deliver_to=receive, url=VARIABLES["receiver"]) as kit:
        for again in (False, True):
            for request in REQUESTS:
                status, body = await send(kit, request, answers)
                assert status in (request.expected if again else request.expected[:1]), (again, request.title, status, body)
                assert request.shows in body, (again, request.title, body)


def test_the_file_has_the_requests_of_the_first_steps() -> None:
    page = (ROOT / "docs" / "start" / "first-steps.md").read_text()
    calls = re.findall(r"curl -s(?: -X (\w+))? +\"?(?:\$api|http://localhost:7071/api/v1)(/[^\s\"?]+)", page)
    shown = {(method or "GET", re.sub(r"/\$id$", "/ID", path)) for method, path in calls}
    paths = [(each.method, each.url.removeprefix("{{api}}").partition("?")[0]) for each in REQUESTS]
    assert len(shown) > 10
    assert shown - {(method, re.sub(r"^/events/(hello|dies)$", "/events/ID", path)) for method, path in paths} == set()
