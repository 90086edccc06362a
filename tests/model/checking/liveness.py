"""Live locals of a suspended generator, derived from the syntax tree of its source.

A local is live at a `yield` if some path from there may read it before it is written. The analysis is the usual backward data flow. Where
it is imprecise it calls a local live that is dead: that costs states and loses none.

Values that Python keeps outside the locals are counted with the names they come from:

- names that a statement reads outside the operand of the `yield` (their values may be on the value stack, or are read afterwards);
- the target and the iterable's names of every `for` loop around the `yield` (together they give the iterator's position);
- the names of every `with` item around the `yield`.

A function is found again by the position of its `yield` in the source file, which `code.co_positions()` gives (PEP 657).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType

type Names = frozenset[str]
type Position = tuple[int | None, int | None, int | None, int | None]

NONE: Names = frozenset()
type Suspension = ast.Yield | ast.YieldFrom


@cache
def live_at(code: CodeType, offset: int) -> Names | None:
    """Return the locals that `code`, suspended at `offset`, may still read; None where no `yield` stands, as in a generator not started.

    Names that nested functions share with this one always count as live.
    """
    positions = list(code.co_positions())
    found = _file(code.co_filename).get(positions[offset // 2]) if 0 <= offset // 2 < len(positions) else None
    return None if found is None else found | frozenset(code.co_cellvars) | frozenset(code.co_freevars)


@cache
def _file(name: str) -> dict[Position, Names]:
    """Analyze every function of a source file: the live names at the position of each `yield`."""
    found: dict[Position, Names] = {}
    for node in ast.walk(ast.parse(Path(name).read_bytes())):
        if isinstance(node, ast.FunctionDef):
            found |= Liveness(node).at
    return found


def position(node: Suspension) -> Position:
    """Return the node's place as `code.co_positions()` gives it."""
    return (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)


class Liveness:
    """The live names at each `yield` of one function, by position.

    Every method takes the names live after a piece of code and returns those live before it.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        self.at: dict[Position, Names] = {}
        self._raise = NONE
        """Live where an exception is handled."""
        self._return = NONE
        self._break = NONE
        self._continue = NONE
        self._around = NONE
        """Names of the loops and `with` statements around the code."""
        self._block(function.body, NONE)

    @contextmanager
    def _with(self, **names: Names) -> Iterator[None]:
        before = {name: getattr(self, f"_{name}") for name in names}
        self._set(names)
        try:
            yield
        finally:
            self._set(before)

    def _set(self, names: dict[str, Names]) -> None:
        for name, value in names.items():
            setattr(self, f"_{name}", value)

    def _block(self, statements: Iterable[ast.stmt], after: Names) -> Names:
        for statement in reversed(list(statements)):
            after = self._statement(statement, after)
        return after

    def _statement(self, node: ast.stmt, after: Names) -> Names:
        match node:
            case ast.If():
                return self._plain([node.test], self._block(node.body, after) | self._block(node.orelse, after))
            case ast.While() | ast.For():
                return self._loop(node, after)
            case ast.Try() | ast.TryStar():
                return self._try(node, after)
            case ast.With():
                held = _reads(item.context_expr for item in node.items)
                targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
                # A context manager may swallow an exception: the code after it is reached from anywhere inside.
                with self._with(around=self._around | held, **{"raise": self._raise | after}):
                    inner = self._block(node.body, after)
                return self._plain([item.context_expr for item in node.items], (inner - _bound(targets)) | after | _reads(targets))
            case ast.Match():
                cases = NONE
                for case in node.cases:
                    tests = _reads([case.pattern, *([case.guard] if case.guard else [])])
                    cases |= self._block(case.body, after) | tests
                    if case.guard is not None:
                        self._plain([case.guard], after | cases)
                # What a pattern binds is kept live before it: over-cautious, and simple.
                return self._plain([node.subject], after | cases)
            case ast.Return():
                return self._plain([node.value] if node.value else [], self._return)
            case ast.Raise():
                return self._plain([each for each in (node.exc, node.cause) if each], self._raise)
            case ast.Break():
                return self._break
            case ast.Continue():
                return self._continue
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return (after - {node.name}) | _reads([node])
            case ast.Assign():
                return self._plain([node.value, *node.targets], after, _bound(node.targets))
            case ast.AnnAssign():
                if node.value is None:
                    return after
                return self._plain([node.value, node.target], after, _bound([node.target]))
            case ast.AugAssign():
                return self._plain([node], after) | _names(node.target)
            case _:
                return self._plain([node], after)

    def _plain(self, parts: Iterable[ast.AST], after: Names, bound: Names = NONE) -> Names:
        """Code without branches of its own, which ends by binding `bound`."""
        parts = list(parts)
        rest = (after - bound) | self._raise
        for node in (each for part in parts for each in ast.walk(part) if isinstance(each, ast.Yield | ast.YieldFrom)):
            assigned = _assigned_by(parts, node)
            reads = _reads(parts, without=node, unless_after=(assigned, node))
            live = ((after - bound - assigned) | self._raise) | reads | self._around
            self.at[position(node)] = self.at.get(position(node), NONE) | live
        return rest | _reads(parts)

    def _loop(self, node: ast.While | ast.For, after: Names) -> Names:
        done = self._block(node.orelse, after)
        if isinstance(node, ast.For):
            first, bound = [node.iter], _bound([node.target])
            around = self._around | _reads([node.iter]) | bound
            head = done | _reads([node.target])
        else:
            first, bound, around = [node.test], NONE, self._around
            endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
            head = (NONE if endless else done) | _reads([node.test])
        while True:
            with self._with(**{"break": after, "continue": head}, around=around):
                body = self._block(node.body, head) - bound
            if body <= head:
                break
            head |= body
        return self._plain(first, head)

    def _try(self, node: ast.Try | ast.TryStar, after: Names) -> Names:
        if node.finalbody:
            # The block may be left in each of these ways once `finally` is over.
            last = self._block(node.finalbody, after | self._raise | self._return | self._break | self._continue)
            leaving = {"return": last, "break": last, "continue": last}
        else:
            last, leaving = after, {}
        outside = last | self._raise
        with self._with(**leaving, **{"raise": outside}):
            caught = outside if node.finalbody or self._raise else NONE
            for handler in node.handlers:
                body = self._block(handler.body, last)
                caught |= (body - {handler.name or ""}) | (_reads([handler.type]) if handler.type else NONE)
            done = self._block(node.orelse, last)
        with self._with(**leaving, **{"raise": caught}):
            return self._block(node.body, done) | caught


def _names(node: ast.AST) -> Names:
    """Every name in a piece of code, read or written."""
    return frozenset(each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _bound(targets: Iterable[ast.expr]) -> Names:
    """The names that an assignment to these targets writes for certain."""
    found = NONE
    for target in targets:
        match target:
            case ast.Name():
                found |= {target.id}
            case ast.Tuple() | ast.List():
                found |= _bound(target.elts)
            case ast.Starred():
                found |= _bound([target.value])
    return found


def _reads(parts: Iterable[ast.AST], without: Suspension | None = None, unless_after: tuple[Names, ast.expr] | None = None) -> Names:
    """The names that code reads, those inside `without` excepted; and of names bound on the way, the reads that follow `unless_after`."""
    found: set[str] = set()
    todo = list(parts)
    while todo:
        node = todo.pop()
        if node is without:
            continue
        read = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)
        if read and (unless_after is None or node.id not in unless_after[0] or _before(node, unless_after[1])):
            found.add(node.id)
        todo.extend(ast.iter_child_nodes(node))
    return frozenset(found)


def _before(one: ast.expr, other: ast.expr) -> bool:
    return (one.lineno, one.col_offset) < (other.lineno, other.col_offset)


def _assigned_by(parts: Iterable[ast.AST], node: Suspension) -> Names:
    """The names that `:=` around the `yield` binds with what comes of it."""
    return frozenset(
        each.target.id
        for part in parts
        for each in ast.walk(part)
        if isinstance(each, ast.NamedExpr) and any(inner is node for inner in ast.walk(each.value))
    )
