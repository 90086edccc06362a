"""The target of an event: a path suffix, query, method and headers of its own, under its http channel's scheme, host and path.

Everything is decided from texts by rules that list what is allowed. The suffix and the query are sent as checked here, and no URL library
joins them with the channel's URL: what one library leaves alone, another one, or a proxy on the way, would resolve.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, Self
from urllib.parse import quote, unquote, unquote_plus, urlsplit

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, ValidationError, model_validator

from ...web.fields.types import Maybe, Strict
from .model import HttpChannel

MAX_PATH = 512
"""Longest suffix, in characters."""
MAX_PARAMETERS = 16
MAX_PARAMETER = 256
"""Longest name, and longest value, of a query parameter, in characters."""
MAX_HEADERS = 16
MAX_TOTAL = 4096
"""Bytes of the path and of all names and values together, before the query is percent-encoded."""
TARGET = "event_target"
"""Property of an event row: the target as JSON. Missing, or empty after a change, for an event without one."""

METHODS = ("POST", "PUT", "PATCH", "GET", "DELETE")
Method = Literal["POST", "PUT", "PATCH", "GET", "DELETE"]
"""The methods of the requests. The signature of a request without a body covers an empty one."""
BODILESS = frozenset(("GET", "DELETE"))
"""Methods whose requests may come without a body."""
NO_PAYLOAD = "a GET request has no body; leave payload out, or use another method"

_PATH = re.compile(r"/(?:[A-Za-z0-9\-._~!$&'()*+,=:@/]|%[0-9A-Fa-f]{2})*")
"""The characters of a path in RFC 3986, without `;`: some servers cut a segment there, so that `..;` becomes `..`."""
_SPECIAL = frozenset("/\\?#%;")
"""Characters that a segment must not contain once it is decoded: a receiver that decodes twice would see another path."""
_PATH_TEXT = "a path such as /orders/17, without ? and #, with other characters than those of RFC 3986 percent-encoded"
_ALLOWED = (*("accept", "accept-language", "cache-control", "content-language", "idempotency-key", "if-match", "if-none-match", "prefer"),)
"""Headers that an event may set, beside those that begin with x-. `traceparent` is the delivery's own, and must not come twice."""
_REFUSED = (
    # The caller's address, the host and the scheme, as front ends say them: nginx, Apache, Azure Application Gateway, Cloudflare, Fastly.
    *(
        "x-forward",
        "x-real-",
        "x-client-",
        "x-cluster-client-ip",
        "x-remote-",
        "x-proxy",
        "x-host",
        "x-scheme",
        "x-url-scheme",
        "x-true-client",
    ),
    # The path and the method: IIS URL Rewrite, Envoy, Symfony; a file to send instead of the answer: nginx, Apache, lighttpd.
    *("x-original-", "x-rewrite-", "x-http-method", "x-method-override", "x-envoy-", "x-accel-", "x-sendfile", "x-lighttpd-"),
    # The caller and its certificate: App Service and Easy Auth, Front Door, load balancers and gateways of AWS, Google's IAP and App
    # Engine, Cloudflare Access, oauth2-proxy, Pomerium and Traefik, servers before a WSGI or Rack application.
    *("x-ms-client-principal", "x-ms-token-", "x-arr-", "x-azure-", "x-amz", "x-apigateway-", "x-goog-", "x-appengine-", "x-serverless-"),
    *("x-cf-", "x-auth-request-", "x-authenticated-", "x-pomerium-", "x-webauth-", "x-ssl-", "x-tls-", "x-mtls-", "x-cert", "x-user"),
    # The caller again: Kong and APISIX, authentik, Vouch Proxy, WSO2, Google's Cloud Endpoints.
    *("x-consumer-", "x-credential-", "x-anonymous-consumer", "x-authentik-", "x-vouch-", "x-jwt-assertion", "x-endpoint-api-userinfo"),
    # Steps that an application leaves out for its own requests: Next.js (CVE-2025-29927).
    "x-middleware-",
)
"""Beginnings of headers from which some front end or server takes the caller, the path or the method."""
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,126}[A-Za-z0-9])?")
"""Names of headers. No underscores or dots, which some servers read as hyphens."""
_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, line breaks of Unicode, and lone surrogates, which cannot be encoded."""
_NOT_PLAIN = re.compile(r"[^a-z0-9]")


def check_path(text: str) -> str:
    """Return the path if no server can read another one from it. Raises ValueError."""
    if not _PATH.fullmatch(text):
        raise ValueError(f"must be {_PATH_TEXT}")
    if "//" in text:
        raise ValueError("must not contain //")
    try:
        segments = [unicodedata.normalize("NFKC", unquote(each, errors="strict")) for each in text.split("/")]
    except UnicodeDecodeError:
        raise ValueError("must be UTF-8 once it is percent-decoded") from None
    for segment in segments:
        if any(unicodedata.category(each) == "Cf" for each in segment):
            raise ValueError("must not contain an invisible character, in any encoding")
        if segment == "." or ".." in segment:
            raise ValueError("must not contain .. or a segment of one dot, in any encoding")
        if _CONTROL.search(segment) or not _SPECIAL.isdisjoint(segment):
            raise ValueError("must not contain an encoded slash, backslash, ?, #, ; or %, or a control character")
    return text


def _plain_text(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("must not contain control characters")
    return text


def _header_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("must be the name of a header, of A-Z a-z 0-9 and -")
    low = name.lower()
    if low not in _ALLOWED and (not low.startswith("x-") or low.startswith(_REFUSED)):
        allowed = ", ".join(_ALLOWED)
        raise ValueError(f"is a header that an event cannot set; use one that begins with x- and names no caller, or one of {allowed}")
    return name


def _header_value(value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise ValueError("must be printable ASCII without spaces around it")
    return value


_Parameter = Annotated[str, StringConstraints(max_length=MAX_PARAMETER), AfterValidator(_plain_text)]
_HeaderValue = Annotated[str, StringConstraints(max_length=MAX_TOTAL), AfterValidator(_header_value)]


class EventTarget(Strict):
    """What an event changes of the requests to its http channel. Scheme, host and the beginning of the path are always the channel's."""

    path: Maybe[Annotated[str, StringConstraints(min_length=1, max_length=MAX_PATH), AfterValidator(check_path)]] = Field(
        None, description="Appended to the path of the channel's URL. Begins with a slash.", examples=["/orders/17"]
    )
    query: Maybe[dict[Annotated[str, Field(min_length=1), AfterValidator(_plain_text)], _Parameter]] = Field(
        None, max_length=MAX_PARAMETERS, description="Added to the query of the channel's URL, which must have none of these names."
    )
    method: Method = "POST"
    headers: Maybe[dict[Annotated[str, AfterValidator(_header_name)], _HeaderValue]] = Field(
        None, max_length=MAX_HEADERS, description="Added to the channel's headers, which must have none of these names."
    )

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.path is None and not self.query and not self.headers and "method" not in self.model_fields_set:
            raise ValueError("give at least one of path, query, method and headers")
        if any(len(name) > MAX_PARAMETER for name in self.query or ()):
            raise ValueError(f"the names in query may have at most {MAX_PARAMETER} characters")
        if len({name.lower() for name in self.headers or ()}) < len(self.headers or ()):
            raise ValueError("names a header twice, in names that differ only in case; give it once")
        if sum(len(text.encode()) for text in self._texts()) > MAX_TOTAL:
            raise ValueError(f"may have at most {MAX_TOTAL:,} bytes in its path and all names and values together")
        return self

    def _texts(self) -> Iterator[str]:
        yield self.path or ""
        for pairs in (self.query, self.headers):
            for name, value in (pairs or {}).items():
                yield name
                yield value

    @property
    def payload(self) -> Literal["needed", "allowed", "refused"]:
        """The part that a payload has in the requests."""
        return "refused" if self.method == "GET" else "allowed" if self.method == "DELETE" else "needed"

    def stored(self) -> str:
        """Return the text for an event's row."""
        return self.model_dump_json(exclude_none=True)


_TARGET: TypeAdapter[EventTarget] = TypeAdapter(EventTarget)


class Fault(NamedTuple):
    """The reason why a target does not fit a channel. pointer: a JSON pointer inside the target."""

    pointer: str
    detail: str


def faults_with(target: EventTarget, spec: object) -> Iterator[Fault]:
    """Yield the reasons why events with this target cannot be delivered by a channel."""
    if not isinstance(spec, HttpChannel):
        yield Fault("", "only events of http channels can have a target")
        return
    if target.query:
        taken = parameter_names(urlsplit(spec.url).query)
        yield from (
            Fault(f"/query/{_pointer(name)}", "is a parameter that the channel's url has; an event cannot replace it")
            for name in target.query
            if _same_parameter(name) in taken
        )
    if target.headers:
        own = {_NOT_PLAIN.sub("-", name.lower()) for name in spec.headers}
        yield from (
            Fault(f"/headers/{_pointer(name)}", "is a header that the channel sets; an event cannot replace it")
            for name in target.headers
            if name.lower() in own
        )


@lru_cache(maxsize=1024)
def parameter_names(query: str) -> frozenset[str]:
    """Return the names in a URL's query, each in the form that all spellings of a name share for some receiver."""
    return frozenset(_same_parameter(unquote_plus(each.partition("=")[0])) for each in re.split("[&;]", query) if each)


def _same_parameter(name: str) -> str:
    # Frameworks ignore case, take `code[]` for a list `code`, or read spaces and dots as underscores.
    folded = unicodedata.normalize("NFKC", name).casefold().strip()
    return re.sub(r"[ .]", "_", folded.partition("[")[0] or folded)


def _pointer(name: str) -> str:
    return name[:128].replace("~", "~0").replace("/", "~1")


class Targeted(NamedTuple):
    """The parts of a request that a target changes."""

    method: str
    resource: str
    """Path and query as sent."""
    headers: Mapping[str, str]


def apply_target(stored: str, spec: HttpChannel, resource: str) -> Targeted | str:
    """Return the parts of the request, or the reason why it must not be sent. stored: as in the event's row.

    resource: path and query of the channel's URL as sent. Everything is checked again: the channel may have changed since the event was
    accepted, and a row is read as if anybody had written it.
    """
    try:
        target = _TARGET.validate_json(stored)
    except ValidationError:
        return "the event's target is not valid"
    for fault in faults_with(target, spec):
        return f"the event's target does not fit the channel any more: target{fault.pointer} {fault.detail}"
    path, mark, query = resource.partition("?")
    if target.path is not None:
        path = path.removesuffix("/") + target.path
    if target.query:
        own = _encoded(target.query.items())
        query = f"{query}&{own}" if query else own
        mark = "?"
    return Targeted(target.method, f"{path}{mark}{query}", target.headers or {})


def _encoded(pairs: Iterable[tuple[str, str]]) -> str:
    return "&".join([f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs])
