"""Reads `test.http`, which uses a part of the format of VS Code's REST Client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_METHODS = "GET|POST|PUT|PATCH|DELETE"


@dataclass(frozen=True)
class Request:
    """A request of the file, before its variables are replaced."""

    title: str
    method: str
    url: str
    headers: Mapping[str, str]
    body: str
    expected: tuple[int, ...]
    """The statuses that it may get, that of the first run first."""
    name: str = ""
    wait: float = 0.0
    """Seconds to wait before it is sent."""
    shows: str = ""
    """A text that the answer contains."""


def parse(text: str) -> tuple[dict[str, str], list[Request]]:
    """Return the variables and the requests. Raises ValueError for a request without a title, method or status."""
    head, *blocks = re.split(r"^### *", text, flags=re.MULTILINE)
    variables = dict(re.findall(r"^@(\w+) = (\S+)$", head, re.MULTILINE))
    return variables, [_request(block) for block in blocks]


def _request(block: str) -> Request:
    title, *lines = block.split("\n")
    comments = [line[2:] for line in lines if line.startswith("# ")]
    lines = [line for line in lines if not line.startswith("#")]
    first = re.fullmatch(rf"({_METHODS}) (\S+)", lines[0])
    expected = [each for each in comments if each.startswith("Expect ")]
    if not title or first is None or len(expected) != 1:
        raise ValueError(f"{title or block[:60]!r}: a request has a title, one line Expect, and METHOD URL")
    end = lines.index("", 1)
    headers = dict(line.split(": ", 1) for line in lines[1:end])

    def said(word: str) -> str:
        return next((each.removeprefix(f"{word} ") for each in comments if each.startswith(f"{word} ")), "")

    wait = re.fullmatch(r"(\d+) seconds first\.", said("Wait"))
    statuses = tuple(map(int, re.findall(r"\d{3}", expected[0])))
    body = "\n".join(lines[end + 1 :]).strip()
    return Request(title, first[1], first[2], headers, body, statuses, said("@name"), float(wait[1]) if wait else 0.0, said("Shows"))


def filled(text: str, variables: Mapping[str, str], answers: Mapping[str, Any]) -> str:
    """Return the text with the values of its variables, and of members of earlier answers. Raises LookupError for an unknown one."""

    def value(found: re.Match[str]) -> str:
        name, _, member = found[1].partition(".response.body.$.")
        return str(answers[name][member]) if member else filled(variables[name], variables, answers)

    return re.sub(r"\{\{([^}]+)\}\}", value, text)
