"""The texts that people act on, kept as data: tests/data/texts.json holds one for each key that a test names.

    assert_text("lock.revoked", out, lock="nightly", seconds=12.2)

compares `out` with the text of that key, in which `{lock}` and `{seconds}` stand for those values. The test asserts the values, the file
keeps the wording. A changed wording costs `make texts` and a review of the difference. A text of several lines is a list in the file.
"""

from __future__ import annotations

import ast
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterable
from functools import cache

from .paths import ROOT

FILE = ROOT / "tests" / "data" / "texts.json"
KEY = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
WRITES = os.environ.get("WRITE_TEXTS") == "1"
_written: dict[str, str] = {}


def assert_text(key: str, text: str | Iterable[str], **values: object) -> None:
    """Assert that `text`, or these lines, is the text of `key` with `values`, each of which occurs in it. With WRITE_TEXTS=1: keep it.

    A newline at the end does not count. key: a literal of the test's file, so that texts without a test are found by reading the tests.
    """
    text = text.removesuffix("\n") if isinstance(text, str) else "\n".join(text)
    if WRITES:
        keep(key, template(text, values))
    kept = catalogue().get(key)
    assert kept is not None, f"{FILE.name} has no text {key!r}. The test produces: {text!r}. Run `make texts` and review the difference."
    missing = [name for name in values if f"{{{name}}}" not in kept]
    assert not missing, f"the text {key!r} does not name {', '.join(missing)}: {kept!r}. Run `make texts` and review the difference."
    wanted = kept.format_map({name: f"{{{name}}}" for name in re.findall(r"{(\w+)}", kept)} | values)
    assert text == wanted, f"the text {key!r} differs:\n- {wanted}\n+ {text}\nIf this is meant, run `make texts` and review the difference."


def has_text(key: str, **values: object) -> Callable[[BaseException], bool]:
    """Return the check of `pytest.raises(..., check=has_text(...))`: the exception's message is the text of `key`."""

    def check(failure: BaseException) -> bool:
        assert_text(key, str(failure), **values)
        return True

    return check


def template(text: str, values: dict[str, object]) -> str:
    """Return `text` with a name in braces for each value. Of several names for one value, each stands once, in their order."""
    shown = {name: str(value) for name, value in values.items()}
    longest = sorted(set(shown.values()), key=len, reverse=True)
    edges = [(r"(?<!\w)" if each[:1].isalnum() else "") + re.escape(each) + (r"(?!\w)" if each[-1:].isalnum() else "") for each in longest]
    names = {each: [name for name, value in shown.items() if value == each] for each in longest}

    def name(found: re.Match[str]) -> str:
        if found[0] not in names:
            return found[0] * 2
        left = names[found[0]]
        return f"{{{left.pop(0) if len(left) > 1 else left[0]}}}"

    return re.sub("|".join([*edges, r"[{}]"]), name, text)


@cache
def catalogue() -> dict[str, str]:
    """Return the kept texts by their key."""
    return {key: text if isinstance(text, str) else "\n".join(text) for key, text in json.loads(FILE.read_text()).items()}


@cache
def named() -> frozenset[str]:
    """Return every text in tests that may be a key: an argument of a call, or a case of a parametrized test."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        if "tests.texts" in (source := path.read_text()):
            texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant) and isinstance(node.value, str))
            found |= {text for text in texts if KEY.fullmatch(text)}
    return frozenset(found)


def keep(key: str, text: str) -> None:
    """Write the text of `key`; remove those that no test names. Raises AssertionError for two texts of one key in a process."""
    assert _written.setdefault(key, text) == text, f"two texts of {key!r}:\n- {_written[key]}\n+ {text}"
    folder = os.open(FILE.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # several workers of a test run write
        lines = text.split("\n")
        kept = {**json.loads(FILE.read_text()), key: text if len(lines) == 1 else lines}
        wanted = {each: kept[each] for each in sorted(kept) if each in named()}
        (written := FILE.with_suffix(".new")).write_text(json.dumps(wanted, indent=1, ensure_ascii=False) + "\n")
        written.replace(FILE)
    finally:
        os.close(folder)
    catalogue.cache_clear()
