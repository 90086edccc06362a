"""The index of routes agrees with the declarations that the handlers have, and each handler is found alone."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from devhost.route_index import INDEX as FILE
from devhost.route_index import text
from shared.app.parts import Part
from shared.app.routes import RouteTable
from shared.extras.parts import build_routes, find_route, index_routes
from shared.extras.route_index import INDEX
from shared.web.routes import Answer, Call, Route, RouteGroup, Routes


def test_the_committed_index_is_that_of_the_declarations() -> None:
    refresh = "shared/extras/route_index.py is out of date: run `make routes`, or `python -m devhost.route_index`"
    assert list(INDEX) == index_routes(), refresh
    assert FILE.read_text(encoding="utf-8") == text(), refresh


def _said(route: Route) -> dict[str, Any]:
    left_out = {"service", "shown_by", "handler"}
    said = {each.name: getattr(route, each.name) for each in fields(route) if each.name not in left_out}
    said["shown_by"] = route.shown_by and route.shown_by.name
    # The handler of the document is made with each table.
    said["handler"] = route.handler.__qualname__
    return said


def test_a_route_that_is_found_alone_is_the_one_of_the_whole_table() -> None:
    table = build_routes()
    assert len(INDEX) == len(table) > 100
    for each in INDEX:
        assert _said(find_route(each)) == _said(table[each.name])


def test_an_ambiguous_table_is_not_indexed() -> None:
    group = RouteGroup[None]()
    for name, template in (("one", "v1/{a}"), ("two", "v1/b")):

        @group.get(template, name=name, answers={204: None})
        async def handler(call: Call) -> Answer:
            """Answer."""
            return Answer(204)

    def part(table: Routes[Any]) -> None:
        table.add(group, lambda app: None)

    with pytest.raises(ValueError, match="ambiguous"):
        RouteTable((Part(name="part", routes={"part": part}),)).index()
