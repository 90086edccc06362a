"""The OpenAPI 3.1 document, generated from the route table and its models, so that it always agrees with the code.

Besides the answers that a route declares, each operation lists the answers of the layer itself, under the same conditions as `serve.admit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic.json_schema import JsonSchemaMode

from ..core.version import BASE
from . import templates
from .etag import encode
from .fields.types import Maybe, Name
from .json_schemas import REF, Schemas
from .problem import CONTENT_TYPE
from .routes import Answer, Call, Content, Route, RouteGroup, Routes

TITLE = "Tocsin"
_TYPE = "https://tocsin.dev/problems/"

_REASONS = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "Done; no content",
    304: "Not changed since the representation that If-None-Match names",
    401: "No key, or the key is not valid",
    403: "The key may not do this",
    404: "Does not exist, or belongs to another tenant",
    409: "Conflicts with the current state",
    411: "Body without a length",
    412: "Changed since the representation that If-Match names, or there already although If-None-Match is *",
    413: "Body too large",
    415: "The media type is not accepted",
    422: "Well-formed, but not valid; `errors` locates the faults",
    429: "A limit is reached; repeat after Retry-After",
    500: "Unexpected failure",
    503: "Storage does not answer; repeat the call",
}


class FieldError(BaseModel):
    """One fault and its place."""

    pointer: str = Field(description="JSON Pointer into the body; `?name`: query parameter; `{name}`: path; `@name`: header.")
    detail: str


class ProblemOut(BaseModel):
    """An RFC 9457 problem document. `type` ends in the problem's code."""

    type: str = Field(examples=[_TYPE + "not-found"])
    title: str
    status: int
    detail: str
    instance: Maybe[str] = Field(None, description="The path of the call.")
    errors: Maybe[list[FieldError]] = None
    outcome: Maybe[Literal["unknown", "unchanged"]] = Field(
        None, description="With 503: `unknown` if the call may have been applied or may still be, else `unchanged`."
    )


def build(routes: Routes) -> dict[str, Any]:
    """Return the document as JSON-able data."""
    schemas = Schemas([(ProblemOut, "serialization"), (Name, "validation"), *(kind for route in routes for kind in _kinds(route))])
    paths: dict[str, dict[str, Any]] = {}
    for route in sorted(routes, key=lambda route: (route.template, route.method)):
        paths.setdefault("/api" + templates.plain(route.template), {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": TITLE,
            "version": BASE,
            "description": "Coordination of machines: timed events, leases of partitions, checkpoint turns and maintenance.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in sorted({route.tag for route in routes if route.tag})],
        "paths": paths,
        "components": {
            "schemas": schemas.used(paths),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A key of a tenant, or the admin key."},
                "attempt": {"type": "http", "scheme": "bearer", "description": "The token of one attempt, from the delivery's headers."},
            },
            "headers": {
                "ETag": {"description": "Entity tag of the representation.", "schema": {"type": "string"}},
                "Location": {"description": "Path of the created resource.", "schema": {"type": "string"}},
                "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}},
                "WWW-Authenticate": {"schema": {"type": "string"}},
            },
        },
    }


def document_group(get_routes: Callable[[], Routes]) -> RouteGroup[None]:
    """Return the group with `GET /api/openapi.json`, which describes all routes of a table, itself included."""
    operations = RouteGroup[None]("operations", standalone=True)
    answers: list[Answer] = []

    @operations.get("openapi.json", answers={200: dict[str, Any]})
    async def openapi_json(call: Call[None]) -> Answer:
        """Return this document."""
        if not answers:
            answers.append(Answer(200, encode(build(get_routes())), {"cache-control": "max-age=300"}))
        return answers[0]

    return operations


def _kinds(route: Route) -> Iterator[tuple[Any, JsonSchemaMode]]:
    if (shape := route.shape if route.shape is not None else route.body) not in (None, bytes):
        yield shape, "validation"
    yield route.query, "validation"
    for kind in route.params.values():
        yield kind, "validation"
    for answer in route.answers.values():
        if isinstance(answer, Content):
            if answer.shape is not None:
                yield answer.shape, "serialization"
        elif not _codes(answer) and answer is not None:
            yield answer, "serialization"


def _codes(answer: Any) -> tuple[str, ...]:
    if isinstance(answer, str):
        return (answer,)
    return answer if isinstance(answer, tuple) and all(isinstance(code, str) for code in answer) else ()


def _operation(route: Route, schemas: Schemas) -> dict[str, Any]:
    out: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
    if route.description:
        out["description"] = route.description
    if route.tag:
        out["tags"] = [route.tag]
    out["security"] = [{"key": sorted(route.scopes)}] if route.scopes else [{"attempt": []}] if route.own_token is not None else []
    if parameters := [*_path(route, schemas), *_query(route, schemas), *_headers(route)]:
        out["parameters"] = parameters
    if route.takes_body:
        out["requestBody"] = {"required": not route.body_optional, "content": _content(route, schemas)}
    out["responses"] = _responses(route, schemas)
    return out


def _path(route: Route, schemas: Schemas) -> Iterator[dict[str, Any]]:
    for segment in templates.parse(route.template):
        if segment.name is None:
            continue
        schema: dict[str, Any] = {"type": "string", "minLength": 1}
        if segment.name in route.params:
            schema = schemas.of(route.params[segment.name], "validation")
        elif segment.kind == "int":
            schema = {"type": "integer", "format": "int32"}
        elif segment.kind == "guid":
            schema = {"type": "string", "format": "uuid"}
        yield {"name": segment.name, "in": "path", "required": True, "schema": schema}


def _query(route: Route, schemas: Schemas) -> Iterator[dict[str, Any]]:
    if route.of_tenant:
        description = "The tenant that an admin key acts for. Other keys must leave it out."
        yield {"name": "tenant", "in": "query", "required": False, "description": description, "schema": schemas.of(Name, "validation")}
    model = schemas.inline(route.query, "validation")
    for name, schema in model.get("properties", {}).items():
        schema = dict(schema)
        description = schema.pop("description", None)
        parameter = {"name": name, "in": "query", "required": name in model.get("required", []), "schema": schema}
        yield parameter | ({"description": description} if description else {})


def _headers(route: Route) -> Iterator[dict[str, Any]]:
    if route.if_match:
        description = "The call succeeds only if the representation still has this entity tag."
        tag = r'(?:W/)?"[\x21\x23-\x7e]*"'
        schema = {"type": "string", "pattern": rf"^(?:\*|{tag}(?:, ?{tag})*)$"}
        yield {"name": "If-Match", "in": "header", "required": False, "description": description, "schema": schema}
    if route.creates:
        description = "With *, the call creates and never replaces: it is 412 if something exists at this path."
        schema = {"type": "string", "pattern": r"^\*$"}
        yield {"name": "If-None-Match", "in": "header", "required": False, "description": description, "schema": schema}


def _content(route: Route, schemas: Schemas) -> dict[str, Any]:
    out: dict[str, Any] = {}
    shape = route.shape if route.shape is not None else route.body
    for media in route.media:
        json = media == "application/json" and shape is not bytes
        out[media] = {"schema": schemas.of(shape, "validation") if json else {"type": "string"}}
        if json and route.examples:
            out[media]["examples"] = {name: {"value": value} for name, value in route.examples.items()}
    return out


def _own_codes(route: Route) -> Iterator[tuple[int, str]]:
    """Yield the status and code of each answer that the layer itself gives."""
    if route.scopes:
        yield 401, "unauthenticated"
        yield 403, "missing-scope"
    if "agent" in route.scopes:
        yield 403, "not-your-node"
    if route.of_tenant:
        yield 403, "not-your-tenant"
        yield 404, "not-found"
    if templates.names(route.template):
        yield 404, "not-found"
    if route.takes_body:
        if not route.body_optional:
            yield 422, "empty-body"
        if "application/json" in route.media:
            yield 422, "malformed-json"
        yield 411, "length-required"
        yield 413, "content-too-large"
        yield 415, "unsupported-media-type"
    if route.if_match or route.creates:
        yield 412, "precondition-failed"
    # Every route refuses unknown query parameters.
    yield 422, "invalid-content"
    yield 500, "internal-error"
    if not route.standalone:
        yield 503, "start-refused"
        yield 503, "storage-unavailable"
        if route.method != "GET":
            yield 503, "newer-stored-forms"
        if route.takes_body:
            yield 503, "busy"


def _responses(route: Route, schemas: Schemas) -> dict[str, Any]:
    codes: dict[int, list[str]] = {}
    out: dict[str, Any] = {}
    for status, code in _own_codes(route):
        codes.setdefault(status, []).append(code)
    for status, answer in route.answers.items():
        if own := _codes(answer):
            codes.setdefault(status, []).extend(own)
        else:
            codes.pop(status, None)
            out[str(status)] = _answer(route, status, answer, schemas)
    for status, found in codes.items():
        out[str(status)] = _problem(status, list(dict.fromkeys(found)))
    return dict(sorted(out.items()))


def _answer(route: Route, status: int, answer: Any, schemas: Schemas) -> dict[str, Any]:
    out: dict[str, Any] = {"description": _REASONS.get(status, "Answer")}
    headers: dict[str, Any] = {}
    if status == 201:
        headers["Location"] = {"$ref": "#/components/headers/Location"}
    if status in (200, 201, 202) and route.tagged:
        headers["ETag"] = {"$ref": "#/components/headers/ETag"}
    if status in (429, 503):
        headers["Retry-After"] = {"$ref": "#/components/headers/Retry-After"}
    if headers:
        out["headers"] = headers
    if isinstance(answer, Content):
        shape = schemas.of(answer.shape, "serialization") if answer.shape is not None else {}
        out["content"] = {answer.media: {"schema": shape}}
    elif answer is not None:
        out["content"] = {"application/json": {"schema": schemas.of(answer, "serialization")}}
    return out


def _problem(status: int, codes: list[str]) -> dict[str, Any]:
    names = [_TYPE + code for code in codes]
    schema = {"allOf": [{"$ref": REF.format(model="ProblemOut")}], "properties": {"type": {"enum": names}, "status": {"const": status}}}
    out: dict[str, Any] = {
        "description": f"{_REASONS.get(status, 'Problem')}: {', '.join(codes)}",
        "content": {CONTENT_TYPE: {"schema": schema}},
    }
    if status in (429, 503):
        out["headers"] = {"Retry-After": {"$ref": "#/components/headers/Retry-After"}}
    if status == 401:
        out["headers"] = {"WWW-Authenticate": {"$ref": "#/components/headers/WWW-Authenticate"}}
    return out
