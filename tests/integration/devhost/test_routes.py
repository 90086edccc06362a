"""The host's routing rules, without a server."""

from urllib.parse import quote

import pytest

from devhost.host.routes import RouteError, RouteTable, compile_route


def table(*routes: tuple[str, str] | tuple[str, str, str]) -> RouteTable:
    return RouteTable(compile_route(name, template, methods, "api") for name, template, *methods in routes)


@pytest.mark.parametrize(
    ("template", "path", "expected"),
    [
        ("events/{id}", "/api/events/a", {"id": "a"}),
        ("events/{id}", "/api/events/a/", {"id": "a"}),
        ("events/{id}", "/API/Events/A", {"id": "A"}),
        ("events/{id}", "/api/events", None),
        ("events/{id}", "/api/events//", None),
        ("events/{id}", "/api/events/a/b", None),
        ("events/{id}", "/events/a", None),
        ("events/{id}", "/api/events/" + quote("ä /b", safe=""), {"id": "ä %2Fb"}),
        ("n/{id:int}", "/api/n/17", {"id": "17"}),
        ("n/{id:int}", "/api/n/-17", {"id": "-17"}),
        ("n/{id:int}", "/api/n/2147483648", None),
        ("n/{id:long}", "/api/n/2147483648", {"id": "2147483648"}),
        ("n/{id:int}", "/api/n/x", None),
        ("g/{id:guid}", "/api/g/7d444840-9dc0-11d1-b245-5ffdce74fad2", {"id": "7d444840-9dc0-11d1-b245-5ffdce74fad2"}),
        ("g/{id:guid}", "/api/g/7d4448409dc011d1b2455ffdce74fad2", {"id": "7d4448409dc011d1b2455ffdce74fad2"}),
        ("g/{id:guid}", "/api/g/7d444840", None),
        ("o/{id?}", "/api/o", {}),
        ("o/{id?}", "/api/o/", {}),
        ("o/{id?}", "/api/o/a", {"id": "a"}),
        ("o/{id:int?}", "/api/o/a", None),
        ("c/{*rest}", "/api/c/a/b/c/d/e/f", {"rest": "a/b/c/d/e/f"}),
        ("c/{*rest}", "/api/c", {}),
        ("{*rest}", "/api/x/y", {"rest": "x/y"}),
        ("f/{name}.json", "/api/f/a.b.json", {"name": "a.b"}),
        ("f/{a}-{b}", "/api/f/x-y", {"a": "x", "b": "y"}),
        ("p/{n:int}/release", "/api/p/5/release", {"n": "5"}),
    ],
)
def test_template_matches(template: str, path: str, expected: dict[str, str] | None) -> None:
    found = table(("f", template)).find("GET", path)
    assert (found[1] if found else None) == expected


def test_first_function_by_name_wins_however_unspecific() -> None:
    routes = table(("b", "x/fixed"), ("a", "x/{id}"))
    assert routes.find("GET", "/api/x/fixed") == ("a", {"id": "fixed"})


def test_wrong_method_goes_on_to_the_next_route_or_finds_nothing() -> None:
    routes = table(("a", "x/{id}", "GET"), ("b", "x/{id}", "put"))
    assert routes.find("PUT", "/api/x/1") == ("b", {"id": "1"})
    assert routes.find("DELETE", "/api/x/1") is None


def test_empty_prefix_serves_from_the_root() -> None:
    routes = RouteTable([compile_route("f", "x", (), "")])
    assert routes.find("GET", "/x") == ("f", {})
    assert routes.find("GET", "/api/x") is None


@pytest.mark.parametrize(
    "template",
    ["admin", "Admin/x", "administrators", "runtime/x", "{a:colour}", "{*a}/b", "x{*a}", "{a?}/b", "{a}/{a}", "{a-b}", "a}"],
)
def test_template_is_refused(template: str) -> None:
    with pytest.raises(RouteError, match="route"):
        compile_route("f", template, (), "api")
