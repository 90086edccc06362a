"""docs/reference/openapi.json is the document of the routes. Operations and schemas keep their names, because generated clients use them.

After an intended change of the API, write the document again with `make openapi`, or `python -m devhost.openapi_document`.
"""

from __future__ import annotations

import json

from devhost.openapi_document import DOCUMENT, build, text
from shared.extras.parts import build_routes

REFRESH = "docs/reference/openapi.json is out of date: run `make openapi`, or `python -m devhost.openapi_document`"


def test_the_committed_document_is_up_to_date() -> None:
    stored, found = json.loads(DOCUMENT.read_text(encoding="utf-8")), build()
    assert list(found["paths"]) == list(stored["paths"]), REFRESH
    for path, operations in found["paths"].items():
        assert operations == stored["paths"][path], f"{path}: {REFRESH}"
    for name, schema in found["components"]["schemas"].items():
        assert schema == stored["components"]["schemas"].get(name), f"{name}: {REFRESH}"
    assert found == stored, REFRESH
    assert text(found) == DOCUMENT.read_text(encoding="utf-8"), REFRESH


def test_functions_have_the_names_of_the_operations() -> None:
    stored = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    operations = {operation["operationId"]: operation for path in stored["paths"].values() for operation in path.values()}
    routes = {route.name: route for route in build_routes()}
    assert len(routes) == len(build_routes()) == len(operations) > 80
    assert routes.keys() == operations.keys()
    assert all(operations[name]["tags"] == [route.tag] != [""] for name, route in routes.items())


def test_every_operation_has_a_summary_of_one_line() -> None:
    for route in build_routes():
        assert route.summary and "\n" not in route.summary and not route.summary.endswith("."), route.name
