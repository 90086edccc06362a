"""The route table: every HTTP operation of Tocsin, declared in groups.

A handler is `async def events_get(call: Call[Scheduler, Body, Query]) -> Answer`. Its name names the operation and the Azure function, its
annotation the types of the body and the query, and its docstring gives the summary and the description of the OpenAPI document. It gets
only checked input: a known key with the scope, an existing tenant, a path that fits, a validated query and body. It raises `Problem` (see
`problem`) for every refusal; the layer turns that, storage failures and unexpected exceptions into `application/problem+json`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import or_
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Generic, Literal, Required, TypedDict, Union, Unpack, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from pydantic import TypeAdapter
from typing_extensions import TypeVar

from ..core.errors import Problem
from . import templates
from .arrivals import Arrival
from .auth import KeyRecord
from .fields.params import NoQuery, Query

# Not `class Call[S = Any]`: defaults of type parameters need Python 3.13, and this module is in the wheel, for 3.12 too.
S = TypeVar("S", default=Any)
B = TypeVar("B", default=None)
Q = TypeVar("Q", default=NoQuery)
A = TypeVar("A", default=Any)

type Method = Literal["GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"]
type RouteHandler[T] = Callable[[Call[T, Any, Any]], Awaitable[Answer]]
type OwnToken = Callable[[Any, Mapping[str, str], Mapping[str, str]], None]
type Guest = Callable[[Any, str, Mapping[str, str]], KeyRecord | None]
type Answers = Mapping[int, Any]
type Unserved = Callable[[Problem, str], Answer]
"""Answers a call, by the problem that it would get otherwise and by its path."""
type About = tuple[str, Callable[[Any], Mapping[str, str]]]
"""The name of a GET route, '' for none, and a function of a call that returns path parameters; none if the call names nothing valid."""

_NAME = re.compile(r"[a-z][a-z0-9_]{1,62}")
_SCOPES = frozenset({"events", "fleets", "agent", "metrics", "admin"})
_OF_NO_TENANT = frozenset({"metrics", "admin"})
_ADMINISTRATIVE = frozenset({"fleets", "admin"})
_JSON = ("application/json",)
_NOTHING: Mapping[str, str] = MappingProxyType({})
DEFAULT_MAX_BODY = 64 * 1024
"""Largest body in bytes, unless the route sets another limit."""


def path_of(url: str) -> str:
    """Return the path of a URL, or '' if the URL cannot be parsed."""
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


@dataclass(slots=True)
class Call(Generic[S, B, Q]):
    """One checked call. S: the service of the route's group, B: the body (a model, bytes, or None), Q: the query model."""

    service: S
    tenant: str
    """The tenant the call acts for; '' on routes without a tenant (scope admin, anonymous)."""
    key: KeyRecord
    """The caller's key; `auth.ANONYMOUS` on open routes."""
    params: Mapping[str, str]
    """Path parameters as text, each valid by the route's `params`."""
    query: Q
    headers: Mapping[str, str]
    """Names in lower case."""
    body: B
    raw: bytes
    """The body as sent; `parsing.member` returns one member of it as sent."""
    media: str
    """The body's media type in lower case, without parameters; '' without a body."""
    url: str
    """The URL as the host passes it."""
    arrival: Arrival
    """The arrival of the request, by which a call that a later one has overtaken is found."""
    member: bytes | None = None
    """The value of the route's `opaque` member as sent, if the route names one and the body has it."""

    @property
    def path(self) -> str:
        """`/api/v1/...`, for Location headers and `instance`."""
        return path_of(self.url)


@dataclass(slots=True)
class Answer:
    """The answer to a call. `body`: a model, JSON-able data (orjson, so `orjson.Fragment` inside passes bytes through), bytes, or None.

    Models are written with their nulls; give a field `exclude_if` (or use `types.Maybe`) to leave it out when it is null.
    """

    status: int
    body: Any = None
    headers: dict[str, str] | None = None
    content_type: str = "application/json"
    etag: str | None = None
    """Becomes the `ETag` header; see `etag.etag_of`."""
    hidden: Mapping[str, str] = field(default=_NOTHING, repr=False)
    """The values that the body shows as `***`, by their paths: the audit trail compares them. They are neither sent nor recorded."""


@dataclass(slots=True, frozen=True)
class Content:
    """An answer that is not application/json, for the OpenAPI document: its media type, and a type if it is another kind of JSON."""

    media: str
    shape: Any = None


type Recording = Literal["before", "after", "none", "always"]


class RouteOptions(TypedDict, total=False):
    """The options of one route, beyond those of its group."""

    answers: Required[Answers]
    """Status -> a type (its JSON), `Content(media)`, None (no body), or one or more problem codes ("id-conflict"). The statuses that the
    layer itself answers (401, 403, 404, 411, 413, 415, 422, 500, 503) are documented automatically."""
    scope: str | Sequence[str]
    """Replaces the group's scope."""
    name: str
    """Replaces the handler's name, for handlers made in a loop."""
    doc: str
    """Replaces the handler's docstring."""
    body: Any
    """Replaces the annotation's body type."""
    max_body: int
    """Largest body in bytes; a larger one is answered with 413. Default: `DEFAULT_MAX_BODY`."""
    media: Sequence[str]
    """Accepted media types; application/json includes application/*+json."""
    shape: Any
    """The type of the JSON in a body that the handler reads as `bytes`."""
    opaque: str
    """A member of the body that may be any JSON. A large one becomes null in the model; `parsing.member` returns it as sent."""
    examples: Mapping[str, Any]
    """Example bodies by name, for the document."""
    if_match: bool
    """True if the handler honours `If-Match` (`etag.check_if_match`); documents the header and 412."""
    creates: bool
    """True if the handler honours `If-None-Match: *` (`etag.check_absent`); documents the header and 412."""
    tagged: bool
    """True if answers carry an `ETag` (`Answer.etag`); documents the header."""
    record: Recording
    """Time of the record of an administrative call: `before` it, or `after` it if it must work while storage does not. `none`:
    machines make these calls although a person's key permits them. `always`: before it, although a tenant's app
    may make it."""
    changes_nothing: bool
    """True for a call that only computes an answer, although it is no GET: the scope `read` permits it, and it has no record."""
    about: About
    """The GET route that shows what a recorded call changes, and the tenant, if the path does not say it: it may stand in the body."""
    continues: Callable[[Call[Any, Any, Any]], bool]
    """Returns True for a call that only continues what a recorded one has begun: it has no record."""
    unserved: Unserved
    """Answers in place of the handler while the process cannot open its application, or if the handler is too late."""


def _never(call: Any) -> bool:
    return False


def _no_service(app: Any) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Route:
    """One operation: the options of its group, its own options, and what the handler's annotation says."""

    method: Method
    template: str
    name: str
    handler: RouteHandler[Any]
    summary: str
    answers: Answers
    description: str = ""
    tag: str = ""
    scopes: frozenset[str] = frozenset()
    params: Mapping[str, Any] = field(default_factory=dict)
    query: type[Query] = NoQuery
    body: Any = None
    body_optional: bool = False
    media: Sequence[str] = _JSON
    max_body: int = DEFAULT_MAX_BODY
    shape: Any = None
    opaque: str | None = None
    examples: Mapping[str, Any] = field(default_factory=dict)
    if_match: bool = False
    creates: bool = False
    tagged: bool = False
    standalone: bool = False
    names_tenant: bool = False
    tenant_optional: bool = False
    guest: Guest | None = None
    own_token: OwnToken | None = None
    record: Recording = "before"
    changes_nothing: bool = False
    about: About | None = None
    continues: Callable[[Call[Any, Any, Any]], bool] = _never
    """Returns True for a call that only continues what a recorded one has begun: it has no record."""
    unserved: Unserved | None = None
    """Answers in place of the handler; see `RouteOptions`."""
    shown_by: Route | None = None
    """The GET route that shows what this route changes."""
    service: Callable[[Any], Any] = _no_service
    """Returns the group's service of an application."""

    @cached_property
    def of_tenant(self) -> bool:
        """True if calls act for one tenant, so that `?tenant=` is accepted."""
        return bool(self.scopes - _OF_NO_TENANT) and not self.names_tenant

    @cached_property
    def reads(self) -> bool:
        """True if calls change nothing."""
        return self.method == "GET" or self.changes_nothing

    @cached_property
    def audited(self) -> bool:
        """True for an administrative call that may change something: an operator makes it, and not an agent, a server or a tenant's app."""
        if self.record == "always":
            return True
        return not self.reads and bool(self.scopes) and self.scopes <= _ADMINISTRATIVE and self.record != "none"

    @cached_property
    def audited_for_operators(self) -> bool:
        """True for a call of a tenant's app that may change something: it has a record if an operator makes it."""
        return not self.reads and "events" in self.scopes and self.record != "none" and not self.audited

    @cached_property
    def takes_body(self) -> bool:
        """True if the route reads a body."""
        return self.body is not None

    @cached_property
    def reads_json(self) -> bool:
        """True if the layer parses the body; a handler with a body of `bytes` parses it itself."""
        return self.body is not None and self.body is not bytes

    @cached_property
    def body_adapter(self) -> TypeAdapter[Any]:
        """The validator of the JSON body."""
        return TypeAdapter(self.body)

    @cached_property
    def query_adapter(self) -> TypeAdapter[Any]:
        """The validator of the query."""
        return TypeAdapter(self.query)

    @cached_property
    def param_adapters(self) -> dict[str, TypeAdapter[Any]]:
        """The validators of the path parameters that have a type."""
        return {name: TypeAdapter(kind) for name, kind in self.params.items()}


class RouteGroup(Generic[S]):
    """Routes that share a service, a tag, a scope and path parameters.

    ::

        servers = RouteGroup[HttpServers]("leases", scope=("fleets", "agent"), params={"fleet": Name, "node": NodeName})

        @servers.post("v1/fleets/{fleet}/nodes/{node}/beat", answers={200: BeatAnswer, 409: "fenced"})
        async def leases_beat(call: Call[HttpServers, BeatIn]) -> Answer:
            \"""Record a server's heartbeat.\"""
            return Answer(200, await call.service.beat(call.tenant, call.params["fleet"], call.params["node"], call.body))

    Templates stand after `/api/`, in the host's syntax: `v1/events/{id}`, `v1/leases/{partition:int}`. A body type of `Model | None` makes
    the body optional.
    """

    def __init__(
        self,
        tag: str = "",
        *,
        scope: str | Sequence[str] = (),
        params: Mapping[str, Any] | None = None,
        standalone: bool = False,
        names_tenant: bool = False,
        tenant_optional: bool = False,
        guest: Callable[[S, str, Mapping[str, str]], KeyRecord | None] | None = None,
        own_token: Callable[[S, Mapping[str, str], Mapping[str, str]], None] | None = None,
    ) -> None:
        """scope: one or more of events, fleets, agent, metrics, admin, of which a key needs one; none for anonymous routes. Each but
            metrics and admin makes a tenant's route: `call.tenant` is set, and an admin names the tenant with `?tenant=`.
        params: a type for each path parameter that has rules. A value that does not fit is 404, for nothing can exist there; on PUT it is
            422.
        standalone: `call.service` is None and the application need not exist: for probes.
        names_tenant: the body or the path names tenants, and the handler checks that the key may act for them; `call.tenant` stays ''.
        tenant_optional: the bootstrap admin key may leave `?tenant=` out; `call.tenant` is '' then.
        guest: returns the caller of a request without a key, by service, URL and headers; None if a key is needed.
        own_token: raises 401 unless the call has the bearer token that these routes take in place of a key, by service, path parameters,
            which are not checked yet, and headers.
        """
        self._tag, self._scope, self._params = tag, scope, dict(params or {})
        self._standalone, self._names_tenant, self._tenant_optional, self._guest = standalone, names_tenant, tenant_optional, guest
        self._own_token = own_token
        self._routes: list[Route] = []

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def get[H: Callable[..., Awaitable[Answer]]](self, template: str, **options: Unpack[RouteOptions]) -> Callable[[H], H]:
        """Declare the handler below as GET."""
        return self._declare("GET", template, options)

    def put[H: Callable[..., Awaitable[Answer]]](self, template: str, **options: Unpack[RouteOptions]) -> Callable[[H], H]:
        """Declare the handler below as PUT."""
        return self._declare("PUT", template, options)

    def post[H: Callable[..., Awaitable[Answer]]](self, template: str, **options: Unpack[RouteOptions]) -> Callable[[H], H]:
        """Declare the handler below as POST."""
        return self._declare("POST", template, options)

    def patch[H: Callable[..., Awaitable[Answer]]](self, template: str, **options: Unpack[RouteOptions]) -> Callable[[H], H]:
        """Declare the handler below as PATCH."""
        return self._declare("PATCH", template, options)

    def delete[H: Callable[..., Awaitable[Answer]]](self, template: str, **options: Unpack[RouteOptions]) -> Callable[[H], H]:
        """Declare the handler below as DELETE."""
        return self._declare("DELETE", template, options)

    def options[H: Callable[..., Awaitable[Answer]]](self, template: str, **options: Unpack[RouteOptions]) -> Callable[[H], H]:
        """Declare the handler below as OPTIONS."""
        return self._declare("OPTIONS", template, options)

    def _declare[H: Callable[..., Awaitable[Answer]]](self, method: Method, template: str, options: RouteOptions) -> Callable[[H], H]:
        def add(handler: H) -> H:
            self._routes.append(self._route(method, template, handler, options))
            return handler

        return add

    def _route(self, method: Method, template: str, handler: Callable[..., Awaitable[Answer]], options: RouteOptions) -> Route:
        given: dict[str, Any] = dict(options)
        name, doc = given.pop("name", handler.__name__), inspect.cleandoc(given.pop("doc", None) or handler.__doc__ or "")
        summary, _, description = doc.partition("\n\n")
        scope = given.pop("scope", self._scope)
        body, optional, query = _taken(handler)
        given.setdefault("body", body)
        return Route(
            method=method,
            template=template,
            name=name,
            handler=handler,
            summary=" ".join(summary.split()).removesuffix("."),
            description=" ".join(description.split()),
            tag=self._tag,
            scopes=frozenset([scope] if isinstance(scope, str) else scope),
            params={key: kind for key, kind in self._params.items() if key in templates.names(template)},
            query=query,
            body_optional=optional,
            standalone=self._standalone,
            names_tenant=self._names_tenant,
            tenant_optional=self._tenant_optional,
            guest=self._guest,
            own_token=self._own_token,
            **given,
        )


def _taken(handler: Callable[..., Awaitable[Answer]]) -> tuple[Any, bool, type[Query]]:
    """Return the body's type (None without one), whether the body is optional, and the query model, from the handler's annotation."""
    given = get_args(get_type_hints(handler, include_extras=True).get("call"))
    body, query = given[1:] if given else (None, NoQuery)
    if get_origin(body) in (Union, UnionType) and NoneType in get_args(body):
        branches = [branch for branch in get_args(body) if branch is not NoneType]
        return reduce(or_, branches), True, query
    # A handler made in a loop has Any there, and gives its body as an option.
    return None if body in (NoneType, None, Any) else body, False, query


class Routes(Generic[A]):
    """A table of an application's routes, which `openapi` describes."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes.values())

    def __len__(self) -> int:
        return len(self._routes)

    def __getitem__(self, name: str) -> Route:
        return self._routes[name]

    def add[S](self, group: RouteGroup[S], service: Callable[[A], S]) -> None:
        """Add a group's routes. service: returns the group's service of an application. Raises ValueError for a route that cannot work."""
        # GET routes first: they show what the others change.
        for route in sorted(group, key=lambda route: route.method != "GET"):
            _check(route)
            if route.name in self._routes:
                raise ValueError(f"two routes are named {route.name}")
            self._routes[route.name] = replace(route, service=service, shown_by=self._shown_by(route))

    def _shown_by(self, route: Route) -> Route | None:
        """Return the GET route of the same path, or of the path before the verb: `.../channels/{name}` for `.../channels/{name}/pause`."""
        if not (route.audited or route.audited_for_operators):
            return None
        if route.about is not None:
            return self[route.about[0]] if route.about[0] else None
        gets = {each.template: each for each in self if each.method == "GET"}
        template = route.template
        if route.method == "POST" and template in gets:
            # It adds to a list.
            return None
        while route.method == "POST" and not template.endswith("}"):
            template = template.rpartition("/")[0]
            if not template:
                return None
        return gets.get(template)

    def check(self) -> None:
        """Raise ValueError when one request could fit two routes."""
        found = templates.clashes([(route.method, route.template, route.name) for route in self])
        if found:
            raise ValueError("ambiguous routes; the host would choose one by its name: " + "; ".join(found))


def _check(route: Route) -> None:
    if not _NAME.fullmatch(route.name):
        raise ValueError(f"{route.name!r} cannot be a function's name; use lower-case letters, digits and _")
    if not route.summary:
        raise ValueError(f"{route.name}: the handler needs a docstring, which becomes the summary")
    if unknown := route.scopes - _SCOPES:
        raise ValueError(f"{route.name}: there is no scope {', '.join(sorted(unknown))}")
    if route.standalone and route.scopes:
        raise ValueError(f"{route.name}: a standalone route has no application, so it cannot check keys")
