"""Writes docs/reference/limits.md from the constants of the code: `python -m devhost.pages.limits`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from shared.checkpoints.rows import MAX_REPLICAS
from shared.core.durations import MAX_DURATION
from shared.core.event_loop import MOST_STEP
from shared.core.http1.answer import MAX_ANSWER_BYTES
from shared.core.settings import MAX_ACCOUNTS, Settings
from shared.delivery.channels.answer_heads import KEPT_BODY, KEPT_FIELDS
from shared.delivery.channels.event_target import MAX_PARAMETER, MAX_PARAMETERS, MAX_PATH, MAX_TOTAL
from shared.delivery.channels.model import MAX_BUS_PAYLOAD, MAX_PAYLOAD, MAX_SILENCE, MAX_SMALL_PAYLOAD, MAX_WORK, FleetChannel, HttpChannel
from shared.delivery.channels.rules import MAX_ERROR, MAX_RETRY_AFTER
from shared.delivery.channels.validation import MAX_HEADERS_TOTAL
from shared.delivery.entra.grants import MOST_AUDIENCES
from shared.delivery.fleet_owners import MOST_STALE, OWNER_WAIT
from shared.leases.model import MAX_CLAIMS
from shared.leases.rows import MAX_PARTITIONS
from shared.leases.rules import MAX_HELD
from shared.leases.service.control.verbs import MAX_INTENTS
from shared.locks.timings import MOST_TTL, MOST_WAIT, MOST_WAITERS
from shared.maintenance.rows import MAX_OPEN
from shared.maintenance.story import FIRST_STEPS, LAST_STEPS
from shared.scheduler.bulk.model import MOST_EVENTS, MOST_UNFINISHED
from shared.scheduler.ingest.admission import STORE_FOR
from shared.scheduler.ingest.messages import MAX_PRODUCER_MESSAGE
from shared.scheduler.ingest.shard_filler import FILED_TOGETHER
from shared.scheduler.model import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, MOST_CHANNELS, MOST_FANOUT_ID, MOST_LABEL_FILTERS, EventIn
from shared.scheduler.outcomes.callbacks import MOST_LABELS
from shared.scheduler.outcomes.notices import MOST_SUBJECTS, PERIOD
from shared.scheduler.recurring.timing import MOST_DAYS, MOST_YEARS
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
from shared.web.parsing import MAX_DEPTH

from .generated_blocks import REFERENCE

PAGE = REFERENCE / "limits.md"
DAY = 86_400_000


class LimitRow(NamedTuple):
    """A row of the page: what is limited, the most that is accepted, and its unit."""

    about: str
    most: int
    unit: str = ""


def bound(model: type[BaseModel], field: str, name: str) -> int:
    """Return a bound of a field, as the OpenAPI document has it."""

    def found(schema: Any) -> Any:
        if isinstance(schema, dict):
            return next((each for each in (schema.get(name), *map(found, schema.values())) if isinstance(each, int)), None)
        return next((each for each in map(found, schema) if each is not None), None) if isinstance(schema, list) else None

    value = found(model.model_json_schema()["properties"][field])
    assert isinstance(value, int)
    return value


SECTIONS: Final[Mapping[str, tuple[LimitRow, ...]]] = {
    "Events: maximum size, delay and number": (
        LimitRow("payload of an event", MAX_PAYLOAD, "bytes"),
        LimitRow("members of an event", MAX_MEMBERS),
        LimitRow("levels of arrays and objects in a body or payload", MAX_DEPTH),
        LimitRow("an event without its payload", MAX_OUTSIDE, "bytes"),
        LimitRow("payload of durability `fast`, or to a queue channel", MAX_SMALL_PAYLOAD, "bytes"),
        LimitRow("payload to a Service Bus channel", MAX_BUS_PAYLOAD, "bytes"),
        LimitRow("message of a producer to the ingest queue", MAX_PRODUCER_MESSAGE, "bytes"),
        LimitRow("channels of one fan-out", MOST_CHANNELS),
        LimitRow("id of a fan-out", MOST_FANOUT_ID, "characters"),
        LimitRow("events in one batch", MAX_BATCH_EVENTS),
        LimitRow("body of one batch", MAX_BATCH_BYTES, "bytes; 4,000,000 on an instance of 512 MB, as `GET /limits` shows"),
        LimitRow("labels of an event", bound(EventIn, "labels", "maxProperties")),
        LimitRow("labels that a callback repeats", MOST_LABELS, "bytes as JSON"),
        LimitRow("time between two notices of one kind", PERIOD // 1000, "seconds"),
        LimitRow("subjects that a notice names", MOST_SUBJECTS),
        LimitRow("searchable labels of a tenant", MOST_SEARCHABLE),
        LimitRow("labels of one filter", MOST_LABEL_FILTERS),
        LimitRow("events of one bulk job", MOST_EVENTS),
        LimitRow("bulk jobs of a tenant that have not ended", MOST_UNFINISHED),
        LimitRow("ordering key", 128, "characters"),
        LimitRow("attempts of a retry policy", bound(Retry, "attempts", "maximum")),
        LimitRow("pause between attempts", 7, "days"),
        LimitRow("flexible window", 30, "days"),
        LimitRow("delay of an event, and any other duration", MAX_DURATION // DAY, "days"),
        LimitRow("schedules of a tenant by default", MOST_SCHEDULES),
        LimitRow("search for a schedule's next occurrence", MOST_YEARS, "years"),
        LimitRow("days that this search looks at, in the months of a cron expression", MOST_DAYS),
    ),
    "Deliveries": (
        LimitRow("path of an event's target", MAX_PATH, "characters"),
        LimitRow("query parameters of a target, and headers of a target", MAX_PARAMETERS),
        LimitRow("name or value of such a parameter", MAX_PARAMETER, "characters"),
        LimitRow("path, names and values of a target together", MAX_TOTAL, "bytes"),
        LimitRow("audiences of Entra of a tenant, and hosts of each", MOST_AUDIENCES),
        LimitRow("headers of a channel", bound(HttpChannel, "headers", "maxProperties")),
        LimitRow("all headers of a channel", MAX_HEADERS_TOTAL, "bytes"),
        LimitRow("answer of a receiver that is read", MAX_ANSWER_BYTES, "bytes"),
        LimitRow("stored error of an attempt", MAX_ERROR, "characters"),
        LimitRow("stored body of an answer", KEPT_BODY, "bytes"),
        LimitRow("stored header fields of an answer", KEPT_FIELDS, "characters"),
        LimitRow("honoured `Retry-After`, while all attempts that are left still fit", int(MAX_RETRY_AFTER * 1000) // DAY, "days"),
        LimitRow("wait for the owner of a fleet channel's partition", OWNER_WAIT // 1000, "seconds"),
        LimitRow("stale answers (421) to one event that are no failed attempts", MOST_STALE),
        LimitRow("path of a fleet channel", bound(FleetChannel, "path", "maxLength"), "characters"),
        LimitRow("silence of a receiver with long work, at most", MAX_SILENCE // 3_600_000, "hours"),
        LimitRow("long work of a receiver, with heartbeats", MAX_WORK // DAY, "days"),
    ),
    "Fleets": (
        LimitRow("fleets of a tenant by default", MOST_FLEETS),
        LimitRow("partitions of a fleet", MAX_PARTITIONS),
        LimitRow("partitions of all fleets of a tenant, by default", MOST_PARTITIONS),
        LimitRow("servers of a fleet over HTTP by default", MOST_SERVERS),
        LimitRow("partitions of one server over HTTP", MAX_HELD),
        LimitRow("claims in one request", MAX_CLAIMS),
        LimitRow("manual controls of a fleet", MAX_INTENTS),
        LimitRow("replicas of a fleet", MAX_REPLICAS),
        LimitRow("nodes of a fleet with an agent by default", MOST_AGENTS),
        LimitRow("open Scheduled Events of a fleet", MAX_OPEN),
        LimitRow("steps of one node in the story of an event", FIRST_STEPS + LAST_STEPS),
    ),
    "Locks": (
        LimitRow("locks of a tenant by default", MOST_LOCKS),
        LimitRow("waiters of a lock", MOST_WAITERS),
        LimitRow("validity of a grant", MOST_TTL // 1000, "s (at least 2 s)"),
        LimitRow("time within which a waiter must ask again", MOST_WAIT // 1000, "s (at least 2 s)"),
        LimitRow("name of a lock", 100, "characters"),
    ),
    "Storage": (
        LimitRow("further storage accounts for shards", MAX_ACCOUNTS),
        LimitRow("events of a shard", Settings.model_fields["shard_events"].default),
    ),
}

REFUSALS: Final = {
    "fleets": "409 `too-many-fleets`",
    "agents": "409 `too-many-nodes`, to the first report of a node",
    "servers": "409 `too-many-servers`, to the first heartbeat of a server over HTTP",
    "partitions": "409 `too-many-partitions`",
    "schedules": "429 `too-many-requests`",
    "locks": "429 `too-many-requests`, to the first request for a new lock",
}
"""LimitRow of a tenant with a highest value -> the answer beyond it."""

_HEAD = """# Limits

Look up here the most that Tocsin accepts; a request beyond a limit is refused with an error that names it.
Tenants can have [lower limits](api.md#tenants).
`GET /limits` (scope `events`) answers the largest batch, event and payload.
`make reference` generates the page from the code.
"""

_COST = (
    f"- CPU of the largest batch: 1 to 8 s, in steps of at most {1000 * MOST_STEP:.0f} ms\n"
    f"- transactions of a batch: one for each 99 events of the same minute, one for each {FILED_TOGETHER} minutes, one for each id\n"
    f"- time in which a batch stores events: {STORE_FOR:.0f} s; later ones are answered `batch-unfinished`\n"
)

_RAISE = """
## Raise a tenant's limits

An operator sets these limits for each tenant; one that is lower than what exists refuses only what is new.
`limits.open_events` is exact in a process; processes that take a burst at once let in the limit each (measured: two, limit 10, 20 open).
Events of `fast` count once stored.

| field of the tenant | refused with | highest value |
| --- | --- | --- |
"""

_HOW = """
```sh
tocsin tenants set shop --settings '{"limits": {"fleets": 300, "agents": 500, "partitions": 100000}}'
```

A new limit of agents or servers holds on all instances within 5 seconds, the others at once.
"""

_TAIL = """
Limits that are not numbers: [leases](../explain/leases.md#limits), [checkpoints](checkpoints.md#limits),
[mirrored events](../explain/durability.md#costs-and-limits), [security](../explain/security.md#threats-without-a-defence).
"""


def page() -> str:
    """Return the whole page."""
    written = [_HEAD]
    for name, limits in SECTIONS.items():
        written.append(f"\n## {name}\n\n")
        written += [f"- {each.about}: {each.most:,}{each.unit and ' '}{each.unit}\n" for each in limits]
        if name.startswith("Events"):
            written.append(_COST)
        if name == "Locks":
            rows = [f"| `limits.{field}` | {answer} | {bound(Limits, field, 'maximum'):,} |\n" for field, answer in REFUSALS.items()]
            written += [_RAISE, *rows, _HOW]
    return "".join([*written, _TAIL])


if __name__ == "__main__":
    PAGE.write_text(page())
