"""Regular expressions cost time that grows with the length of their text, and no faster.

A text may come from a receiver or a caller, and the event loop stands still while it is matched. Each pattern is run, by the methods that
the code calls, on texts that repeat each character and piece which the pattern names.
"""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from shared.core.http1 import full_answer
from shared.delivery.channels import answer_heads
from tests.paths import ROOT

METHODS = frozenset(("match", "fullmatch", "search", "findall", "finditer", "sub", "subn", "split"))
PIECES = (
    *("a", "0", " ", "\t", '"', "\\", '\\"', ".", "-", "/", ":", "=", "A", "\n", "\r\n", ","),
    *("%41", "1.", "a-", '"a",', "{", "[", "://", "x: a", "é"),
)
"""Repeated in the texts for every pattern, beside the characters that the pattern names."""
SHORT = 1_000
"""Characters of the shorter text. The longer one has four times as many."""
SLOW = 0.004
"""Seconds of CPU time for the shorter text from which the growth is measured: a thousand characters need microseconds otherwise."""
GROWTH = 8.0
"""Growth of the CPU time that fails: four times the text costs four times the time if it is linear, 16 times if it is quadratic."""


class Use(NamedTuple):
    """A pattern and a method by which the code runs it."""

    where: str
    pattern: str | bytes
    flags: int
    method: str


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Return each module of shared/ by its dotted name, parsed."""
    for path in sorted((ROOT / "shared").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), ast.parse(path.read_text())


def compiled(value: Any, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    """Return the compiled patterns in a module's attribute: itself, or in its containers."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 3 and isinstance(value, dict | list | tuple | set | frozenset):
        for each in value.values() if isinstance(value, dict) else value:
            yield from compiled(each, depth + 1)


@cache
def uses() -> list[Use]:
    """Return every pattern of shared/ with every method that the code calls on it."""
    parsed = dict(sources())
    called: dict[tuple[str, str], set[str]] = defaultdict(set)
    inline: set[Use] = set()
    for module, tree in parsed.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in METHODS:
                continue
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "re":
                if node.args and isinstance(node.args[0], ast.Constant):
                    inline.add(Use(f"{module}:{node.lineno}", node.args[0].value, 0, node.func.attr))
            elif isinstance(owner, ast.Name | ast.Attribute):
                name = owner.id if isinstance(owner, ast.Name) else owner.attr
                called[module, name].add(node.func.attr)
                called["", name].add(node.func.attr)
    found = set(inline)
    for module in (name for name, tree in parsed.items() if any(_compiles(node) for node in ast.walk(tree))):
        for name, value in vars(importlib.import_module(module)).items():
            for pattern in compiled(value):
                # A pattern that is reached in another way than by its name is run in the two ways that differ most.
                for method in called.get((module, name)) or called.get(("", name)) or ("fullmatch", "search"):
                    found.add(Use(f"{module}.{name}", pattern.pattern, pattern.flags, method))
    value_of = full_answer._value_of("etag")
    found.add(Use("full_answer._value_of", value_of.pattern, value_of.flags, "search"))
    return sorted(found, key=repr)


def _compiles(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "compile"


def texts(pattern: str | bytes) -> Iterator[tuple[str | bytes, str | bytes]]:
    """Return texts which the pattern may match almost, each shorter one with one of four times its length."""
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    named = sorted(set(re.findall(r"""[A-Za-z0-9 :/.,;"'=@%<>{}\[\]\\$_~+-]""", text)))
    for piece in dict.fromkeys((*PIECES, *named)):
        short, long = (piece * max(1, repeated // len(piece)) for repeated in (SHORT, 4 * SHORT))
        for lead in ("", "x: a", '"key":"', "P", "https://", "${env:"):
            for tail in ("", "!", "\nx"):
                pair = (lead + short + tail, lead + long + tail)
                yield (pair[0].encode(), pair[1].encode()) if isinstance(pattern, bytes) else pair


def cost(run: Callable[[Any], Any], text: str | bytes) -> float:
    """Return the CPU seconds of this thread that a run needs: the least of three, if the first one is not negligible."""
    best = 9e9
    for _ in range(3):
        began = time.thread_time()
        run(text)
        best = min(best, time.thread_time() - began)
        if best < SLOW:
            break
    return best


def runner(use: Use) -> Callable[[Any], Any]:
    """Return the function that runs the pattern on a text as the code does."""
    pattern = re.compile(use.pattern, use.flags)
    method = getattr(pattern, use.method)
    if use.method in ("sub", "subn"):
        empty = pattern.pattern[:0]
        return lambda text: method(empty, text)
    if use.method == "finditer":
        return lambda text: list(method(text))
    return method  # type: ignore[no-any-return]


def grows(use: Use) -> str | None:
    """Return a text whose cost grows faster than its length, or None."""
    run = runner(use)
    for short, long in texts(use.pattern):
        least = cost(run, short)
        if least >= SLOW and cost(run, long) > GROWTH * least:
            return repr(short[:20])
    return None


def test_every_pattern_is_found() -> None:
    found = uses()
    assert len({(use.pattern, use.flags) for use in found}) > 140
    assert any(use.where.endswith("answer_heads._FIELD") and use.method == "findall" for use in found)


def test_time_of_every_pattern_grows_with_the_length_of_its_text_and_no_faster() -> None:
    assert {f"{use.where} {use.method} {use.pattern!r}": found for use in uses() if (found := grows(use))} == {}


def test_quadratic_pattern_is_noticed() -> None:
    trimmed = Use("", rb"([^:\r\n]+):[ \t]*([^\r\n]*?)[ \t]*\r?\n", 0, "findall")
    assert grows(trimmed) is not None


def test_fields_of_an_answer_are_those_of_the_pattern_that_trimmed_them() -> None:
    trimmed = re.compile(rb"([^:\r\n]+):[ \t]*([^\r\n]*?)[ \t]*\r?\n")
    lines = [b"x:" + b"".join(value) + end for value in product((b"a", b":", b" ", b"\t"), repeat=4) for end in (b"\r\n", b"\n")]
    for line in lines:
        head = b"first: 1\r\n" + line + b"last:\r\n\r\n"
        assert [(name, value.strip(b" \t")) for name, value in answer_heads._FIELD.findall(head)] == trimmed.findall(head), head
