"""The numbers of docs/reference/limits.md are those of the code."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel

from shared.checkpoints.rows import MAX_REPLICAS
from shared.core.durations import MAX_DURATION
from shared.core.http1.answer import MAX_ANSWER_BYTES
from shared.core.http1.head import MOST_INFORMATIONAL
from shared.core.settings import MAX_ACCOUNTS, Settings
from shared.delivery.channels.answer_heads import KEPT_BODY, KEPT_FIELDS
from shared.delivery.channels.event_target import MAX_PARAMETER, MAX_PARAMETERS, MAX_PATH, MAX_TOTAL
from shared.delivery.channels.model import MAX_BUS_PAYLOAD, MAX_PAYLOAD, MAX_SILENCE, MAX_SMALL_PAYLOAD, MAX_WORK, HttpChannel
from shared.delivery.channels.rules import MAX_ERROR, MAX_RETRY_AFTER
from shared.delivery.channels.validation import MAX_HEADERS_TOTAL
from shared.delivery.entra.audiences import MAX_AUDIENCE
from shared.delivery.entra.grants import MOST_AUDIENCES, MOST_HOSTS
from shared.delivery.entra.tokens import MOST_TOKENS
from shared.leases.model import MAX_CLAIMS
from shared.leases.protocol.http_servers import MAX_SERVERS
from shared.leases.rows import MAX_PARTITIONS
from shared.leases.rules import MAX_HELD
from shared.leases.service.control.verbs import MAX_INTENTS
from shared.locks.timings import MOST_TTL, MOST_WAIT, MOST_WAITERS
from shared.maintenance.rows import MAX_NODES, MAX_OPEN
from shared.maintenance.story import FIRST_STEPS, LAST_STEPS
from shared.scheduler.bulk.model import MOST_EVENTS, MOST_UNFINISHED
from shared.scheduler.ingest.messages import MAX_PRODUCER_MESSAGE
from shared.scheduler.long_work.call_rates import TENANT_CALLS, WORK_CALLS
from shared.scheduler.long_work.model import MAX_CALL_BYTES
from shared.scheduler.model import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, MOST_CHANNELS, MOST_FANOUT_ID, MOST_LABEL_FILTERS, EventIn
from shared.scheduler.outcomes.callback_events import MOST_LABELS
from shared.scheduler.outcomes.notice_rows import MOST_SUBJECTS, PERIOD
from shared.tenants.model import (
    MOST_AGENTS,
    MOST_FLEETS,
    MOST_LOCKS,
    MOST_PARTITIONS,
    MOST_SCHEDULES,
    MOST_SEARCHABLE,
    MOST_SERVERS,
    Limits,
    Retry,
)
from shared.web.json_spans import MAX_MEMBERS, MAX_OUTSIDE
from shared.web.parsing import MAX_OUTSIDE_CONTAINERS
from tests.paths import ROOT

DAY = 86_400_000


def bound(model: type[BaseModel], field: str, name: str) -> int:
    """Return a bound of a field, as the OpenAPI document has it."""

    def found(schema: Any) -> Any:
        if isinstance(schema, dict):
            return next((each for each in (schema.get(name), *map(found, schema.values())) if isinstance(each, int)), None)
        return next((each for each in map(found, schema) if each is not None), None) if isinstance(schema, list) else None

    value = found(model.model_json_schema()["properties"][field])
    assert isinstance(value, int)
    return value


LIMITS = {
    "payload of an event": MAX_PAYLOAD,
    "members of an event": MAX_MEMBERS,
    "members of an event beside its payload, together": MAX_OUTSIDE,
    "arrays and objects in a large event beside its payload": MAX_OUTSIDE_CONTAINERS,
    "payload of durability `fast`, or to a queue channel": MAX_SMALL_PAYLOAD,
    "payload to a Service Bus channel": MAX_BUS_PAYLOAD,
    "message of a producer to the ingest queue": MAX_PRODUCER_MESSAGE,
    "channels of one fan-out": MOST_CHANNELS,
    "id of a fan-out": MOST_FANOUT_ID,
    "events in one batch": MAX_BATCH_EVENTS,
    "body of one batch": MAX_BATCH_BYTES,
    "labels of an event": bound(EventIn, "labels", "maxProperties"),
    "labels that a callback repeats": MOST_LABELS,
    "time between two notices of one kind": PERIOD // 1000,
    "subjects that a notice names": MOST_SUBJECTS,
    "searchable labels of a tenant": MOST_SEARCHABLE,
    "labels of one filter": MOST_LABEL_FILTERS,
    "events of one bulk job": MOST_EVENTS,
    "bulk jobs of a tenant that have not ended": MOST_UNFINISHED,
    "attempts of a retry policy": bound(Retry, "attempts", "maximum"),
    "any duration": MAX_DURATION // DAY,
    "schedules of a tenant, unless its limits say otherwise": MOST_SCHEDULES,
    "path of an event's target": MAX_PATH,
    "query parameters of a target, and headers of a target": MAX_PARAMETERS,
    "name or value of such a parameter": MAX_PARAMETER,
    "path, names and values of a target together": MAX_TOTAL,
    "audiences of Entra of a tenant, and hosts of each": MOST_AUDIENCES,
    "length of such an audience": MAX_AUDIENCE,
    "tokens of Entra that a process keeps": MOST_TOKENS,
    "headers of a channel": bound(HttpChannel, "headers", "maxProperties"),
    "all headers of a channel": MAX_HEADERS_TOTAL,
    "answer of a receiver that is read": MAX_ANSWER_BYTES,
    "informational (1xx) answers before it": MOST_INFORMATIONAL,
    "stored error of an attempt": MAX_ERROR,
    "stored body of an answer, of each of the last 20 attempts": KEPT_BODY,
    "stored header fields of an answer, if the channel asks": KEPT_FIELDS,
    "honoured `Retry-After`": int(MAX_RETRY_AFTER * 1000) // DAY,
    "silence of a receiver with long work, at most": MAX_SILENCE // 3_600_000,
    "long work of a receiver, with heartbeats": MAX_WORK // DAY,
    "calls a second about one attempt's long work, per process": WORK_CALLS,
    "calls a second about long work of a tenant, per process": TENANT_CALLS,
    "body of a call about long work": MAX_CALL_BYTES,
    "fleets of a tenant, unless its limits say otherwise": MOST_FLEETS,
    "partitions of a fleet": MAX_PARTITIONS,
    "partitions of all fleets of a tenant, unless its limits say otherwise": MOST_PARTITIONS,
    "servers of a fleet over HTTP, unless the tenant's limits say otherwise": MOST_SERVERS,
    "partitions of one server over HTTP": MAX_HELD,
    "claims in one request": MAX_CLAIMS,
    "manual controls of a fleet": MAX_INTENTS,
    "replicas of a fleet": MAX_REPLICAS,
    "locks of a tenant, unless its limits say otherwise": MOST_LOCKS,
    "waiters of a lock": MOST_WAITERS,
    "validity of a grant": MOST_TTL // 1000,
    "time within which a waiter must ask again": MOST_WAIT // 1000,
    "nodes of a fleet with an agent, unless the tenant's limits say otherwise": MOST_AGENTS,
    "open Scheduled Events of a fleet": MAX_OPEN,
    "steps of one node in the story of an event": FIRST_STEPS + LAST_STEPS,
    "further storage accounts for shards": MAX_ACCOUNTS,
    "events of a shard": Settings.model_fields["shard_events"].default,
}
UNCHECKED = {"name of a lock", "ordering key", "pause between attempts", "flexible window"}


def test_the_bounds_of_the_tenants_own_limits_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "reference" / "limits.md").read_text()
    rows = re.findall(r"^\| `limits\.(\w+)` \| .+? \| ([\d,]+) \|$", page, re.MULTILINE)
    found = {name: int(value.replace(",", "")) for name, value in rows}
    assert found == {name: bound(Limits, name, "maximum") for name in ("fleets", "agents", "servers", "partitions", "schedules", "locks")}
    assert (MOST_SERVERS, MOST_AGENTS) == (MAX_SERVERS, MAX_NODES), "the protocols' defaults are the tenants'"


def test_the_limits_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (.+?) \| ([\d,]+)\b.* \|$", (ROOT / "docs" / "reference" / "limits.md").read_text(), re.MULTILINE)
    assert MOST_AUDIENCES == MOST_HOSTS
    documented = {name: int(value.replace(",", "")) for name, value in rows if name not in UNCHECKED and not name.startswith("`limits.")}
    assert documented == LIMITS
