"""Every text of an error that the product raises, from its source: tests/data/error_texts.json.

A problem's texts stand under its type, those of another exception under its class. A value in a text is the expression that gives it.
`python -m tests.error_texts` writes the file.
"""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from shared.web.problem_types import MEANINGS

from .paths import ROOT

FILE = ROOT / "tests" / "data" / "error_texts.json"
HELPERS = {"invalid": "invalid-content", "invalid_all": "invalid-content", "not_found": "not-found", "too_many": "too-many-requests"}
"""Functions of shared/web/problem.py that make a problem of one type."""
TYPED = {"Problem", "conflict", "unreadable"}
"""Those that are given the type."""


def texts(node: ast.AST | None, variables: Mapping[str, Sequence[ast.AST]]) -> Iterator[str]:
    """Yield the texts that an expression may be. variables: the expressions that are assigned to each variable."""
    match node:
        case ast.Constant(str(text)):
            yield text
        case ast.JoinedStr(parts):
            yield "".join(part.value if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}" for part in parts)
        case ast.IfExp(_, body, orelse):
            yield from (text for each in (body, orelse) for text in texts(each, variables))
        case ast.Tuple(items) | ast.List(items):
            yield from (text for item in items for text in texts(item, variables))
        case ast.Name(name):
            yield from (text for each in variables.get(name, ()) for text in texts(each, {}))


class Finder(ast.NodeVisitor):
    """Collects the texts of one file by their type or class."""

    def __init__(self, kept: dict[str, set[str]]) -> None:
        self.kept = kept
        self.raised: set[ast.AST | None] = set()
        self.variables: list[dict[str, list[ast.AST]]] = [defaultdict(list)]
        self.calls: list[tuple[ast.Call, list[dict[str, list[ast.AST]]]]] = []

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.variables.append(defaultdict(list))
        self.generic_visit(node)
        self.variables.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.variables[-1][target.id].append(node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name) and node.value:
            self.variables[-1][node.target.id].append(node.value)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self.raised.add(node.exc)
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in MEANINGS:
                self.keep(key.value, texts(value, {}))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.calls.append((node, list(self.variables)))
        self.generic_visit(node)

    def finish(self) -> None:
        """Keep the texts of calls, now that the variables of their functions are known."""
        for node, scopes in self.calls:
            variables = {name: values for scope in scopes for name, values in scope.items()}
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            literals = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            types = [text for text in literals if text in MEANINGS or (called in TYPED and " " not in text)]
            raised = called if node in self.raised or called == "CommandFailed" else ""
            if kind := HELPERS.get(called) or (types[0] if types else raised):
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                self.keep(kind, (text for each in given for text in texts(each, variables)))

    def keep(self, kind: str, found: Iterator[str]) -> None:
        self.kept[kind].update(text for text in found if " " in text.strip())


def found() -> str:
    """Return the content of the file."""
    kept = defaultdict[str, set[str]](set)
    for path in (ROOT / "shared").rglob("*.py"):
        if path.name != "problem_types.py":
            finder = Finder(kept)
            finder.visit(ast.parse(path.read_text()))
            finder.finish()
    return json.dumps({kind: sorted(kept[kind]) for kind in sorted(kept) if kept[kind]}, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(found())
