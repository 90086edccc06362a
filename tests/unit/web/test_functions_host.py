"""The table as functions: what the worker sees, and that a request goes through."""

from __future__ import annotations

import asyncio
import inspect
import typing
from typing import Any

import azure.functions as func
import orjson
import pytest

from shared.web.functions_host import bind
from shared.web.routes import Answer, Call, RouteGroup, Routes

from .conftest import DEMO, World


def functions(world: World) -> dict[str, Any]:
    app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
    app.register_functions(bind(world.routes, world.get_app))
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


async def test_a_call_counts_from_when_the_host_hands_it_over(world: World) -> None:
    opened = asyncio.Event()

    async def get_app() -> Any:
        # As an application that is opened by the first call.
        await opened.wait()
        return await world.get_app()

    app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
    app.register_functions(bind(world.routes, get_app))
    handler = next(each for each in app.get_functions() if each.get_function_name() == "things_create").get_user_function()
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


async def test_an_ambiguous_table_is_not_bound(world: World) -> None:
    group = RouteGroup[None]()
    for name, template in (("one", "v1/{a}"), ("two", "v1/b")):

        @group.get(template, name=name, answers={204: None})
        async def handler(call: Call) -> Answer:
            """Answer."""
            return Answer(204)

    routes = Routes[None]()
    routes.add(group, lambda app: None)

    with pytest.raises(ValueError, match="ambiguous"):
        bind(routes, world.get_app)
