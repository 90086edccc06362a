"""Operations and members of the API, and commands with their options: what callers rely on. tests/data/surface.json is a recording.

`python -m tests.surface` records the present. Do so at a release, and when something is taken away on purpose:
docs/reference/compatibility.md says how that is announced. Additions need no recording.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from devhost import openapi_document
from shared.cli.main import build

from .paths import ROOT

FILE = ROOT / "tests" / "data" / "surface.json"
_METHODS = {"get", "put", "post", "patch", "delete"}
type Surface = dict[str, dict[str, Any]]


def present() -> Surface:
    """Return the surface of the API and of the command as they are now."""
    return {**of_api(openapi_document.build()), "commands": dict(_commands("tocsin", typer.main.get_command(build([]))))}


def of_api(document: Mapping[str, Any]) -> Surface:
    """Return operations, and the members of what requests and answers hold; a member that must be there has a type that ends in `!`."""
    operations, taken, given = {}, set[str](), set[str]()
    for path, methods in document["paths"].items():
        for method in methods.keys() & _METHODS:
            operation = methods[method]
            sent = operation.get("requestBody", {})
            body, optional = sent.get("content", {}), "" if sent.get("required") else "?"
            answers = {status: answer.get("content", {}) for status, answer in operation["responses"].items() if status < "300"}
            operations[f"{method.upper()} {path}"] = {
                "parameters": {each["name"]: "!" if each.get("required") else "" for each in operation.get("parameters", ())},
                "body": {media: _type(each.get("schema", {})) + optional for media, each in body.items()},
                "answers": {
                    status: {media: _type(each.get("schema", {})) for media, each in held.items()} for status, held in answers.items()
                },
            }
            taken |= _named(body)
            given |= _named(answers)
    schemas = document["components"]["schemas"]
    taken, given = _reached(schemas, taken), _reached(schemas, given)
    return {
        "operations": operations,
        "taken": {name: _members(schemas[name]) for name in sorted(taken)},
        "given": {name: _members(schemas[name]) for name in sorted(given)},
    }


def _media(content: Mapping[str, Any]) -> dict[str, str]:
    return {media: _type(each.get("schema", {})) for media, each in content.items()}


def _members(schema: Mapping[str, Any]) -> dict[str, str]:
    required = schema.get("required", ())
    members = {name: _type(each) + ("!" if name in required else "") for name, each in schema.get("properties", {}).items()}
    return members or {"": _type(schema)}


def _type(schema: Mapping[str, Any]) -> str:
    """Return a short name of a schema: its type, without bounds and texts."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if choices := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        return " | ".join(sorted({_type(each) for each in choices}))
    if "enum" in schema:
        return " | ".join(sorted(json.dumps(each) for each in schema["enum"]))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "items" in schema:
        return f"[{_type(schema['items'])}]"
    if isinstance(named := schema.get("additionalProperties"), dict):
        return f"{{{_type(named)}}}"
    return ":".join(str(schema[name]) for name in ("type", "format") if name in schema)


def _named(part: Any) -> set[str]:
    if isinstance(part, dict):
        here = {str(part["$ref"]).rpartition("/")[2]} if isinstance(part.get("$ref"), str) and "/schemas/" in part["$ref"] else set[str]()
        return here.union(*(_named(each) for each in part.values()))
    return set[str]().union(*(_named(each) for each in part)) if isinstance(part, list) else set()


def _reached(schemas: Mapping[str, Any], names: set[str]) -> set[str]:
    found, left = set[str](), set(names)
    while left:
        name = left.pop()
        found.add(name)
        left |= _named(schemas[name]) - found
    return found


def _commands(name: str, command: Any) -> Iterator[tuple[str, dict[str, str]]]:
    if below := getattr(command, "commands", {}):
        for each, found in below.items():
            yield from _commands(f"{name} {each}", found)
        return
    options = {}
    for each in command.params:
        names = each.opts if each.param_type_name == "option" else [each.name]
        options |= dict.fromkeys(names, "!" if each.required else "")
    yield name, options


def _needs_body(operation: Mapping[str, Any]) -> bool:
    return any(not each.endswith("?") for each in operation["body"].values())


def lost(before: Surface, now: Surface) -> list[str]:
    """Return what callers of the surface before cannot do any more, a line each."""
    found = [f"{name} is gone" for part in ("operations", "commands") for name in before[part] if name not in now[part]]
    for name, was in before["operations"].items():
        if (here := now["operations"].get(name)) is None:
            continue
        found += _asks(f"{name} parameter", was["parameters"], here["parameters"])
        found += [f"{name} takes no {media}" for media in was["body"] if media not in here["body"]]
        found += [f"{name} needs a body"] if _needs_body(here) and not _needs_body(was) else []
        found += [f"{name} does not answer {status}" for status in was["answers"] if status not in here["answers"]]
    for name, options in before["commands"].items():
        found += _asks(name, options, now["commands"].get(name, options))
    for name, members in before["taken"].items():
        found += _asks(f"request {name}", members, now["taken"].get(name, {}))
    for name, members in before["given"].items():
        here = now["given"].get(name, {})
        for member, was in members.items():
            if member not in here:
                found.append(f"answer {name}: {member or 'the type'} is gone")
            elif was.endswith("!") and not here[member].endswith("!"):
                found.append(f"answer {name}: {member} may be missing")
            elif _retyped(was, here[member]):
                found.append(f"answer {name}: {member} was {was} and is {here[member]}")
    return found


def _asks(what: str, before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return what a caller may no longer give, and what it must now give."""
    found = [f"{what}: {name or 'the type'} is gone" for name in before if name not in now]
    found += [f"{what}: {name} is needed" for name, kind in now.items() if kind.endswith("!") and not before.get(name, "").endswith("!")]
    narrower = [name for name, kind in before.items() if name in now and _values(kind) - _values(now[name])]
    return found + [f"{what}: {name} was {before[name]} and is {now[name]}" for name in narrower]


def _values(kind: str) -> set[str]:
    return set(kind.rstrip("!").split(" | "))


def _retyped(before: str, now: str) -> bool:
    """Return True if an answer's member is of another type. New values of an enumeration are none, and neither are values that went."""
    old, new = _values(before), _values(now)
    return not old & new if all(each.startswith('"') for each in old | new) else old != new


def main() -> None:
    parts = [f"{json.dumps(part)}: {_lines(found)}" for part, found in present().items()]
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def _lines(members: Mapping[str, Any]) -> str:
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(members[name], sort_keys=True)}" for name in sorted(members)) + "\n}"


if __name__ == "__main__":
    main()
