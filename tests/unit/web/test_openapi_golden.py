"""The OpenAPI document is the same as the stored one, apart from texts. Schemas keep their names, because generated clients use them.

After an intended change of the API, store the document again with `python -m tests.unit.web.test_openapi_golden`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shared.app.routes import build_routes
from shared.web import openapi

GOLDEN = Path(__file__).parent / "openapi.golden.json"
TEXTS = frozenset({"summary", "description", "title", "version"})
"""Members that hold sentences, or the version, which has a test of its own."""
NAMED = frozenset({"properties", "patternProperties", "$defs", "paths", "schemas", "responses", "headers", "content", "mapping"})
"""Members whose own members are names, not keywords: a property may be called `title`."""


def without_texts(part: Any, *, names: bool = False) -> Any:
    """Return the document without its sentences; of examples only the number remains."""
    if isinstance(part, list):
        return [without_texts(item) for item in part]
    if not isinstance(part, dict):
        return part
    out: dict[str, Any] = {}
    for key, value in part.items():
        if names:
            out[key] = without_texts(value)
        elif key == "examples":
            out[key] = len(value)
        elif not (key in TEXTS and isinstance(value, str)):
            out[key] = without_texts(value, names=key in NAMED)
    return out


def with_sorted_schemas(document: Any) -> Any:
    """Return the document with its schemas and paths sorted by name."""
    components = document["components"]
    return {
        **document,
        "paths": dict(sorted(document["paths"].items())),
        "components": {**components, "schemas": dict(sorted(components["schemas"].items()))},
    }


def structure() -> Any:
    # Through JSON, as a client reads it: keys become strings, tuples become arrays.
    return with_sorted_schemas(json.loads(json.dumps(without_texts(openapi.build(build_routes())))))


def test_document_is_the_same_apart_from_texts() -> None:
    stored, found = json.loads(GOLDEN.read_text()), structure()
    assert found["components"]["schemas"].keys() == stored["components"]["schemas"].keys()
    assert list(found["paths"]) == list(stored["paths"])
    for path, operations in stored["paths"].items():
        assert found["paths"][path] == operations, path
    for name, schema in stored["components"]["schemas"].items():
        assert found["components"]["schemas"].get(name) == schema, name
    assert found == stored


def test_functions_have_the_names_of_the_operations() -> None:
    stored = json.loads(GOLDEN.read_text())
    operations = {operation["operationId"]: operation for path in stored["paths"].values() for operation in path.values()}
    routes = {route.name: route for route in build_routes()}
    assert len(routes) == len(build_routes()) == len(operations) > 80
    assert routes.keys() == operations.keys()
    assert all(operations[name].get("tags", []) == ([route.tag] if route.tag else []) for name, route in routes.items())


def test_every_operation_has_a_summary_of_one_line() -> None:
    for route in build_routes():
        assert route.summary and "\n" not in route.summary and not route.summary.endswith("."), route.name


if __name__ == "__main__":
    # One line per operation and schema, so that a change is easy to review.
    document = structure()
    lines = [f'"{key}": {json.dumps(value)}' for key, value in document.items() if key not in ("paths", "components")]
    paths = ",\n".join(f"{json.dumps(path)}: {json.dumps(operations)}" for path, operations in document["paths"].items())
    schemas = ",\n".join(f"{json.dumps(name)}: {json.dumps(schema)}" for name, schema in document["components"].pop("schemas").items())
    rest = json.dumps(document["components"])[1:]
    lines += [f'"paths": {{\n{paths}\n}}', f'"components": {{"schemas": {{\n{schemas}\n}}, {rest}']
    GOLDEN.write_text("{" + ",\n".join(lines) + "}\n")
