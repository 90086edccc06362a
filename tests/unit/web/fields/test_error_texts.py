"""Error texts for wrong values: of every model that any route takes, provoked member by member."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import orjson
import pytest
from pydantic import TypeAdapter

from shared.core.durations import parse_duration
from shared.core.errors import Problem
from shared.delivery.channels.model import CHANNEL_TYPES
from shared.extras.parts import build_routes
from shared.web.fields.error_texts import fault_text
from shared.web.parsing import parse_json, parse_query

ROUTES = build_routes()
BODIES = sorted({route.name: route.shape if route.shape is not None else route.body for route in ROUTES}.items())
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 1.5, 10**12, 1e300, "", "?", "\x00", "x" * 5000, "PT0S", "PT0.001S", "P3660D", "2030-01-01T00:00:00Z", "::"),
    *([], {}, ["?"] * 300, {str(number): "x" for number in range(40)}, {"?": "\x00"}, {"k": 1}),
)
RAW = re.compile(
    r"[Ii]nput should|[Ss]tring should|[Vv]alue should|valid (integer|string|number|boolean|list|dictionary)|instance of|pattern|regular"
    r"|[\^\\\[{$]|\b[A-Z][a-z]+(In|Out|Patch|Channel|Limits)\b"
)
"""pydantic's own sentences, regular expressions, names of classes."""
DURATIONS = {"first", "max", "within", "timeout", "jitter", "every", "delay", "expires", "flex", "collapse"}


def faults(kind: Any, body: Any) -> list[dict[str, str]]:
    try:
        parse_json(TypeAdapter(kind), orjson.dumps(body))
    except Problem as wrong:
        return wrong.errors
    return []


def members(schema: dict[str, Any], models: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Return the paths of all members in a body of this schema."""
    if "$ref" in schema:
        schema = models[schema["$ref"].rpartition("/")[2]]
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from members(branch, models, path)
    if schema.get("type") == "array":
        yield from members(schema["items"], models, path)
    if schema.get("type") == "object":
        for name, inner in schema.get("properties", {}).items():
            yield (*path, name)
            yield from members(inner, models, (*path, name))


def within(path: tuple[str, ...], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


@cache
def provoked() -> list[tuple[str, dict[str, str]]]:
    """Every fault that the values above bring out of the models, by route."""
    return list(_provoked())


def _provoked() -> Iterator[tuple[str, dict[str, str]]]:
    for name, kind in BODIES:
        if kind in (None, bytes):
            continue
        schema = TypeAdapter(kind).json_schema()
        for path in sorted({*members(schema, schema.get("$defs", {})), ()}):
            for value in VALUES:
                bodies = [within(path, value)]
                if "discriminator" in schema:
                    bodies = [{"type": tag} | within(path, value) for tag in CHANNEL_TYPES] if path else bodies
                for body in bodies:
                    for fault in faults(kind, [body] if schema.get("type") == "array" else body):
                        yield name, fault


def test_no_sentence_of_any_model_is_pydantics_own_or_shows_a_pattern() -> None:
    found = provoked()
    assert len(found) > 5_000
    raw = {(name, fault["pointer"][:80], fault["detail"]) for name, fault in found if RAW.search(fault["detail"])}
    assert raw == set()
    vague = {(name, fault["pointer"][:80]) for name, fault in found if fault["detail"] == "is not valid"}
    assert vague == set()


def test_limits_of_durations_are_as_durations() -> None:
    bounds = set()
    for name, fault in provoked():
        if fault["pointer"].rpartition("/")[2] in DURATIONS and (bound := re.search(r"must be at (least|most) (.*)", fault["detail"])):
            assert parse_duration(bound[2]) >= 0, (name, fault)
            bounds.add(bound[2])
    assert {"PT0.001S", "P1D", "P7D", "PT0.1S", "PT1M", "P30D"} <= bounds


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"timeout": "PT2M"}, "must be at most PT1M"),
        ({"limits": {"concurrency": 0}}, "must be at least 1"),
        ({"limits": {"deliveries_per_second": 0}}, "must be more than 0"),
        ({"limits": {"deliveries_per_second": 2_000_000}}, "must be at most 1,000,000"),
        ({"url": ""}, "must not be empty"),
        ({"headers": dict.fromkeys("abcdefghijklmnopqrstuvwxyz0123456789", "x")}, "must have at most 32 members"),
        ({"url": 5}, "must be a string"),
    ],
)
def test_channels_faults_have_plain_messages(body: dict[str, Any], detail: str) -> None:
    kind = dict(BODIES)["channels_put"]
    assert [fault["detail"] for fault in faults(kind, {"type": "http", "url": "https://example.com/"} | body)] == [detail]


def test_faults_of_query_parameters_have_plain_messages() -> None:
    for route in ROUTES:
        for name in getattr(route.query, "model_fields", {}):
            for value in ("", "?", "0", "-1", "99999999999", "x" * 3000, "PT1S", "2030-01-01T00:00:00Z"):
                try:
                    parse_query(TypeAdapter(route.query), {name: value})
                except Problem as wrong:
                    assert not any(RAW.search(error["detail"]) for error in wrong.errors), (route.name, wrong.errors)


def test_names_in_paths_are_what_they_may_be() -> None:
    for route in ROUTES:
        for kind in route.params.values():
            with pytest.raises(ValueError) as wrong:
                TypeAdapter(kind).validate_strings("\x00")
            [error] = wrong.value.errors()  # type: ignore[attr-defined]
            assert not RAW.search(fault_text(error)) and fault_text(error) != "is not valid", (route.name, error)
