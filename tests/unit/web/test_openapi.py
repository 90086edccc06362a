"""The document is valid, complete, and says what the layer does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shared.extras.parts import build_routes
from shared.web import openapi

from .conftest import World, make_routes


@pytest.fixture
def document() -> dict[str, Any]:
    return openapi.build(make_routes())


def assert_valid(document: dict[str, Any]) -> None:
    # Imported here: it takes seconds, and every worker of xdist imports every module of tests.
    from openapi_spec_validator import OpenAPIV31SpecValidator

    OpenAPIV31SpecValidator(document).validate()


def operations(document: dict[str, Any]) -> dict[str, Any]:
    return {operation["operationId"]: operation for path in document["paths"].values() for operation in path.values()}


def test_the_document_is_valid_openapi(document: dict[str, Any]) -> None:
    assert_valid(document)


def test_the_document_of_the_shipped_routes_is_valid_and_unambiguous() -> None:
    routes = build_routes()
    routes.check()
    document = openapi.build(routes)
    assert document["openapi"].startswith("3.1")
    assert_valid(document)
    assert set(operations(document)) == {route.name for route in routes}


def test_each_operation_lists_what_the_layer_may_answer(document: dict[str, Any]) -> None:
    found = {name: set(operation["responses"]) for name, operation in operations(document).items()}
    everywhere = {"422", "500"}
    keyed = everywhere | {"401", "403", "503"}
    assert found["things_create"] == keyed | {"201", "404", "411", "413", "415", "429"}
    assert found["things_put"] == keyed | {"200", "404", "411", "412", "413", "415"}
    assert found["things_get"] == keyed | {"200", "404"}
    assert found["metrics"] == keyed | {"200"}
    assert found["openapi_json"] == everywhere | {"200"}


def test_problems_name_their_codes(document: dict[str, Any]) -> None:
    conflict = operations(document)["fails"]["responses"]["409"]
    schema = conflict["content"]["application/problem+json"]["schema"]
    assert schema["properties"]["type"]["enum"] == ["https://tocsin.dev/problems/id-conflict"]
    limited = operations(document)["things_create"]["responses"]["429"]
    assert set(limited["headers"]) == {"Retry-After"}


def test_parameters_have_their_constraints(document: dict[str, Any]) -> None:
    parameters = {parameter["name"]: parameter for parameter in operations(document)["things_list"]["parameters"]}
    assert set(parameters) == {"tenant", "limit", "cursor", "from", "deep"}
    assert parameters["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
    assert parameters["from"]["schema"]["format"] == "date-time"
    assert not parameters["from"]["required"]
    path = operations(document)["leases_get"]["parameters"][0]
    assert (path["in"], path["schema"]["type"]) == ("path", "integer")
    assert operations(document)["things_at"]["parameters"][1]["required"]


def test_bodies_and_security_are_described(document: dict[str, Any]) -> None:
    create = operations(document)["things_create"]
    body = create["requestBody"]["content"]["application/json"]
    assert body["schema"] == {"$ref": "#/components/schemas/ThingIn"}
    assert body["examples"] == {"least": {"value": {"name": "a"}}}
    assert create["security"] == [{"key": ["events"]}]
    assert operations(document)["openapi_json"]["security"] == []
    lines = operations(document)["lines_create"]["requestBody"]["content"]
    assert lines["application/json"]["schema"]["type"] == "array"
    assert lines["application/x-ndjson"]["schema"] == {"type": "string"}


def test_schemas_forbid_what_the_parser_refuses_and_carry_no_clutter(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["ThingIn"]["additionalProperties"] is False
    assert "title" not in schemas["ThingIn"]
    assert "Paging" not in schemas
    retry = next(schema for name, schema in schemas.items() if name.startswith("Retry"))
    assert retry["properties"]["schedule"]["maxItems"] == 99


def test_members_are_nullable_only_where_null_has_a_meaning() -> None:
    schemas = openapi.build(build_routes())["components"]["schemas"]
    event, patch = schemas["EventIn"], schemas["EventPatch"]["properties"]
    assert not {"oneOf", "anyOf", "allOf", "required"} & event.keys()
    assert all("anyOf" not in member for member in event["properties"].values())
    # Null removes the one, and is refused for the other.
    assert patch["expires"]["anyOf"][1] == {"type": "null"} and patch["due"]["type"] == "string"
    # An answer leaves the one out, and shows the other as null.
    assert "anyOf" not in schemas["EventOut"]["properties"]["held"] and "anyOf" in schemas["EventList"]["properties"]["next"]
    # The limits of a tenant, as read, may be sent back: one schema for both ways.
    assert {"type": "null"} in schemas["Limits"]["properties"]["open_events"]["anyOf"]


def test_no_member_has_a_default_of_which_generators_make_a_required_one() -> None:
    def members(part: Any) -> Iterator[Any]:
        if isinstance(part, list):
            for item in part:
                yield from members(item)
        elif isinstance(part, dict):
            yield from part.get("properties", {}).values()
            for item in part.values():
                yield from members(item)

    schemas = openapi.build(build_routes())["components"]["schemas"]
    assert not [name for name, schema in schemas.items() if any("default" in each for each in members(schema) if isinstance(each, dict))]
    assert schemas["EventIn"]["properties"]["channel"]["description"].endswith("Default: `default`.")
    # Names are the same for both ways of the wire.
    assert not [name for name in schemas if name.endswith(("-Input", "-Output"))]


async def test_the_document_is_served_without_a_key(world: World) -> None:
    answer = await world.nobody.get("/api/openapi.json")
    assert answer.status == 200
    assert answer.json()["openapi"] == "3.1.0"
    assert (await world.nobody.get("/api/openapi.json")).body == answer.body
