"""The JSON Schemas of the API's types, in a form from which generators of clients make types that fit.

Generators read a schema literally, so it says no more than is so: a member is nullable only if null has a meaning of its own, and no
member has a `default`, of which some generators make a required member. The service reads null in place of an optional member of a request
as if the member were missing; the document does not offer it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core.core_schema import ModelField

from ..core.durations import DURATION_PATTERN, format_duration

REF = "#/components/schemas/{model}"
_REF_START = "#/components/schemas/"

_BOUNDS: dict[str, str] = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}
_NULL = {"type": "null"}
_LONGEST_DEFAULT = 80
"""Characters of a default that a description repeats; a longer one is a whole model, whose members describe their own."""


class Schemas:
    """The JSON Schemas of types, under their component names."""

    def __init__(self, kinds: Iterable[tuple[Any, JsonSchemaMode]]) -> None:
        adapters: dict[tuple[int, JsonSchemaMode], TypeAdapter[Any]] = {}
        # Keeps the types alive, because their ids are the keys.
        self._kinds: list[Any] = []
        for kind, mode in kinds:
            if (id(kind), mode) not in adapters:
                self._kinds.append(kind)
                adapters[id(kind), mode] = TypeAdapter(kind)
        inputs = [(key, key[1], adapter) for key, adapter in adapters.items()]
        found, rest = TypeAdapter.json_schemas(inputs, ref_template=REF, schema_generator=_Generator)
        components: dict[str, Any] = _tidy(rest.get("$defs", {}))
        merged = _same_both_ways(components)
        self._found: dict[Any, Any] = {key: _renamed(_tidy(schema), merged) for (key, _), schema in found.items()}
        self.components = {merged.get(name, name): _renamed(schema, merged) for name, schema in sorted(components.items())}

    def of(self, kind: Any, mode: JsonSchemaMode) -> dict[str, Any]:
        """Return the schema of a type that was added."""
        found: dict[str, Any] = self._found[id(kind), mode]
        return found

    def inline(self, kind: Any, mode: JsonSchemaMode) -> dict[str, Any]:
        """Return the schema of a type, following a reference."""
        schema = self.of(kind, mode)
        followed: dict[str, Any] = self.components[schema["$ref"].removeprefix(_REF_START)] if "$ref" in schema else schema
        return followed

    def used(self, part: Any) -> dict[str, Any]:
        """Return the components that a part of the document refers to, for bodies; query models, for example, become parameters."""
        found: set[str] = set()
        left: list[Any] = [part]
        while left:
            part = left.pop()
            if isinstance(part, list):
                left += part
            elif isinstance(part, dict):
                left += part.values()
                name = str(part.get("$ref", "")).removeprefix(_REF_START)
                if name in self.components and name not in found:
                    found.add(name)
                    left.append(self.components[name])
        return {name: with_defaults_in_words(schema) for name, schema in self.components.items() if name in found}


class _Generator(GenerateJsonSchema):
    """Makes members nullable only where they are."""

    def model_field_schema(self, schema: ModelField) -> JsonSchemaValue:
        made = dict(super().model_field_schema(schema))
        excluded = "serialization_exclude_if" in schema
        if "default" in made and made["default"] is None:
            del made["default"]
            excluded = excluded or self.mode == "validation"
        return _without_null(made) if excluded else made


def _same_both_ways(components: dict[str, Any]) -> dict[str, str]:
    """Return the new names of schemas that pydantic splits into -Input and -Output only because answers show null for a missing member.

    The name of both is the common one. The schema is that of answers, because it comes last: what a client has read, it may send.
    """
    bases = {base for name in components if (base := name.removesuffix("-Output")) != name and f"{base}-Input" in components}
    while True:
        names = {f"{base}-{way}": base for base in bases for way in ("Input", "Output")}
        forms = {old: _without_nulls(_renamed(components[old], names)) for old in names}
        alike = {base for base in bases if forms[f"{base}-Input"] == forms[f"{base}-Output"]}
        if alike == bases:
            return names
        bases = alike


def _without_nulls(schema: dict[str, Any]) -> str:
    properties = {name: _without_null(member) for name, member in schema.get("properties", {}).items()}
    return json.dumps({**schema, "properties": properties}, sort_keys=True)


def _renamed(schema: Any, names: dict[str, str]) -> Any:
    """Return the schema with its references to schemas under their new names."""
    if isinstance(schema, list):
        return [_renamed(part, names) for part in schema]
    if isinstance(schema, dict):
        return {key: _renamed(part, names) for key, part in schema.items()}
    if isinstance(schema, str) and schema.startswith(_REF_START):
        name = schema.removeprefix(_REF_START)
        return _REF_START + names.get(name, name)
    return schema


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    choices = schema.get("anyOf", [])
    if _NULL not in choices:
        return schema
    kept = [choice for choice in choices if choice != _NULL]
    rest = {name: part for name, part in schema.items() if name != "anyOf"}
    return {**kept[0], **rest} if len(kept) == 1 else {"anyOf": kept, **rest}


def _tidy(schema: Any) -> Any:
    """Drop pydantic's generated titles, write the defaults of durations in ISO 8601, and the names of maps as `propertyNames`."""
    if isinstance(schema, list):
        return [_tidy(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for given, part in schema.items():
        if given == "title" and isinstance(part, str):
            continue
        # pydantic writes a bound behind a validator under its own name.
        name: str = _BOUNDS.get(str(given), str(given))
        if name == "properties":
            out[name] = {member: _tidy(inner) for member, inner in part.items()}
        elif name in ("default", "examples", "const", "enum"):
            out[name] = part
        elif name == "patternProperties" and len(part) == 1 and "additionalProperties" not in schema:
            # Alone it permits any member under other names, and some generators do not read it.
            [(pattern, value)] = part.items()
            out |= {"propertyNames": {"pattern": pattern}, "additionalProperties": _tidy(value)}
        else:
            out[name] = _tidy(part)
    if out.get("type") == "string" and isinstance(out.get("default"), int):
        default = out.pop("default")
        if out.get("pattern") == DURATION_PATTERN:
            out["default"] = format_duration(default)
    return out


def with_defaults_in_words(schema: Any) -> Any:
    """Return the schema of a body with each member's default in its description."""
    if isinstance(schema, list):
        return [with_defaults_in_words(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {name: part if name in ("examples", "const", "enum") else with_defaults_in_words(part) for name, part in schema.items()}
    properties = out.get("properties", {})
    for name, member in properties.items():
        if isinstance(member, dict) and "default" in member:
            default = json.dumps(member["default"], ensure_ascii=False)
            text = f"Default: `{default if not isinstance(member['default'], str) else member['default']}`."
            described = {key: part for key, part in member.items() if key != "default"}
            if member["default"] not in ("", [], {}) and len(text) <= _LONGEST_DEFAULT:
                described["description"] = " ".join(filter(None, [described.get("description"), text]))
            properties[name] = described
    return out
