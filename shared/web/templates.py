"""Route templates of the Functions host, and the check that no request fits two of them.

The host sorts functions by name and takes the first one that matches, literal or not. A table in which one request fits two routes would
depend on the names of the functions; `clashes` finds such pairs and `bind` refuses them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

_PARAM = re.compile(r"\{(?P<star>\*?)(?P<name>[a-z][a-z0-9_]*)(?::(?P<kind>[a-z]+))?(?P<optional>\??)\}")
_LITERAL = re.compile(r"[A-Za-z0-9._~-]+")

KINDS = {
    "int": re.compile(r"-?\d{1,10}"),
    "guid": re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE),
    "alpha": re.compile(r"[a-z]+", re.IGNORECASE),
}
"""The supported constraints and the texts that they accept. Others are refused, because `overlap` does not know them."""


@dataclass(slots=True, frozen=True)
class Segment:
    """One part of a template: a literal (`name` is None), or a parameter with its constraint."""

    text: str
    name: str | None = None
    kind: str | None = None
    optional: bool = False
    rest: bool = False
    """True for a catch-all `{*name}`."""


@lru_cache(maxsize=1024)
def parse(template: str) -> tuple[Segment, ...]:
    """Return the segments of a template such as `v1/events/{id}/fire`. Raise ValueError for a template that the host would refuse."""
    if template.split("/", 1)[0].lower() in ("admin", "runtime"):
        raise ValueError(f"{template}: the host reserves routes under admin and runtime")
    out: list[Segment] = []
    for text in template.split("/"):
        if out and (out[-1].rest or out[-1].optional):
            raise ValueError(f"{template}: nothing may follow an optional or catch-all parameter")
        if found := _PARAM.fullmatch(text):
            if found["kind"] and found["kind"] not in KINDS:
                raise ValueError(f"{template}: constraint {found['kind']} is not one of {', '.join(KINDS)}")
            out.append(Segment(text, found["name"], found["kind"], bool(found["optional"]), bool(found["star"])))
        elif _LITERAL.fullmatch(text):
            out.append(Segment(text))
        else:
            raise ValueError(f"{template}: segment {text!r} is neither a literal nor one parameter")
    names = [segment.name for segment in out if segment.name]
    if len(set(names)) != len(names):
        raise ValueError(f"{template}: a parameter is named twice")
    return tuple(out)


def names(template: str) -> list[str]:
    """Return the names of a template's parameters, in their order."""
    return [segment.name for segment in parse(template) if segment.name]


def plain(template: str) -> str:
    """Return the template as OpenAPI writes it: `/v1/leases/{partition}`."""
    return "/" + "/".join(f"{{{segment.name}}}" if segment.name else segment.text for segment in parse(template))


def match(template: str, path: str) -> dict[str, str] | None:
    """Return the decoded parameters if `path` (after `/api/`) fits the template by the host's rules, otherwise None."""
    parts = path.split("/")
    segments = parse(template)
    found: dict[str, str] = {}
    for at, segment in enumerate(segments):
        if segment.rest and segment.name:
            return found | {segment.name: unquote("/".join(parts[at:]))}
        if at >= len(parts):
            return found if segment.optional else None
        text = unquote(parts[at])
        if segment.name is None:
            if text.lower() != segment.text.lower():
                return None
        elif not text or (segment.kind is not None and not KINDS[segment.kind].fullmatch(text)):
            return None
        else:
            found[segment.name] = text
    return found if len(parts) <= len(segments) else None


def _meet(one: Segment, other: Segment) -> bool:
    if one.name is None and other.name is None:
        return one.text.lower() == other.text.lower()
    if one.name is None or other.name is None:
        literal, param = (one, other) if one.name is None else (other, one)
        return param.kind is None or KINDS[param.kind].fullmatch(literal.text) is not None
    # Two different constraints never accept the same text.
    return one.kind is None or other.kind is None or one.kind == other.kind


def overlap(one: str, other: str) -> bool:
    """Return True if some path fits both templates."""
    a, b = parse(one), parse(other)
    for left, right in zip(a, b, strict=False):
        if left.rest or right.rest:
            return True
        if not _meet(left, right):
            return False
    longer = a[len(b) :] or b[len(a) :]
    return not longer or longer[0].rest or longer[0].optional


def clashes(table: list[tuple[str, str, str]]) -> list[str]:
    """Describe each pair of routes (method, template, name) that one request fits."""
    out = []
    for at, (method, template, name) in enumerate(table):
        for other_method, other_template, other in table[at + 1 :]:
            if method == other_method and overlap(template, other_template):
                out.append(f"{method} {template} ({name}) and {other_template} ({other})")
    return out
