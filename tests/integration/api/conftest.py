"""Callers of the whole application in this process; every answer is held against the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from shared.web import openapi, templates
from shared.web.local_client import LocalReply
from tests.unit.scheduler.harness import ROUTES, Client, World

DOCUMENT = openapi.build(ROUTES)


@lru_cache(maxsize=1024)
def _validator(name: str, status: int, media: str) -> Draft202012Validator:
    operation = next(op for path in DOCUMENT["paths"].values() for op in path.values() if op["operationId"] == name)
    schema = operation["responses"][str(status)]["content"][media]["schema"]
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def hold_against_document(method: str, url: str, reply: LocalReply) -> None:
    """The answer's status, headers and body are what the document promises."""
    path = url.partition("?")[0].removeprefix("/api/")
    route = next((each for each in ROUTES if each.method == method and templates.match(each.template, path) is not None), None)
    if route is None:
        assert (reply.status, reply.body) == (404, b"")
        return
    operation: dict[str, Any] = DOCUMENT["paths"]["/api" + templates.plain(route.template)][method.lower()]
    assert str(reply.status) in operation["responses"], f"{route.name} does not document {reply.status}: {reply.body[:300]!r}"
    documented = operation["responses"][str(reply.status)]
    for name in documented.get("headers", {}):
        if name != "Location" or reply.status == 201:
            assert name.lower() in reply.headers, f"{route.name} {reply.status} promises {name}"
    if not reply.body:
        assert "content" not in documented
        return
    media = reply.headers["content-type"].partition(";")[0]
    _validator(route.name, reply.status, media).validate(reply.json())
    if reply.status >= 400:
        hold_problem(reply, path)


def hold_problem(reply: LocalReply, path: str = "") -> None:
    """RFC 9457, as api.md words it."""
    body = reply.json()
    assert reply.headers["content-type"] == "application/problem+json"
    members = {"type", "title", "status", "detail", "instance"}
    assert members <= set(body) <= {*members, "errors", "outcome"}
    assert body.get("outcome", "unknown") in ("unknown", "unchanged")
    assert body["status"] == reply.status and body["type"].startswith("https://") and body["title"] and body["detail"]
    assert not path or body["instance"] == f"/api/{path}"
    assert ("errors" in body) == (reply.status == 422 or body["type"].endswith("payload-too-large"))
    assert all(set(error) == {"pointer", "detail"} and error["detail"] for error in body.get("errors", []))
    assert b"Traceback" not in reply.body
    waits = body["type"].endswith(("/still-queued", "/name-in-use"))
    assert ("retry-after" in reply.headers) == (reply.status in (429, 503) or waits)


@pytest.fixture(autouse=True)
def _every_answer_is_as_documented() -> Iterator[None]:
    Client.looks.append(hold_against_document)
    yield
    Client.looks.remove(hold_against_document)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World().open()
    yield world
    await world.close()
