"""Bad input: each has its status and pointer, and changes nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scheduler.harness import Client, Dump, World

from .conftest import hold_problem

EVENTS = "/api/v1/events"
GOOD: dict[str, Any] = {"delay": "PT1H", "payload": 1}
MIB = 1024 * 1024


async def refused(
    client: Client, method: str, url: str, body: Any = None, headers: dict[str, str] | None = None, *, status: int = 422
) -> tuple[str, list[str]]:
    """The code and pointers of a refusal that changed nothing."""
    before: Dump = client.world.dump()
    answer = await client.call(method, url, body, headers)
    assert answer.status == status, answer
    assert client.world.dump() == before
    hold_problem(answer)
    return answer.code, answer.pointers


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def event(payload: bytes) -> bytes:
    return b'{"delay":"PT1H","payload":' + payload + b"}"


WRONG_EVENTS: list[tuple[str, Any, list[str]]] = [
    ("nothing", {}, ["/payload"]),
    ("no payload", {"delay": "PT1H"}, ["/payload"]),
    ("no time", {"payload": 1}, [""]),
    ("two times", GOOD | {"due": "2030-01-01T00:00:00Z"}, [""]),
    ("unknown field", GOOD | {"color": "red"}, ["/color"]),
    ("unknown field that needs escaping", GOOD | {"a/b~c": 1}, ["/a~1b~0c"]),
    ("two faults", {"delay": 5, "payload": 1, "x": 1}, ["/delay", "/x"]),
    ("not an object", [GOOD], [""]),
    ("a string", "event", [""]),
    ("due as number", {"due": 1800000000, "payload": 1}, ["/due"]),
    ("due without offset", {"due": "2030-01-01T00:00:00", "payload": 1}, ["/due"]),
    ("due as a date", {"due": "2030-01-01", "payload": 1}, ["/due"]),
    ("due in 4,000 years", {"due": "6030-01-01T00:00:00Z", "payload": 1}, ["/due"]),
    ("due in a leap second", {"due": "2016-12-31T23:59:60Z", "payload": 1}, ["/due"]),
    ("due in the year 10000", {"due": "10000-01-01T00:00:00Z", "payload": 1}, ["/due"]),
    ("due that becomes the year 10000 in UTC", {"due": "9999-12-31T23:59:59-01:00", "payload": 1}, ["/due"]),
    ("due that rounds up to the year 10000", {"due": "9999-12-31T23:59:59.9999999Z", "payload": 1}, ["/due"]),
    ("due before the year 1 in UTC", {"due": "0001-01-01T00:00:00+01:00", "payload": 1}, ["/due"]),
    ("due in the year 0", {"due": "0000-01-01T00:00:00Z", "payload": 1}, ["/due"]),
    ("due on 30 February", {"due": "2030-02-30T00:00:00Z", "payload": 1}, ["/due"]),
    ("due at 25 hours", {"due": "2030-01-01T25:00:00Z", "payload": 1}, ["/due"]),
    ("due with an offset of a day", {"due": "2030-01-01T00:00:00+24:00", "payload": 1}, ["/due"]),
    ("due in other digits", {"due": "٢٠٣٠-01-01T00:00:00Z", "payload": 1}, ["/due"]),
    ("due with a space behind", {"due": "2030-01-01T00:00:00Z ", "payload": 1}, ["/due"]),
    ("due with a line behind", {"due": "2030-01-01T00:00:00Z\n", "payload": 1}, ["/due"]),
    ("negative delay", {"delay": "-PT5S", "payload": 1}, ["/delay"]),
    ("negative part of a delay", {"delay": "PT-5S", "payload": 1}, ["/delay"]),
    ("delay in months", {"delay": "P1M", "payload": 1}, ["/delay"]),
    ("delay as a number", {"delay": 5, "payload": 1}, ["/delay"]),
    ("delay without number", {"delay": "PT", "payload": 1}, ["/delay"]),
    ("delay in small letters", {"delay": "pt5s", "payload": 1}, ["/delay"]),
    ("delay of 100 years", {"delay": "P36500D", "payload": 1}, ["/delay"]),
    ("empty id", GOOD | {"id": ""}, ["/id"]),
    ("id of 201", GOOD | {"id": "a" * 201}, ["/id"]),
    ("control character in the id", GOOD | {"id": "a\x00b"}, ["/id"]),
    ("line end behind the id", GOOD | {"id": "a\n"}, ["/id"]),
    ("dot in the id", GOOD | {"id": "0123456789abcdef.000"}, ["/id"]),
    ("slash in the id", GOOD | {"id": "a/b"}, ["/id"]),
    ("umlaut in the id", GOOD | {"id": "ä"}, ["/id"]),
    ("id as a number", GOOD | {"id": 17}, ["/id"]),
    ("unknown channel", GOOD | {"channel": "nowhere"}, ["/channel"]),
    ("no channel's name", GOOD | {"channel": "Default"}, ["/channel"]),
    ("channel null", GOOD | {"channel": None}, ["/channel"]),
    ("negative expires", GOOD | {"expires": "-PT1S"}, ["/expires"]),
    ("expires as a number", GOOD | {"expires": 1}, ["/expires"]),
    ("unknown durability", GOOD | {"durability": "eternal"}, ["/durability"]),
    ("retry as a number", GOOD | {"retry": 5}, ["/retry"]),
    ("no attempts", GOOD | {"retry": {"attempts": 0}}, ["/retry/attempts"]),
    ("attempts as text", GOOD | {"retry": {"attempts": "5"}}, ["/retry/attempts"]),
    ("attempts as truth", GOOD | {"retry": {"attempts": True}}, ["/retry/attempts"]),
    ("half an attempt", GOOD | {"retry": {"attempts": 1.5}}, ["/retry/attempts"]),
    ("unknown retry field", GOOD | {"retry": {"jitter": 1}}, ["/retry/jitter"]),
    ("first of 0", GOOD | {"retry": {"first": "PT0S"}}, ["/retry/first"]),
    ("within 8 days", GOOD | {"retry": {"within": "P8D"}}, ["/retry/within"]),
    ("labels as a list", GOOD | {"labels": ["a"]}, ["/labels"]),
    ("label as a number", GOOD | {"labels": {"a": 1}}, ["/labels/a"]),
    ("control character in a label", GOOD | {"labels": {"a": "x\ty"}}, ["/labels/a"]),
    ("33 labels", GOOD | {"labels": {f"l{number}": "" for number in range(33)}}, ["/labels"]),
    ("long label", GOOD | {"labels": {"a": "x" * 257}}, ["/labels/a"]),
]


@pytest.mark.parametrize(("body", "pointers"), [case[1:] for case in WRONG_EVENTS], ids=[case[0] for case in WRONG_EVENTS])
async def test_event_that_is_wrong_is_422_and_points_at_the_fault(world: World, body: Any, pointers: list[str]) -> None:
    assert await refused(world.demo, "POST", EVENTS, body) == ("invalid-content", pointers)


UNREADABLE: list[tuple[str, bytes]] = [
    ("cut off", b'{"delay":"PT1H","payload":'),
    ("two documents", event(b"1") + event(b"2")),
    ("single quotes", b"{'delay':'PT1H','payload':1}"),
    ("comma behind the last", b'{"delay":"PT1H","payload":1,}'),
    ("NaN", event(b"NaN")),
    ("Infinity", event(b"-Infinity")),
    ("number beyond a double outside the payload", b'{"delay":"PT1H","payload":1,"extra":1e999}'),
    ("number with a leading zero", event(b"01")),
    ("invalid UTF-8", event(b'"\xff\xfe"')),
    ("overlong UTF-8", event(b'"\xc0\xaf"')),
    ("surrogate in UTF-8", event(b'"\xed\xa0\x80"')),
    ("half a surrogate pair", event(b'"\\ud800"')),
    ("control character in a string", event(b'"a\x00b"')),
    ("line end in a string", event(b'"a\nb"')),
    ("UTF-16", '{"delay":"PT1H","payload":1}'.encode("utf-16")),
    ("byte order mark", b"\xef\xbb\xbf" + event(b"1")),
    ("spaces only", b"   "),
    ("a form", b"delay=PT1H&payload=1"),
]


@pytest.mark.parametrize("body", [case[1] for case in UNREADABLE], ids=[case[0] for case in UNREADABLE])
async def test_body_that_is_not_json_is_422_for_the_whole_body(world: World, body: bytes) -> None:
    assert await refused(world.demo, "POST", EVENTS, body) == ("malformed-json", [""])


async def test_no_body_is_422(world: World) -> None:
    for method, url in (("POST", EVENTS), ("POST", f"{EVENTS}/batch"), ("PATCH", f"{EVENTS}/x"), ("POST", "/api/v1/dead-letters/redrive")):
        assert await refused(world.demo, method, url) == ("empty-body", [""])


async def test_null_as_a_body_is_422(world: World) -> None:
    assert await refused(world.demo, "POST", EVENTS, b"null") == ("invalid-content", [""])


async def test_nesting_is_taken_to_64_levels_and_no_deeper(world: World) -> None:
    assert (await world.demo.post(EVENTS, event(nested(63)))).status == 201
    assert await refused(world.demo, "POST", EVENTS, event(nested(64))) == ("invalid-content", ["/payload"])
    assert await refused(world.demo, "POST", EVENTS, event(nested(2000))) == ("invalid-content", ["/payload"])
    assert await refused(world.demo, "POST", EVENTS, nested(100_000)) == ("invalid-content", [""])


async def test_payload_is_taken_to_256_kib_as_sent_and_no_further(world: World) -> None:
    fits = b'"' + b"x" * (256 * 1024 - 2) + b'"'
    assert (await world.demo.post(EVENTS, event(fits))).status == 201
    assert await refused(world.demo, "POST", EVENTS, event(fits[:-1] + b'x"'), status=413) == ("payload-too-large", ["/payload"])
    # Spaces count: they are delivered.
    spaced = b"[" + b" " * (256 * 1024 - 1) + b"]"
    assert await refused(world.demo, "POST", EVENTS, event(spaced), status=413) == ("payload-too-large", ["/payload"])


async def test_body_of_an_event_is_taken_to_512_kib(world: World) -> None:
    body = event(b"1")
    assert (await world.demo.post(EVENTS, body + b" " * (512 * 1024 - len(body)))).status == 201
    over = body + b" " * (512 * 1024 - len(body) + 1)
    assert (await world.demo.post(EVENTS, over)).code == "content-too-large"
    before = world.dump()
    assert (await world.demo.post(EVENTS, over)).status == 413
    assert world.dump() == before


async def test_payload_for_a_queue_channel_is_taken_to_40_kib(world: World) -> None:
    assert (await world.admin.put("/api/v1/tenants/demo/channels/q", {"type": "queue", "queue": "alarms"})).status == 201
    fits, over = b'"' + b"x" * (40 * 1024 - 2) + b'"', b'"' + b"x" * (40 * 1024 - 1) + b'"'
    body = b'{"delay":"PT1H","channel":"q","payload":'
    assert (await world.demo.post(EVENTS, body + fits + b"}")).status == 201
    assert await refused(world.demo, "POST", EVENTS, body + over + b"}", status=413) == ("payload-too-large", ["/payload"])
    assert (await world.demo.post(EVENTS, event(over))).status == 201


async def test_change_cannot_bring_a_queue_channel_more_than_40_kib(world: World) -> None:
    assert (await world.admin.put("/api/v1/tenants/demo/channels/q", {"type": "queue", "queue": "alarms"})).status == 201
    large = "x" * 41_000
    on_queue, on_http = await world.demo.create(channel="q"), await world.demo.create(payload=large)
    too_large = ("payload-too-large", ["/payload"])
    assert await refused(world.demo, "PATCH", f"{EVENTS}/{on_queue['id']}", {"payload": large}, status=413) == too_large
    assert await refused(world.demo, "PATCH", f"{EVENTS}/{on_queue['id']}", {"payload": large, "due": "2030-01-01T00:00:00Z"}, status=413)
    assert await refused(world.demo, "PATCH", f"{EVENTS}/{on_http['id']}", {"channel": "q"}, status=413) == too_large
    assert (await world.demo.patch(f"{EVENTS}/{on_http['id']}", {"channel": "q", "payload": 1})).status == 200
    assert (await world.demo.patch(f"{EVENTS}/{on_queue['id']}", {"channel": "default", "payload": large})).status == 200


async def test_tenants_own_payload_limit_is_kept(world: World) -> None:
    client = await world.tenant(limits={"payload_bytes": 10})
    assert (await client.post(EVENTS, event(b'"12345678"'))).status == 201
    assert await refused(client, "POST", EVENTS, event(b'"123456789"'), status=413) == ("payload-too-large", ["/payload"])
    made = await client.create(payload=1)
    assert await refused(client, "PATCH", f"{EVENTS}/{made['id']}", {"payload": "123456789"}, status=413)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": ""}, 415),
        ({"content-type": "application/json; charset=latin-1"}, 415),
        ({"content-type": "application/x-ndjson"}, 415),
        ({"content-encoding": "gzip"}, 415),
        ({"content-type": "application/json; charset=utf-8"}, 201),
        ({"content-type": "application/cloudevents+json"}, 201),
        ({"content-encoding": "identity"}, 201),
    ],
)
async def test_media_type_must_be_json_in_utf_8(world: World, headers: dict[str, str], status: int) -> None:
    before = world.dump()
    answer = await world.demo.post(EVENTS, GOOD, headers)
    assert answer.status == status
    assert (world.dump() == before) == (status == 415)


async def test_body_without_a_length_is_411(world: World) -> None:
    before = world.dump()
    answer = await world.demo.call("POST", EVENTS, None, {"transfer-encoding": "chunked", "content-type": "application/json"})
    assert (answer.status, answer.code) == (411, "length-required")
    assert world.dump() == before


ROUTES_WITH_A_KEY = [
    ("POST", EVENTS),
    ("POST", f"{EVENTS}/batch"),
    ("GET", EVENTS),
    ("GET", f"{EVENTS}/a"),
    ("PATCH", f"{EVENTS}/a"),
    ("DELETE", f"{EVENTS}/a"),
    ("POST", f"{EVENTS}/a/fire"),
    ("POST", f"{EVENTS}/a/redrive"),
    ("GET", "/api/v1/dead-letters"),
    ("POST", "/api/v1/dead-letters/redrive"),
    ("GET", "/api/v1/stats"),
    ("GET", "/api/v1/tenants"),
    ("PUT", "/api/v1/tenants/new"),
    ("GET", "/api/v1/tenants/demo"),
    ("DELETE", "/api/v1/tenants/demo"),
    ("POST", "/api/v1/tenants/demo/keys"),
    ("GET", "/api/v1/tenants/demo/keys"),
    ("DELETE", "/api/v1/tenants/demo/keys/local-demo"),
    ("PUT", "/api/v1/tenants/demo/channels/c"),
    ("GET", "/api/v1/tenants/demo/channels/default"),
    ("GET", "/api/v1/tenants/demo/channels"),
    ("DELETE", "/api/v1/tenants/demo/channels/default"),
    ("POST", "/api/v1/tenants/demo/channels/default/secret/rotate"),
    ("POST", "/api/v1/tenants/demo/channels/default/pause"),
    ("POST", "/api/v1/tenants/demo/channels/default/resume"),
]


@pytest.mark.parametrize(("method", "url"), ROUTES_WITH_A_KEY)
async def test_every_route_refuses_a_stranger_before_anything_else(world: World, method: str, url: str) -> None:
    before = world.dump()
    for given in ("", "Bearer not-a-key-at-all", "Basic bG9jYWw6ZGVtbw==", "Bearer", "local-demo-key", "Bearer local-demo-key x"):
        headers = {"authorization": given} if given else {}
        answer = await world.nobody.call(method, f"{url}?nonsense=1&tenant=demo", b"\xff not json", headers)
        assert (answer.status, answer.code) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert world.dump() == before


@pytest.mark.parametrize(("method", "url"), ROUTES_WITH_A_KEY)
async def test_every_route_refuses_a_key_without_the_scope(world: World, method: str, url: str) -> None:
    client = world.demo if "/tenants" in url else await world.key("demo", ["fleets"])
    before = world.dump()
    answer = await client.call(method, url, b"\xff not json")
    assert (answer.status, answer.code) == (403, "missing-scope")
    assert world.dump() == before


@pytest.mark.parametrize(("method", "url"), [route for route in ROUTES_WITH_A_KEY if "/tenants" not in route[1]])
async def test_every_route_of_a_tenant_refuses_to_act_for_another(world: World, method: str, url: str) -> None:
    await world.tenant("acme")
    before = world.dump()
    for tenant, status, code in (("acme", 403, "not-your-tenant"), ("nobody", 403, "not-your-tenant"), ("", 403, "not-your-tenant")):
        answer = await world.demo.call(method, f"{url}?tenant={tenant}", GOOD)
        assert (answer.status, answer.code) == (status, code)
    for tenant in ("nobody", "No%20Name", ""):
        answer = await world.admin.call(method, f"{url}?tenant={tenant}", GOOD)
        assert (answer.status, answer.code) == (404, "not-found")
    answer = await world.admin.call(method, url, GOOD)
    assert (answer.status, answer.pointers) == (422, ["?tenant"])
    assert world.dump() == before


def every_verb(url: str) -> list[tuple[str, str, Any]]:
    """Return a call of each kind to an event: method, path and body."""
    return [
        ("GET", url, None),
        ("PATCH", url, {"payload": 1}),
        ("PATCH", url, {"delay": "PT1S"}),
        ("DELETE", url, None),
        ("POST", f"{url}/fire", None),
        ("POST", f"{url}/redrive", None),
    ]


@pytest.mark.parametrize("event_id", ["0123456789abcdef.000", "nobody:knows", "a%00b", "a%0Ab", "%C3%A4", "a" * 201, "a%2Fb", "..", "a b"])
async def test_event_that_is_not_there_is_404_for_every_verb(world: World, event_id: str) -> None:
    url = f"{EVENTS}/{event_id}"
    for method, path, body in every_verb(url):
        before = world.dump()
        answer = await world.demo.call(method, path, body)
        assert (answer.status, answer.code) == (404, "not-found")
        assert world.dump() == before


@pytest.mark.parametrize("chosen", [{}, {"id": "order:17"}])
async def test_another_tenants_event_is_404_for_every_verb(world: World, chosen: dict[str, str]) -> None:
    stranger = await world.tenant("acme")
    made = await world.demo.create(**chosen)
    url = f"{EVENTS}/{made['id']}"
    for method, path, body in every_verb(url):
        assert (await refused(stranger, method, path, body, status=404))[0] == "not-found"
    assert await stranger.all(EVENTS) == []
    assert (await stranger.get("/api/v1/stats")).json()["open"] == 0


QUERIES = [
    ("?limit=0", ["?limit"]),
    ("?limit=1001", ["?limit"]),
    ("?limit=ten", ["?limit"]),
    ("?limit=", ["?limit"]),
    ("?limit=1.0", ["?limit"]),
    ("?limit=-1", ["?limit"]),
    ("?limit=1&limit=2", ["?limit"]),
    ("?cursor=", ["?cursor"]),
    ("?cursor=abc", ["?cursor"]),
    ("?cursor=%00", ["?cursor"]),
    (f"?cursor={'a' * 2049}", ["?cursor"]),
    ("?from=yesterday", ["?from"]),
    ("?from=2030-01-01T00:00:00", ["?from"]),
    ("?to=10000-01-01T00:00:00Z", ["?to"]),
    ("?to=9999-12-31T23:59:59.9999999Z", ["?to"]),
    ("?channel=No", ["?channel"]),
    ("?sort=due", ["?sort"]),
    ("?%ff=1", ["?"]),
    ("?" + "&".join(f"p{number}=1" for number in range(40)), ["?"]),
]


@pytest.mark.parametrize("path", [EVENTS, "/api/v1/dead-letters"])
@pytest.mark.parametrize(("query", "pointers"), QUERIES, ids=[query[:24] for query, _ in QUERIES])
async def test_query_that_is_wrong_is_422_and_points_at_the_parameter(world: World, path: str, query: str, pointers: list[str]) -> None:
    assert await refused(world.demo, "GET", path + query) == ("invalid-content", pointers)


async def test_state_that_does_not_exist_is_422(world: World) -> None:
    assert await refused(world.demo, "GET", f"{EVENTS}?state=moving") == ("invalid-content", ["?state"])
    assert await refused(world.demo, "GET", "/api/v1/dead-letters?state=dead") == ("invalid-content", ["?state"])


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59.999Z"])
async def test_farthest_times_are_taken_by_lists(world: World, time: str) -> None:
    for path in (EVENTS, "/api/v1/dead-letters"):
        assert (await world.demo.get(f"{path}?from={time}")).status == 200
        assert (await world.demo.get(f"{path}?to={time}")).status == 200


@pytest.mark.parametrize("method, url", [route for route in ROUTES_WITH_A_KEY if route[0] != "GET"])
async def test_unknown_parameters_are_422_everywhere(world: World, method: str, url: str) -> None:
    client = world.admin if "/tenants" in url else world.demo
    assert await refused(client, method, f"{url}?quickly=true", GOOD) == ("invalid-content", ["?quickly"])


WRONG_PATCHES: list[tuple[Any, list[str]]] = [
    ({}, [""]),
    ({"due": None}, [""]),
    ({"delay": None}, [""]),
    ({"channel": None}, [""]),
    ({"due": "2030-01-01T00:00:00Z", "delay": "PT1S"}, [""]),
    ({"due": "2030-01-01T00:00:00"}, ["/due"]),
    ({"delay": "-PT1S"}, ["/delay"]),
    ({"channel": "nowhere"}, ["/channel"]),
    ({"id": "other"}, ["/id"]),
    ({"labels": {"a": "b"}}, ["/labels"]),
    ({"retry": {"attempts": 0}}, ["/retry/attempts"]),
    ({"retry": {"attempts": 1, "schedule": ["PT1S"]}}, ["/retry"]),
    ({"timeout": "PT2M"}, ["/timeout"]),
    ({"content_type": "text/xml"}, ["/payload"]),
    ({"content_type": "xml"}, ["/content_type"]),
    ({"target": {"method": "GET"}}, ["/target/method"]),
    ({"state": "delivered"}, ["/state"]),
    ({"expires": "-PT1S"}, ["/expires"]),
    ({"payload": 1, "nope": 1}, ["/nope"]),
    ([], [""]),
]


@pytest.mark.parametrize(("body", "pointers"), WRONG_PATCHES)
async def test_change_that_is_wrong_is_422_and_changes_nothing(world: World, body: Any, pointers: list[str]) -> None:
    made = await world.demo.create()
    assert await refused(world.demo, "PATCH", f"{EVENTS}/{made['id']}", body) == ("invalid-content", pointers)


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"from": "2030-01-01T00:00:00"}, ["/from"]),
        ({"to": 5}, ["/to"]),
        ({"channel": "No"}, ["/channel"]),
        ({"state": "dead"}, ["/state"]),
        ({"from_": "2030-01-01T00:00:00Z"}, ["/from_"]),
        ([], [""]),
    ],
)
async def test_redrive_filter_that_is_wrong_is_422(world: World, body: Any, pointers: list[str]) -> None:
    assert await refused(world.demo, "POST", "/api/v1/dead-letters/redrive", body) == ("invalid-content", pointers)


async def test_nothing_from_the_request_is_echoed(world: World) -> None:
    for body in (
        GOOD | {"delay": "hunter2"},
        GOOD | {"retry": {"attempts": "hunter2"}},
        GOOD | {"channel": "hunter2!"},
        b'{"payload": hunter2}',
        {"payload": "hunter2"},
    ):
        answer = await world.demo.post(EVENTS, body)
        assert answer.status == 422 and b"hunter2" not in answer.body
    answer = await world.demo.call("GET", EVENTS, headers={"authorization": "Bearer hunter2-hunter2"})
    assert answer.status == 401 and b"hunter2" not in answer.body
