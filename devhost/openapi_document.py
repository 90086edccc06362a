"""Writes docs/reference/openapi.json from the routes, and the TypeScript client's types from it: `python -m devhost.openapi_document`."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from devhost.azurite import ROOT, find_node
from shared.extras.parts import build_routes
from shared.web import openapi

DOCUMENT = ROOT / "docs" / "reference" / "openapi.json"
TYPES = ROOT / "clients" / "typescript" / "generate.mjs"


def build() -> dict[str, Any]:
    """Return the document as the service serves it: through JSON, in which keys are strings and tuples are arrays."""
    document: dict[str, Any] = json.loads(json.dumps(openapi.build(build_routes())))
    return document


def text(document: dict[str, Any]) -> str:
    """Return the document's JSON with a line for each operation and each schema, so that a change is easy to review."""
    rest = {name: part for name, part in document.items() if name not in ("paths", "components")}
    schemas = _lines(document["components"]["schemas"])
    others = {name: part for name, part in document["components"].items() if name != "schemas"}
    paths = ",\n".join(f"{_json(path)}: {_lines(operations)}" for path, operations in document["paths"].items())
    return f'{_json(rest)[:-1]},\n"paths": {{\n{paths}\n}},\n"components": {{"schemas": {schemas}, {_json(others)[1:]}}}\n'


def _json(part: Any) -> str:
    return json.dumps(part, ensure_ascii=False)


def _lines(members: dict[str, Any]) -> str:
    return "{\n" + ",\n".join(f"{_json(name)}: {_json(part)}" for name, part in members.items()) + "\n}"


if __name__ == "__main__":
    DOCUMENT.write_text(text(build()), encoding="utf-8")
    subprocess.run([find_node(), TYPES], check=True)
    print(f"{DOCUMENT} and {TYPES.parent / 'src' / 'openapi.ts'} are written.")
