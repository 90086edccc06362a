"""The operations on channels, tenants, keys, calendars and fleets: the request of each, and the function that reads its answer. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from ..calls import ONE_SCHEDULE, PAGE, encode, match_header
from ..exchange import ApiCall, ApiReply, CallSteps, RetrySettings, json_reader, read_empty
from ..model import AnswerPage, to_json_value
from ..reading import reader_of
from . import model
from .changes import Stored, change_stored
from .definitions import definition, merged
from .fields import DURATIONS

_TO_CHANNEL, _TO_TENANT, _TO_FLEET = reader_of(model.Channel), reader_of(model.Tenant), reader_of(model.Fleet)
_TO_CALENDAR, _TO_KEY = reader_of(model.Calendar), reader_of(model.Key)
_CALENDAR = json_reader(_TO_CALENDAR, tagged=True)
_SECRET = json_reader(reader_of(model.RotatedSecret))
_NEW_KEY = json_reader(reader_of(model.NewKey))
_OWN_KEY = json_reader(reader_of(model.OwnKey))


def _described(kind: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with its definition as one member."""
    return {**answer, "definition": definition(kind, _untagged(answer))}


def _to_channel(answer: dict[str, Any]) -> model.Channel:
    return _TO_CHANNEL({**_described("channel", answer), "breaker": {**answer["flow"], "state": answer["flow"]["breaker"]}})


def _to_tenant(answer: dict[str, Any]) -> model.Tenant:
    return _TO_TENANT(_described("tenant", answer))


def _to_fleet(answer: dict[str, Any]) -> model.Fleet:
    resizing = answer.get("resizing")
    return _TO_FLEET({**_described("fleet", answer), "resizing": resizing and {**resizing, "before": resizing["from"]}})


_CHANNEL = json_reader(_to_channel, tagged=True)
_READERS: Final[dict[str, Callable[[ApiReply], Any]]] = {
    "channel": _CHANNEL,
    "tenant": json_reader(_to_tenant, tagged=True),
    "fleet": json_reader(_to_fleet, tagged=True),
    "schedule": ONE_SCHEDULE,
}


def one_of_tenant(tenant: str | None) -> str:
    """Return the tenant that a client acts for. Raises ValueError if it names none."""
    if tenant is None:
        raise ValueError("channels and keys belong to a tenant: use an admin key and name it, as in Client(url, key, tenant='shop')")
    return tenant


def path(*parts: str) -> str:
    """Join the parts to a path of the API. Raises ValueError for an empty part and for dots, which would name another path."""
    for part in parts:
        if not part or set(part) <= {"."}:
            raise ValueError(f"{part!r} is not a name; a name has letters, digits and hyphens, such as shop")
    return "/".join(quote(part, safe=":@") for part in parts)


def channel_path(tenant: str | None, name: str) -> str:
    return path("tenants", one_of_tenant(tenant), "channels", name)


def key_path(tenant: str | None, *prefix: str) -> str:
    return path("tenants", one_of_tenant(tenant), "keys", *prefix)


def get(kind: str, at: str) -> ApiCall[Any]:
    return ApiCall("GET", at, _READERS[kind])


def put(kind: str, at: str, fields: Mapping[str, Any], if_match: str | None, query: Mapping[str, str] | None = None) -> ApiCall[Any]:
    """Return the call that creates or replaces a channel, tenant or fleet. Fields of None are left out."""
    document = _document(kind, {name: value for name, value in fields.items() if value is not None})
    # With If-Match, a second try cannot know whether the first try changed the version.
    return ApiCall(
        "PUT", at, _READERS[kind], query=query or {}, body=encode(document), headers=match_header(if_match), repeatable=if_match is None
    )


def change(kind: str, at: str, fields: Mapping[str, Any], retry_settings: RetrySettings, chance: Callable[[], float]) -> CallSteps[Any]:
    """Change the named fields of a channel, tenant, fleet or schedule, and keep all others. None resets a field."""
    if not fields:
        raise ValueError("name at least one field to change")
    named = _document(kind, fields)
    read = ApiCall("GET", at, json_reader(lambda answer: Stored(definition(kind, _untagged(answer)), _tag(answer)), tagged=True))

    def write(document: Mapping[str, Any], tag: str) -> ApiCall[Any]:
        return ApiCall("PUT", at, _READERS[kind], body=encode(document), headers=match_header(tag))

    return change_stored(read, write, lambda stored: merged(stored, named), retry_settings, chance)


def delete(at: str, if_match: str | None) -> ApiCall[None]:
    return ApiCall("DELETE", at, read_empty, headers=match_header(if_match), repeatable=False)


def channels(tenant: str | None, cursor: str | None) -> ApiCall[AnswerPage[model.Channel]]:
    return _list(path("tenants", one_of_tenant(tenant), "channels"), _to_channel, cursor)


def pause_channel(tenant: str | None, name: str, reason: str) -> ApiCall[model.Channel]:
    body = encode({"reason": reason}) if reason else b""
    return ApiCall("POST", f"{channel_path(tenant, name)}/pause", _CHANNEL, body=body)


def resume_channel(tenant: str | None, name: str) -> ApiCall[model.Channel]:
    return ApiCall("POST", f"{channel_path(tenant, name)}/resume", _CHANNEL)


def rotate_secret(tenant: str | None, name: str) -> ApiCall[model.RotatedSecret]:
    # Without an id, a second try would also replace the secret that the first one made.
    return ApiCall("POST", f"{channel_path(tenant, name)}/secret/rotate", _SECRET, body=encode({"id": uuid.uuid4().hex}))


def tenants(cursor: str | None) -> ApiCall[AnswerPage[model.Tenant]]:
    return _list("tenants", _to_tenant, cursor)


def keys(tenant: str | None, cursor: str | None) -> ApiCall[AnswerPage[model.Key]]:
    return _list(key_path(tenant), _TO_KEY, cursor)


def create_key(
    tenant: str | None, scopes: Sequence[str], fleet: str | None, node: str | None, note: str | None, expires: datetime | None
) -> ApiCall[model.NewKey]:
    if isinstance(scopes, str):
        raise TypeError(f"scopes: {scopes!r} is a text; write a list such as [{scopes!r}]")
    given = {"scopes": list(scopes), "fleet": fleet, "node": node, "note": note, "expires": to_json_value("key.expires", expires)}
    body = encode({name: value for name, value in given.items() if value is not None})
    # A second try would create a second key.
    return ApiCall("POST", key_path(tenant), _NEW_KEY, body=body, repeatable=False)


def own_key() -> ApiCall[model.OwnKey]:
    return ApiCall("GET", "key", _OWN_KEY)


def calendars(cursor: str | None) -> ApiCall[AnswerPage[model.Calendar]]:
    return _list("calendars", _TO_CALENDAR, cursor)


def get_calendar(name: str) -> ApiCall[model.Calendar]:
    return ApiCall("GET", path("calendars", name), _CALENDAR)


def put_calendar(name: str, dates: Iterable[date], if_match: str | None) -> ApiCall[model.Calendar]:
    body = encode({"dates": [each.isoformat() for each in dates]})
    headers = match_header(if_match)
    return ApiCall("PUT", path("calendars", name), _CALENDAR, body=body, headers=headers, repeatable=if_match is None, slow=True)


def fleets(cursor: str | None) -> ApiCall[AnswerPage[model.Fleet]]:
    return _list("fleets", _to_fleet, cursor)


def _list[T](at: str, shape: Callable[[dict[str, Any]], T], cursor: str | None) -> ApiCall[AnswerPage[T]]:
    read = json_reader(lambda answer: AnswerPage(items=tuple(map(shape, answer["items"])), next=answer["next"]))
    query = {"limit": str(PAGE), **({"cursor": cursor} if cursor is not None else {})}
    return ApiCall("GET", at, read, query=query)


def _document(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if name == "payload" else _json(DURATIONS[kind], name, value) for name, value in fields.items()}


def _json(durations: frozenset[str], where: str, value: Any) -> Any:
    """Return a field for JSON. Raises TypeError for a number in place of a duration, ValueError as `to_json_value`."""
    if isinstance(value, timedelta | datetime):
        return to_json_value(where, value)
    if isinstance(value, Mapping):
        inside = where if where in durations else None
        return {name: _json(durations, inside or f"{where}.{name}", each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json(durations, where, each) for each in value]
    if where in durations and value is not None and not isinstance(value, str):
        raise TypeError(f"{where}: {value!r} is not a timedelta; write timedelta(seconds={value!r})")
    return value


def _untagged(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "etag"}


def _tag(answer: dict[str, Any]) -> str | None:
    tag: str | None = answer["etag"]
    return tag
