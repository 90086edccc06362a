"""The table as functions: what the worker sees, and that a request goes through."""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import Callable
from typing import Any

import azure.functions as func
import orjson
import pytest
from azure.functions.http import HttpResponseConverter

from shared.web.functions_host import Response, bind
from shared.web.indexed import Indexed
from shared.web.routes import Route
from shared.web.serve import GetApp

from .conftest import DEMO, World


def functions(world: World, get_app: GetApp | None = None, find_route: Callable[[Indexed], Route] | None = None) -> dict[str, Any]:
    app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
    index = [Indexed(route.name, route.method, route.template, route.max_body) for route in world.routes]
    app.register_functions(bind(index, find_route or (lambda each: world.routes[each.name]), get_app or world.get_app))
    return {function.get_function_name(): function for function in app.get_functions()}


async def test_each_route_is_one_anonymous_function_with_its_method(world: World) -> None:
    found = functions(world)
    assert set(found) == {route.name for route in world.routes}
    trigger = next(binding for binding in found["leases_get"].get_bindings() if binding.type == "httpTrigger")
    assert trigger.route == "v1/leases/{partition:int}"
    assert [getattr(method, "value", method) for method in trigger.methods] == ["GET"]
    assert trigger.auth_level == func.AuthLevel.ANONYMOUS


async def test_the_worker_sees_a_plain_signature(world: World) -> None:
    handler = functions(world)["things_create"].get_user_function()
    assert list(inspect.signature(handler).parameters) == ["req"]
    assert typing.get_type_hints(handler) == {"req": func.HttpRequest, "return": func.HttpResponse}
    assert inspect.iscoroutinefunction(handler)
    assert handler.__name__ == "things_create"


def request(body: bytes = b"", url: str = "http://localhost/api/v1/things", **headers: str) -> func.HttpRequest:
    sent = {"Authorization": f"Bearer {DEMO}", "Content-Type": "application/json"} | headers
    return func.HttpRequest("POST", url, headers=sent, params={}, route_params={}, body=body)


async def test_a_request_goes_through(world: World) -> None:
    handler = functions(world)["things_create"].get_user_function()
    answer = await handler(request(orjson.dumps({"name": "a"})))
    assert answer.status_code == 201
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["location"] == "/api/v1/things/a"
    assert orjson.loads(answer.get_body())["tenant"] == "demo"


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (201, {"content-type": "application/json", "etag": '"a"', "location": "/api/v1/things/a"}, b"{}\n"),
        (204, {"x-content-type-options": "nosniff"}, b""),
    ],
)
def test_the_library_sends_a_response_as_it_sends_its_own(status: int, headers: dict[str, str], body: bytes) -> None:
    def sent(response: func.HttpResponse) -> tuple[str, dict[str, str], bytes, object]:
        found = HttpResponseConverter.encode(response, expected_type=None).value
        return (
            found["status_code"].value,
            {name: each.value for name, each in found["headers"].items()},
            found["body"].value,
            found["cookies"],
        )

    assert sent(Response(status, dict(headers), body)) == sent(func.HttpResponse(body, status_code=status, headers=headers))


async def test_a_call_counts_from_when_the_host_hands_it_over(world: World) -> None:
    opened = asyncio.Event()

    async def get_app() -> Any:
        # As an application that is opened by the first call.
        await opened.wait()
        return await world.get_app()

    handler = functions(world, get_app)["things_create"].get_user_function()
    waiting = asyncio.ensure_future(handler(request(orjson.dumps({"name": "a"}))))
    await asyncio.sleep(0.05)
    before = world.app.arrivals.next()
    opened.set()
    assert (await waiting).status_code == 201
    assert before.receipt().is_after(world.app.seen[0].arrival.receipt())


async def test_a_problem_goes_through(world: World) -> None:
    handler = functions(world)["things_create"].get_user_function()
    answer = await handler(request(b"{"))
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert orjson.loads(answer.get_body())["instance"] == "/api/v1/things"


async def test_a_handler_is_looked_up_when_it_is_called_and_not_before(world: World) -> None:
    asked: list[str] = []

    def find_route(indexed: Indexed) -> Route:
        asked.append(indexed.name)
        return world.routes[indexed.name]

    found = functions(world, find_route=find_route)
    assert asked == []
    await found["things_create"].get_user_function()(request(orjson.dumps({"name": "a"})))
    assert asked == ["things_create"]


async def test_a_handler_that_cannot_be_imported_is_an_internal_error(world: World) -> None:
    def find_route(indexed: Indexed) -> Route:
        raise ImportError("no module")

    answer = await functions(world, find_route=find_route)["things_create"].get_user_function()(request(b"{}"))
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert orjson.loads(answer.get_body())["type"].endswith("/internal-error")
