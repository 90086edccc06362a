"""The part of the Kusto query language that the alert rules use, over rows in memory: what a rule would find of what the code exports.

Where it stands in for the real one: a missing property is an empty text, a text that is no number is null, and null fulfils no condition.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

type Row = dict[str, Any]
type Eval = Callable[[Row], Any]
type Tables = Mapping[str, Iterable[Row]]

TOKEN = re.compile(
    r'\s*(?:(?P<text>"[^"]*")|(?P<span>\d+m\b)|(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>[=!<>]=|[<>=(),.\[\]]))'
)
COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
    "startswith": lambda one, other: one.lower().startswith(other.lower()),
}


def run(query: str, tables: Tables, now: float | None = None) -> list[Row]:
    """The rows that a query finds. Raises `ValueError` at what is not known here.

    now: of `ago`, in milliseconds; by default the time of the last row.
    """
    if now is None:
        now = max((row["TimeGenerated"] for rows in tables.values() for row in rows if "TimeGenerated" in row), default=0)
    table, *steps = parts(query, " | ")
    rows = [dict(row) for row in tables.get(table, ())]
    for step in steps:
        verb, _, rest = step.partition(" ")
        if verb == "union":
            rows += [row for other in united(rest) for row in run(other, tables, now)]
            continue
        reader = Reader(rest, now)
        match verb:
            case "where":
                holds = reader.condition()
                reader.end()
                rows = [row for row in rows if holds(row) is True]
            case "extend":
                name, value = reader.named()
                reader.end()
                rows = [row | {name: value(row)} for row in rows]
            case "summarize":
                rows = summarized(rows, reader)
                reader.end()
            case _:
                raise ValueError(f"{verb} is not known")
    return rows


def parts(text: str, between: str) -> list[str]:
    """Split a text at each `between` outside parentheses. Texts in quotation marks must not hold a single parenthesis."""
    found, depth = [""], 0
    for at, sign in enumerate(text):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        found[-1] += sign
        if depth == 0 and text.startswith(between, at):
            found[-1] = found[-1][:-1]
            found.append("")
    return [found[0].strip(), *(each[len(between) - 1 :].strip() for each in found[1:])]


def united(text: str) -> list[str]:
    """The queries of a `union`, which leaves out the tables that are not there."""
    mode, _, queries = text.partition(" ")
    if mode != "isfuzzy=true":
        raise ValueError(f"not understood: union {mode}")
    return [each[1:-1] for each in parts(queries, ", ")]


def summarized(rows: list[Row], reader: Reader) -> list[Row]:
    """One row a group; without `by` one in any case."""
    makers = reader.several(reader.aggregate)
    keys: list[tuple[str, Eval]] = reader.several(reader.named) if reader.take("by") else []
    groups: dict[tuple[Any, ...], list[Row]] = {} if keys else {(): []}
    for row in rows:
        groups.setdefault(tuple(key(row) for _, key in keys), []).append(row)
    found = []
    for values, group in groups.items():
        made: Row = {name: value for (name, _), value in zip(keys, values, strict=True)}
        for make in makers:
            made |= make(group)
        found.append(made)
    return found


class Reader:
    """Reads one step."""

    def __init__(self, text: str, now: float) -> None:
        self.tokens: list[str] = []
        self.now = now
        at = 0
        while text[at:].strip():
            found = TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"not understood: {text[at:]}")
            self.tokens.append(found[0].strip())
            at = found.end()

    def end(self) -> None:
        """Nothing is left."""
        if self.tokens:
            raise ValueError(f"not understood: {' '.join(self.tokens)}")

    def take(self, *wanted: str) -> str | None:
        """The next token, if it is one of these."""
        return self.tokens.pop(0) if self.tokens and self.tokens[0] in wanted else None

    def need(self, wanted: str) -> None:
        """Return and consume the next token, which must be `wanted`."""
        if self.take(wanted) is None:
            raise ValueError(f"{wanted} is missing before {' '.join(self.tokens)}")

    def several[T](self, read: Callable[[], T]) -> list[T]:
        """One or more, with commas between them."""
        found = [read()]
        while self.take(","):
            found.append(read())
        return found

    def condition(self) -> Eval:
        """Conditions joined by `or`, and more closely by `and`."""
        some = [self._all()]
        while self.take("or"):
            some.append(self._all())
        return lambda row: any(each(row) is True for each in some)

    def _all(self) -> Eval:
        each = [self._comparison()]
        while self.take("and"):
            each.append(self._comparison())
        return lambda row: all(one(row) is True for one in each)

    def _comparison(self) -> Eval:
        if self.take("("):
            inner = self.condition()
            self.need(")")
            return inner
        one = self.value()
        if self.take("in"):
            self.need("(")
            among = self.several(self.value)
            self.need(")")
            return lambda row: one(row) in [each(row) for each in among]
        sign = self.take(*COMPARE)
        if sign is None:
            raise ValueError(f"no condition: {' '.join(self.tokens)}")
        other = self.value()

        def holds(row: Row) -> bool | None:
            left, right = one(row), other(row)
            return None if left is None or right is None else COMPARE[sign](left, right)

        return holds

    def value(self) -> Eval:
        """A constant, a column, a property, or one of these as another type."""
        token = self.tokens.pop(0)
        if token[0] == '"':
            return lambda row: token[1:-1]
        if token[0].isdigit():
            return lambda row: float(token)
        if token == "ago":
            self.need("(")
            since = self.now - int(self.tokens.pop(0).removesuffix("m")) * 60_000
            self.need(")")
            return lambda row: since
        if token in ("tostring", "todouble", "toint"):
            self.need("(")
            inner = self.value()
            self.need(")")
            return (lambda row: str(inner(row) or "")) if token == "tostring" else (lambda row: number(inner(row)))
        if self.take("["):
            key = self.tokens.pop(0)[1:-1]
            self.need("]")
            return lambda row: row[token].get(key)
        if self.take("."):
            key = self.tokens.pop(0)
            return lambda row: row[token].get(key)
        return lambda row: row[token]

    def named(self) -> tuple[str, Eval]:
        """`name = value`, or a column."""
        if len(self.tokens) > 1 and self.tokens[1] == "=":
            name = self.tokens.pop(0)
            self.need("=")
            return name, self.value()
        return self.tokens[0], self.value()

    def aggregate(self) -> Callable[[list[Row]], Row]:
        """`name = count()` and the like; `(a, b) = arg_max(...)`."""
        if self.take("("):
            names = self.several(lambda: self.tokens.pop(0))
            self.need(")")
        else:
            names = [self.tokens.pop(0)]
        self.need("=")
        what = self.tokens.pop(0)
        self.need("(")
        if what == "count":
            self.need(")")
            return lambda rows: {names[0]: len(rows)}
        if what == "countif":
            holds = self.condition()
            self.need(")")
            return lambda rows: {names[0]: sum(holds(row) is True for row in rows)}
        given = self.several(self.value)
        self.need(")")
        match what:
            case "sum":
                return lambda rows: {names[0]: sum(given[0](row) for row in rows)}
            case "percentile":
                return lambda rows: {names[0]: percentile([found for row in rows if (found := given[0](row)) is not None], given[1]({}))}
            case "arg_min" | "arg_max":
                best = min if what == "arg_min" else max
                return lambda rows: dict(zip(names, [each(best(rows, key=given[0])) for each in given], strict=True)) if rows else {}
        raise ValueError(f"{what} is not known")


def number(value: Any) -> float | None:
    """A value as a number, or None."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def percentile(values: list[float], share: float) -> float | None:
    """The least of the values that `share` per cent of them do not exceed; None of none."""
    return sorted(values)[max(0, math.ceil(len(values) * share / 100) - 1)] if values else None
