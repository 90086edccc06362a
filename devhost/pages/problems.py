"""Writes docs/reference/problems.md from the routes and `shared.web.problem_types`: `python -m devhost.pages.problems`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shared.web.problem_types import MEANINGS

from ..openapi_document import build

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "problems.md"

IN_LINES = {"batch-unfinished": {"503"}}
"""The codes that only lines of a batch's answer have."""

_HEAD = """# Problem types

Look up here what an error of the API means and what to do.
The code is the end of the `type` of an [RFC 9457](https://www.rfc-editor.org/rfc/rfc9457) document, as in `https://tocsin.dev/problems/id-conflict`.
`make problems` generates the page from the routes and `shared/web/problem_types.py`.

A 500 without a body comes from the host: its worker has ended, and the call may have taken effect. Repeat it as after a lost answer.

"""


def answers(contract: dict[str, Any]) -> dict[str, set[str]]:
    """Return, by code, the statuses with which an OpenAPI document answers it."""
    found: dict[str, set[str]] = {}
    for path in contract["paths"].values():
        for operation in path.values():
            for status, answer in operation["responses"].items():
                for content in answer.get("content", {}).values():
                    for name in content.get("schema", {}).get("properties", {}).get("type", {}).get("enum", ()):
                        found.setdefault(name.rpartition("/")[2], set()).add(status)
    return found


def page() -> str:
    """The whole page. Raises KeyError for a code without a meaning."""
    found = sorted({**answers(build()), **IN_LINES}.items())
    rows = [f"- `{code}` ({', '.join(sorted(statuses))}): {MEANINGS[code]}\n" for code, statuses in found if MEANINGS[code]]
    plain = ", ".join(f"`{code}`" for code, _ in found if not MEANINGS[code])
    return f"{_HEAD}{''.join(rows)}\nThe `detail` of these says it all: {plain}.\n"


if __name__ == "__main__":
    PAGE.write_text(page())
