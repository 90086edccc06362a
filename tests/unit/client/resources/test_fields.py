"""Definitions as arguments: they name the fields of the API, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from shared.client.resources.definitions import STATE, definition, merged
from shared.client.resources.fields import DURATIONS, ChannelFields, FleetFields, Scope, TenantFields
from tests.paths import ROOT

SCHEMAS: dict[str, Any] = json.loads((ROOT / "docs/reference/openapi.json").read_text())["components"]["schemas"]
CHANNELS = ("HttpChannel", "FleetChannel", "QueueChannel", "EventGridChannel", "KafkaChannel", "ServiceBusChannel")
INPUTS = {"channel": CHANNELS, "tenant": ("Tenant",), "fleet": ("FleetIn",), "calendar": ("CalendarIn",), "schedule": ("ScheduleIn",)}
OUTPUTS = {
    "channel": [f"{name}Out" for name in CHANNELS],
    "tenant": ["TenantOut"],
    "fleet": ["FleetOut"],
    "calendar": ["CalendarOut"],
    "schedule": ["ScheduleOut"],
}
DURATION = "^P(?=[0-9T])"


def in_api(schema: dict[str, Any], where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and schema of each member, and of those inside."""
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from in_api(each, where)
    if "items" in schema:
        yield from in_api(schema["items"], where)
    if isinstance(named := schema.get("additionalProperties"), dict):
        yield from in_api(named, where)
    if "properties" not in schema and where:
        yield where, schema
    for name, inside in schema.get("properties", {}).items():
        path = f"{where}.{name}" if where else name
        yield path, {}
        yield from in_api(inside, path)


def in_arguments(kind: Any, where: str = "") -> Iterator[str]:
    """Yield the path of each member of a typed dictionary, and of those inside."""
    if is_typeddict(kind):
        for name, inside in get_type_hints(kind).items():
            path = f"{where}.{name}" if where else name
            yield path
            yield from in_arguments(inside, path)
    elif get_origin(kind) is not Literal:
        for each in get_args(kind):
            yield from in_arguments(each, where)


FIELDS: Mapping[str, Any] = {"channel": ChannelFields, "tenant": TenantFields, "fleet": FleetFields}


@pytest.mark.parametrize("kind", FIELDS)
def test_arguments_have_every_field_of_the_api_and_no_other(kind: str) -> None:
    served = {path for name in INPUTS[kind] for path, _ in in_api(SCHEMAS[name], "")}
    assert set(in_arguments(FIELDS[kind])) == served


@pytest.mark.parametrize("kind", DURATIONS)
def test_every_duration_of_the_api_is_known(kind: str) -> None:
    served = {path for name in INPUTS[kind] for path, schema in in_api(SCHEMAS[name], "") if schema.get("pattern", "").startswith(DURATION)}
    assert served == DURATIONS[kind]


@pytest.mark.parametrize("kind", INPUTS)
def test_a_definition_is_what_the_answer_has_of_the_request(kind: str) -> None:
    for taken, shown in zip(INPUTS[kind], OUTPUTS[kind], strict=True):
        answer = SCHEMAS[shown]["properties"]
        assert definition(kind, answer).keys() == answer.keys() & SCHEMAS[taken]["properties"].keys(), shown


def choices(of: Any) -> Sequence[str]:
    return get_args(of.__value__)


def test_scopes_are_those_of_the_api() -> None:
    assert set(choices(Scope)) == set(SCHEMAS["KeyIn"]["properties"]["scopes"]["items"]["enum"])


CASES = json.loads((ROOT / "tests" / "data" / "merged_definitions.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_named_fields_are_merged_into_what_is_stored(case: dict[str, Any]) -> None:
    before = json.dumps(case["stored"])
    assert merged(case["stored"], case["named"]) == case["merged"]
    assert json.dumps(case["stored"]) == before


def test_the_typescript_client_leaves_the_same_members_out_of_definitions() -> None:
    source = (ROOT / "clients" / "typescript" / "src" / "resources.ts").read_text()
    for kind in ("tenant", "channel", "fleet", "schedule"):
        assert f"  {kind}: {json.dumps(sorted(STATE[kind]))},\n" in source
