"""The route table: every HTTP operation of Tocsin, with what it takes, whom it admits and what it answers.

A handler is `async def handler(call: Call[App, Body, Query]) -> Answer`. It gets only what was checked: a known key with the scope,
an existing tenant, a path that fits, a validated query and body. It raises `Problem` (see `problem`) for everything else it wants
to say; the layer turns that, storage failures and surprises into `application/problem+json`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from pydantic import TypeAdapter

from . import templates
from .callers import KeyRecord
from .fields.params import NoQuery, Query

type Method = Literal["GET", "PUT", "POST", "PATCH", "DELETE"]
type Handler = Callable[[Call[Any, Any, Any]], Awaitable[Answer]]
type Guest = Callable[[Any, str], KeyRecord | None]

_NAME = re.compile(r"[a-z][a-z0-9_]{1,62}")
_JSON = ("application/json",)
DEFAULT_MAX_BODY = 64 * 1024
"""Bytes a body may have unless the route says otherwise."""


@dataclass(slots=True)
class Call[A = Any, B = Any, Q = Any]:
    """One call, checked. A: the application, B: the body (model, bytes, or None), Q: the query model."""

    app: A
    tenant: str
    """The tenant the call is for; '' on routes of no tenant (scope admin, anonymous)."""
    key: KeyRecord
    """Who calls; `model.ANONYMOUS` on open routes."""
    params: Mapping[str, str]
    """Path parameters, as text, each valid by the route's `params`."""
    query: Q
    headers: Mapping[str, str]
    """Names in lower case."""
    body: B
    raw: bytes
    """The body as sent; see `intake.member` for one member of it as sent."""
    media: str
    """The body's media type, lower case, no parameters; '' without a body."""
    path: str
    """`/api/v1/...`, for Location headers and `instance`."""


@dataclass(slots=True)
class Answer:
    """What to send back. `body`: a model, JSON-able data (orjson, so `orjson.Fragment` inside passes bytes through), bytes, or None.

    Models are written as they are, nulls included; give a field `exclude_if` (or use `model.Maybe`) to leave it out when it is null.
    """

    status: int
    body: Any = None
    headers: dict[str, str] | None = None
    content_type: str = "application/json"
    etag: str | None = None
    """Becomes the `ETag` header; see `etag.etag_of`."""


@dataclass(slots=True, frozen=True)
class Content:
    """An answer that is not application/json, for the OpenAPI document: its media type, and a type if it is some other JSON."""

    media: str
    shape: Any = None


@dataclass(frozen=True)
class Route:
    """One operation. See `Routes.route` for the meaning of each field."""

    method: Method
    template: str
    name: str
    handler: Handler
    summary: str
    answers: Mapping[int, Any]
    scopes: frozenset[str] = frozenset()
    params: Mapping[str, Any] = field(default_factory=dict)
    query: type[Query] = NoQuery
    body: Any = None
    body_optional: bool = False
    media: Sequence[str] = _JSON
    max_body: int = DEFAULT_MAX_BODY
    if_match: bool = False
    standalone: bool = False
    description: str = ""
    tag: str = ""
    examples: Mapping[str, Any] = field(default_factory=dict)
    shape: Any = None
    tagged: bool = False
    names_tenant: bool = False
    guest: Guest | None = None
    tenant_optional: bool = False

    @cached_property
    def of_tenant(self) -> bool:
        """Whether calls are for one tenant, so that `?tenant=` is taken."""
        return bool(self.scopes - {"admin"}) and not self.names_tenant

    @cached_property
    def takes_body(self) -> bool:
        """Whether a body is read at all."""
        return self.body is not None

    @cached_property
    def reads_json(self) -> bool:
        """Whether the layer parses the body; a route with `body=bytes` parses itself."""
        return self.body is not None and self.body is not bytes

    @cached_property
    def body_adapter(self) -> TypeAdapter[Any]:
        """Validates the JSON body."""
        return TypeAdapter(self.body)

    @cached_property
    def query_adapter(self) -> TypeAdapter[Any]:
        """Validates the query."""
        return TypeAdapter(self.query)

    @cached_property
    def param_adapters(self) -> dict[str, TypeAdapter[Any]]:
        """Validate the path parameters that have a type."""
        return {name: TypeAdapter(kind) for name, kind in self.params.items()}


class Routes:
    """A table of routes. Jobs add to it, `bind` makes functions of it, `openapi` describes it."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes.values())

    def __len__(self) -> int:
        return len(self._routes)

    def __getitem__(self, name: str) -> Route:
        return self._routes[name]

    def route[H: Callable[..., Awaitable[Answer]]](
        self,
        method: Method,
        template: str,
        *,
        name: str,
        summary: str,
        answers: Mapping[int, Any],
        scope: str | Sequence[str] = (),
        params: Mapping[str, Any] | None = None,
        query: type[Query] = NoQuery,
        body: Any = None,
        body_optional: bool = False,
        media: Sequence[str] = _JSON,
        max_body: int = DEFAULT_MAX_BODY,
        if_match: bool = False,
        standalone: bool = False,
        description: str = "",
        tag: str = "",
        examples: Mapping[str, Any] | None = None,
        shape: Any = None,
        tagged: bool = False,
        names_tenant: bool = False,
        guest: Guest | None = None,
        tenant_optional: bool = False,
    ) -> Callable[[H], H]:
        """Register the handler below.

        template: after `/api/`, in the host's syntax: `v1/events/{id}`, `v1/leases/{partition:int}`.
        name: of the function; lower case, unique in the app.
        answers: status -> a type (its JSON), `Content(media)`, None (no body), or one or more problem codes ("id-conflict"). The
            statuses that the layer itself gives (401, 403, 404, 411, 413, 415, 422, 500, 503) are documented by themselves.
        scope: one or more of events, fleets, agent, admin, of which a key needs one. None: anonymous. A scope other than admin makes it
            a tenant's route: `call.tenant` is set, and an admin names it with `?tenant=`.
        params: a type for each path parameter that has rules. What does not fit is 404, for nothing can be there; on PUT it is 422.
        query: a model of the query parameters. Unknown ones are 422.
        body: a type for JSON, or `bytes` for a body that the handler reads itself. `body_optional`: an empty body gives None.
        media: media types taken; application/json includes application/*+json.
        max_body: bytes; over it is 413.
        if_match: the handler honours `If-Match` (`etag.check_if_match`); documents the header and 412.
        tagged: answers carry an `ETag` (`Answer.etag`); documents the header.
        examples: bodies by name, for the document. `shape`: the type of the JSON in a body that is read as `bytes`.
        standalone: `call.app` is None and the application need not exist: for probes.
        names_tenant: the body or the path names tenants, and the handler checks that they are the key's; `call.tenant` stays ''.
        guest: who a call without a key is, by application and URL; None for nobody.
        tenant_optional: the bootstrap admin key may leave `?tenant=` out; `call.tenant` is '' then.
        """

        def add(handler: H) -> H:
            scopes = frozenset([scope] if isinstance(scope, str) else scope)
            route = Route(
                method,
                template,
                name,
                handler,
                summary,
                answers,
                scopes,
                dict(params or {}),
                query,
                body,
                body_optional,
                tuple(media),
                max_body,
                if_match,
                standalone,
                description,
                tag,
                dict(examples or {}),
                shape,
                tagged,
                names_tenant,
                guest,
                tenant_optional,
            )
            self._add(route)
            return handler

        return add

    def _add(self, route: Route) -> None:
        if not _NAME.fullmatch(route.name):
            raise ValueError(f"{route.name!r} cannot be a function's name: lower-case letters, digits and _")
        if route.name in self._routes:
            raise ValueError(f"two routes are named {route.name}")
        unknown = set(route.params) - set(templates.names(route.template))
        if unknown:
            raise ValueError(f"{route.name}: the template has no parameter {', '.join(sorted(unknown))}")
        if strange := route.scopes - {"events", "fleets", "agent", "admin"}:
            raise ValueError(f"{route.name}: no such scope {', '.join(sorted(strange))}")
        if route.standalone and route.scopes:
            raise ValueError(f"{route.name}: without an application nobody can be authenticated")
        self._routes[route.name] = route

    def check(self) -> None:
        """Raise ValueError when one request could fit two routes."""
        found = templates.clashes([(route.method, route.template, route.name) for route in self])
        if found:
            raise ValueError("ambiguous routes, the host would choose by name: " + "; ".join(found))
