"""Reads the calls that log from the product's source: the action and the level of each."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error", "critical": "error"}
LOUDEST = ("error", "warning", "info", "debug")
ACTION = re.compile(r"[a-z]+[_.][a-z_-]+")
type Names = Mapping[str, list[ast.expr]]


@dataclass(frozen=True)
class LogCall:
    """A call that logs."""

    path: str
    action: str
    level: str


def lines() -> list[LogCall]:
    """Return every call that logs in the product, in the order of files. The alarms of fleets have a table of their own."""
    found: list[LogCall] = []
    for path in sorted((ROOT / "shared").rglob("*.py")):
        text = path.read_text()
        if "action" in text or ".log(" in text or ".once(" in text or "WriteLog(" in text:
            found += read(text, path.relative_to(ROOT).as_posix())
    return found


def read(source: str, path: str = "") -> Iterator[LogCall]:
    """Yield the calls of a module that log."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = {id(node) for each in functions for node in ast.walk(each) if node is not each and node in functions}
    for function in functions:
        if id(function) not in inner:
            for call, names in _calls(function.body, {}):
                for action, level in _logged(call, names):
                    yield LogCall(path, action, level)


def _calls(block: list[ast.stmt], outer: Names) -> Iterator[tuple[ast.Call, Names]]:
    """Yield the calls in a block, each with the values that the names before it may have."""
    names = dict(outer)
    for statement in block:
        blocks = list(_blocks(statement))
        for each in blocks:
            yield from _calls(each, names)
        within = {id(node) for each in blocks for one in each for node in ast.walk(one)}
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and id(node) not in within:
                yield node, names
        names |= _assigned(statement)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        if inner := getattr(statement, name, None):
            yield inner
    for each in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield each.body


def _assigned(statement: ast.AST) -> Names:
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(statement):
        match node:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
                found.setdefault(name, []).append(value)
            case ast.Assign([ast.Subscript(ast.Name(name), ast.Constant("action" as key))], value):
                found[name] = [ast.Dict([ast.Constant(key)], [value])]
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                for target, value in zip(targets, values, strict=False):
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, []).append(value)
    return found


def _logged(call: ast.Call, names: Names) -> Iterator[tuple[str, str]]:
    """Yield action and level of a call, for each action that it may have."""
    given = {each.arg: each.value for each in call.keywords}
    match call.func, call.args:
        case ast.Attribute(of, "log"), [level, *_] if "extra" in given and "log" in ast.unparse(of).lower():
            for action in _actions(given["extra"], names):
                yield action, _level(level, names)
        case ast.Attribute(of, level), _ if level in LEVELS and "extra" in given and "log" in ast.unparse(of).lower():
            for action in _actions(given["extra"], names):
                yield action, LEVELS[level]
        case ast.Attribute(_, "log"), [action, *_]:
            warn = given.get("warn")
            for each in _constants(action, names):
                yield each, "warning" if warn is not None else "info"
        case ast.Attribute(_, "once"), [_, action, *_]:
            for each in _constants(action, names):
                yield each, "warning"
        case ast.Name("WriteLog"), [ast.Constant(str(level)), action, *_]:
            for each in _constants(action, names):
                yield each, level


def _actions(extra: ast.expr, names: Names) -> Iterator[str]:
    if isinstance(extra, ast.Name):
        for each in names.get(extra.id, ()):
            yield from _actions(each, names)
        return
    for node in ast.walk(extra):
        match node:
            case ast.Dict(keys, values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "action":
                        yield from _constants(value, names)
            case ast.Call(_, arguments):
                yield from (str(each.value) for each in arguments if isinstance(each, ast.Constant) and ACTION.fullmatch(str(each.value)))


def _constants(value: ast.expr, names: Names) -> Iterator[str]:
    match value:
        case ast.Constant(str(text)):
            yield text
        case ast.IfExp(_, one, other):
            yield from _constants(one, names)
            yield from _constants(other, names)
        case ast.Name(name):
            for each in names.get(name, ()):
                yield from _constants(each, names)


def _level(value: ast.expr, names: Names) -> str:
    """Return the loudest level that an expression may have."""
    exprs = names.get(value.id, []) if isinstance(value, ast.Name) else [value]
    found = {
        node.attr.lower() for each in exprs for node in ast.walk(each) if isinstance(node, ast.Attribute) and hasattr(logging, node.attr)
    }
    return next((each for each in LOUDEST if each in found), "info")
