"""Route templates: what is taken, what fits, and which tables are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.web import templates
from shared.web.routes import Answer, Call, RouteGroup, Routes


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("v1/events/{id}", "v1/events/batch"),
        ("v1/events/{id}", "v1/events/{name}"),
        ("v1/Events", "v1/events"),
        ("v1/{a}/b", "v1/a/{b}"),
        ("v1/leases/{partition:int}", "v1/leases/17"),
        ("v1/leases/{partition:int}", "v1/leases/{id}"),
        ("bigben/{*rest}", "bigben/a/b/c"),
        ("bigben/{*rest}", "bigben"),
        ("v1/a/{id?}", "v1/a"),
        ("{*all}", "v1/events"),
    ],
)
def test_templates_that_share_a_path_are_found(one: str, other: str) -> None:
    assert templates.overlap(one, other)
    assert templates.overlap(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("v1/leases/{partition:int}", "v1/leases/stale"),
        ("v1/leases/{partition:int}", "v1/leases/{id:guid}"),
        ("v1/leases/{partition:int}", "v1/leases/{word:alpha}"),
        ("v1/events/{id}", "v1/events/{id}/fire"),
        ("v1/events", "v1/events/{id}"),
        ("v1/events/{id}/fire", "v1/events/{id}/redrive"),
        ("openapi.json", "healthz"),
    ],
)
def test_templates_that_share_no_path_do_not_conflict(one: str, other: str) -> None:
    assert not templates.overlap(one, other)
    assert not templates.overlap(other, one)


_SEGMENT = st.sampled_from(["a", "7", "b", "{x}", "{y:int}", "{z:alpha}"])
_PART = st.sampled_from(["a", "b", "7", "-1", "c", "A"])


def _named(parts: list[str]) -> str:
    """A template with each parameter's name made its own."""
    return "/".join(part.replace("{", f"{{p{at}") for at, part in enumerate(parts))


@given(st.lists(_SEGMENT, min_size=1, max_size=3), st.lists(_SEGMENT, min_size=1, max_size=3), st.lists(_PART, min_size=1, max_size=3))
def test_a_path_that_fits_both_templates_means_they_overlap(one: list[str], other: list[str], parts: list[str]) -> None:
    path = "/".join(parts)
    a, b = _named(one), _named(other)
    if templates.match(a, path) is not None and templates.match(b, path) is not None:
        assert templates.overlap(a, b)


def test_a_match_gives_decoded_parameters() -> None:
    assert templates.match("v1/events/{id}", "v1/events/a%3Ab%20c") == {"id": "a:b c"}
    assert templates.match("v1/events/{id}", "V1/EVENTS/x") == {"id": "x"}
    assert templates.match("v1/events/{id}", "v1/events/") is None
    assert templates.match("v1/leases/{p:int}", "v1/leases/x") is None
    assert templates.match("bigben/{*rest}", "bigben/a/b") == {"rest": "a/b"}
    assert templates.match("v1/a/{id?}", "v1/a") == {}
    assert templates.match("v1/a", "v1/a/b") is None


@pytest.mark.parametrize(
    "template", ["admin/x", "Runtime/x", "v1//x", "v1/{id:regex}", "v1/{a}-{b}", "v1/{a}/{a}", "v1/{*rest}/x", "/v1", "v1/{Id}", ""]
)
def test_templates_the_host_would_not_take_are_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        templates.parse(template)


def test_the_openapi_form_has_no_constraints() -> None:
    assert templates.plain("v1/leases/{partition:int}/{*rest}") == "/v1/leases/{partition}/{rest}"


async def _handler(call: Call) -> Answer:
    """Answer."""
    return Answer(204)


def _add(routes: Routes, method: str, template: str, name: str, **more: Any) -> None:
    group = RouteGroup[None](**more)
    getattr(group, method.lower())(template, name=name, answers={204: None})(_handler)
    routes.add(group, lambda app: None)


def test_an_ambiguous_table_is_refused_and_says_which_routes() -> None:
    routes = Routes()
    _add(routes, "POST", "v1/events/{id}", "one")
    _add(routes, "POST", "v1/events/batch", "two")
    with pytest.raises(ValueError, match=r"v1/events/\{id\} \(one\).* v1/events/batch \(two\)"):
        routes.check()


def test_the_same_template_under_another_method_is_no_clash() -> None:
    routes = Routes()
    _add(routes, "GET", "v1/events/{id}", "one")
    _add(routes, "POST", "v1/events/batch", "two")
    routes.check()


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("Upper", {}),
        ("with-hyphen", {}),
        ("taken", {}),
        ("bad_scope", {"scope": "root"}),
        ("no_app", {"scope": "events", "standalone": True}),
    ],
)
def test_routes_that_cannot_work_are_refused_when_they_are_added(name: str, more: dict[str, Any]) -> None:
    routes = Routes()
    _add(routes, "GET", "v1/a", "taken")
    with pytest.raises(ValueError, match=r".+"):
        _add(routes, "GET", "v1/b", name, **more)
