"""Texts about wrong values. They replace pydantic's own texts, which show patterns, names of classes, and durations in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from ...core.durations import format_duration

TEXT = "a string of at most {} characters, none of them a control character"
"""Describes one line of text."""
_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
_KINDS: Mapping[str, str] = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "none_required": "null",
    "uuid_type": "a UUID",
    "uuid_parsing": "a UUID",
    "uuid_version": "a UUID",
}


@dataclass(frozen=True, slots=True)
class Shaped:
    """Metadata of a type with a pattern: the description that the error message of a wrong value shows.

    It stands behind the constraints that it describes: `Annotated[str, StringConstraints(pattern=...), Shaped("1 to 40 of a-z")]`.
    """

    description: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.custom_error_schema(handler(source), "shape", custom_error_message=f"must be {self.description}")


def fault_text(error: Mapping[str, Any], value: Any = None) -> str:
    """Return the text of pydantic's `error`. value: the value sent; the bounds of a duration are shown as durations."""
    kind, given = str(error["type"]), error.get("ctx", {})
    if kind in _BOUNDS:
        name, comparison = _BOUNDS[kind]
        return f"must be {comparison} {_bound(given[name], value)}"
    if kind in _KINDS:
        return f"must be {_KINDS[kind]}"
    match kind:
        case "extra_forbidden":
            return "is not a known field"
        case "missing" | "union_tag_not_found":
            return "is required"
        case "union_tag_invalid":
            # pydantic's sentence repeats the tag that was sent.
            return f"must be one of {given['expected_tags']}"
        case "literal_error" | "enum":
            return f"must be {given['expected']}"
        case "string_too_short" | "too_short" if given["min_length"] == 1:
            return "must not be empty"
        case "string_too_short":
            return f"must be at least {given['min_length']:,} characters long"
        case "string_too_long":
            return f"must be at most {given['max_length']:,} characters long"
        case "too_short":
            return f"must have at least {given['min_length']:,} members"
        case "too_long":
            return f"must have at most {given['max_length']:,} members"
        case "value_error" | "assertion_error":
            return str(error["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
        case "shape":
            return str(error["msg"])
        case _:
            return "is not valid"


def _bound(bound: float, value: Any) -> str:
    if isinstance(value, str) and value.startswith("P"):
        return format_duration(int(bound))
    return f"{bound:,.0f}" if float(bound).is_integer() else str(bound)
