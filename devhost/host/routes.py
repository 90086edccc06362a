"""HTTP route templates of the Functions host: parsing, constraints, and the choice of a function for a path.

Templates follow ASP.NET Core routing: `{id}`, `{id:int}`, `{id:guid}`, optional `{id?}`, catch-all `{*rest}`, literals
inside a segment (`{name}.json`). Literals match without regard to case. Unlike ASP.NET, the Functions host tries functions
by name, and the first route that matches wins, however unspecific it is.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

RESERVED = ("admin", "runtime")  # the host keeps these for its own endpoints and fails to index such a route

_GUID = r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}"
_CONSTRAINTS = {
    "int": r"[+-]?[0-9]{1,10}",
    "long": r"[+-]?[0-9]{1,19}",
    "guid": rf"(?:{_GUID}|\{{{_GUID}\}}|\({_GUID}\))",
    "alpha": r"[a-zA-Z]+",
    "bool": r"(?:[tT][rR][uU][eE]|[fF][aA][lL][sS][eE])",
}
_RANGES = {"int": 2**31, "long": 2**63}
_PARAMETER = re.compile(r"\{(?P<star>\*{0,2})(?P<name>\w+)(?::(?P<kind>\w+))?(?P<optional>\?)?\}")


class RouteError(ValueError):
    """A template that the host would refuse, or that the devhost cannot serve."""


@dataclass(frozen=True)
class CompiledRoute:
    """One compiled template. `segments` is (fewest, most) path segments; most is None for a catch-all."""

    function: str
    template: str
    methods: frozenset[str]  # upper-case; empty means all
    pattern: re.Pattern[str]
    segments: tuple[int, int | None]
    bounds: tuple[tuple[str, int], ...]

    def accepts(self, method: str, count: int) -> bool:
        """Return True if the method and the number of segments match; a cheap test before the pattern's."""
        fewest, most = self.segments
        return (not self.methods or method in self.methods) and fewest <= count and (most is None or count <= most)

    def match(self, path: str) -> dict[str, str] | None:
        """Route parameters of a decoded path, or None."""
        found = self.pattern.fullmatch(path)
        if found is None:
            return None
        for name, limit in self.bounds:
            value = found[name]
            if value is not None and not -limit <= int(value) < limit:
                return None
        return {name: value for name, value in found.groupdict().items() if value is not None}


def compile_route(function: str, template: str, methods: Iterable[str], prefix: str) -> CompiledRoute:
    """Compiles a template; RouteError says what is wrong with it."""
    template = template.strip("/")
    if template.split("/", 1)[0].lower().startswith(RESERVED):
        raise RouteError(f"route {template!r}: templates must not start with {' or '.join(RESERVED)}")
    full = "/".join(part for part in (prefix, template) if part)
    pattern, fewest, most = "", 0, 0
    unbounded = False
    bounds: list[tuple[str, int]] = []
    for segment in full.split("/") if full else ():
        if unbounded:
            raise RouteError(f"route {template!r}: a catch-all must be the last segment")
        text, optional, unbounded = _segment(template, segment, bounds)
        pattern += f"(?:/{text})?" if optional else f"/{text}"
        if fewest < most and not optional:
            raise RouteError(f"route {template!r}: an optional parameter must be the last segment")
        fewest, most = fewest + (not optional), most + 1
    try:
        compiled = re.compile(pattern or "/?", re.DOTALL)
    except re.error as error:
        raise RouteError(f"route {template!r}: {error}") from error
    return CompiledRoute(
        function=function,
        template=full,
        methods=frozenset(method.upper() for method in methods),
        pattern=compiled,
        segments=(fewest, None if unbounded else most),
        bounds=tuple(bounds),
    )


def _segment(template: str, segment: str, bounds: list[tuple[str, int]]) -> tuple[str, bool, bool]:
    """One segment as (regular expression, may be absent, takes the rest of the path)."""
    text, position, optional, rest = "", 0, False, False
    for found in _PARAMETER.finditer(segment):
        text += _literal(template, segment[position : found.start()])
        position = found.end()
        name, kind = found["name"], found["kind"]
        whole = found[0] == segment
        optional, rest = bool(found["optional"]) and whole, bool(found["star"])
        if rest and not whole:
            raise RouteError(f"route {template!r}: a catch-all must be a whole segment")
        if kind is not None and kind not in _CONSTRAINTS:
            raise RouteError(f"route {template!r}: unknown constraint {kind!r}, known are {', '.join(_CONSTRAINTS)}")
        if kind in _RANGES:
            bounds.append((name, _RANGES[kind]))
        text += f"(?P<{name}>{_CONSTRAINTS[kind] if kind else '.*' if rest else '[^/]+?'})"
    text += _literal(template, segment[position:])
    return text, optional or rest, rest


def _literal(template: str, text: str) -> str:
    if "{" in text or "}" in text:
        raise RouteError(f"route {template!r}: cannot read {text!r}")
    return f"(?i:{re.escape(text)})" if text else ""


class RouteTable:
    """All routes, in the order in which the host tries them: by function name."""

    def __init__(self, routes: Iterable[CompiledRoute]) -> None:
        self.routes = tuple(sorted(routes, key=lambda route: route.function))
        self._deepest = 1 + max((max(r.segments[0], r.segments[1] or 0) for r in self.routes), default=0)
        self._candidates: dict[tuple[str, int], tuple[CompiledRoute, ...]] = {}

    def find(self, method: str, raw_path: str) -> tuple[str, dict[str, str]] | None:
        """The function's name and its route parameters, or None. A wrong method is no match."""
        path = raw_path.removesuffix("/")
        # Beyond the deepest template all counts are alike, which bounds the cache.
        key = (method, min(path.count("/"), self._deepest))
        candidates = self._candidates.get(key)
        if candidates is None:
            candidates = self._candidates[key] = tuple(route for route in self.routes if route.accepts(*key))
        if "%" in path:
            path = _decode(path)
        for route in candidates:
            parameters = route.match(path)
            if parameters is not None:
                return route.function, parameters
        return None


def _decode(path: str) -> str:
    # Kestrel decodes everything in a path but %2F, so that an encoded slash never splits a segment.
    return "%2F".join(unquote(part) for part in re.split("%2[fF]", path))
