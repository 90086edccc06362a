"""One value or more of every kind that is stored, with the functions that encode it as a row's properties and parse them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import orjson

from shared.core.errors import Problem
from shared.delivery import circuit_breaker
from shared.delivery.channels.model import FleetChannel, HttpChannel, KeyLimits, QueueChannel, ServiceBusChannel
from shared.delivery.circuit_breaker import Breaker
from shared.delivery.flow import shared_limits
from shared.delivery.flow.rules import SlotShare
from shared.engine.stored_forms import FormsRow, number_of
from shared.scheduler.bulk import rows as bulk_rows
from shared.scheduler.facets.fanouts import fanned_out
from shared.scheduler.facets.finding import held_props, mark_of, pack_held
from shared.scheduler.ingest import rejects
from shared.scheduler.key_lines.rules import LineState, Turn, parse_line
from shared.scheduler.model import EventIn
from shared.scheduler.outcomes.notices import NoticeRow, parse_notice
from shared.scheduler.properties.work_rows import WORK, Work, noted_work
from shared.scheduler.protocol.mirroring import Fence, parse_fence
from shared.scheduler.queries import label_index, totals
from shared.scheduler.recurring.definition import Definition, RevisionUndo, definition_of
from shared.scheduler.recurring.model import CatchUp, Recurrence
from shared.scheduler.rows import new_event, withdrawn
from shared.scheduler.rules import claim_props
from shared.scheduler.shard import ledger
from shared.scheduler.shard.gate import Counts, Gate, parse_gate
from shared.scheduler.wakes.rules import PLAN, Plan
from shared.scheduler.wakes.service import TIMES, SweepTimes
from shared.storage.ports import Props, Row
from shared.tenants import channel_store
from shared.tenants import rows as tenant_rows
from shared.tenants.channel_store import StoredChannel
from shared.tenants.model import Tenant
from shared.tenants.rows import Home, KeyRow
from shared.tenants.rules import Generations

from .case import NOW, Case, as_is, props_of, row_of
from .fleet_cases import fleet_cases


def cases() -> list[Case]:
    """Return all cases; their names are unique."""
    return [*fleet_cases(), *_scheduler(), *_tenants(), *_delivery()]


def _scheduler() -> list[Case]:
    body = b'{"a":"\xc3\xa9","n":1.50}'
    full = EventIn(
        id="mine",
        delay="PT5S",
        payload=None,
        channel="c",
        expires="PT1H",
        flex="PT1M",
        retry={"attempts": 3, "first": "PT2S"},
        timeout="PT45S",
        content_type="text/xml",
        labels={"team": "a"},
    )
    keyed = EventIn(due="2026-11-21T10:21:55.255Z", payload=None, ordering_key="customer 7 é")
    fanned = fanned_out(new_event(full, body, NOW, "mirrored", NOW - 5, 1_234), "mine", ["audit", "c"])
    work = Work(2, 3, "c0" * 32, NOW - 40, 900_000, NOW + 43_200_000)
    target = {"path": "/orders/17", "query": {"a": "é"}, "method": "PUT", "headers": {"X-A": "b"}}
    aimed = EventIn(due="2026-11-21T10:21:55.255Z", payload=None, target=target)
    bodiless = EventIn(due="2026-11-21T10:21:55.255Z", target={"method": "GET"})
    calls = {"on_delivered": "audit", "on_dead": "alarms"}
    job = bulk_rows.BulkJob("move", '{"labels":{"order":"17"}}', NOW, by=-3_600_000)
    running = replace(job, state="running", started=NOW + 9, count=17, numbers=2, at=1, offset=5, done=7, confirmation="17-abc")
    searched = label_index.LabelProgress(f"order={NOW}", began=NOW + 300_000, phase="ledger", key="202611211021:5f-0a1-acme")
    noticed = NoticeRow(3, NOW - 9, NOW, {"default": (3, NOW, "é")}, '{"count":1}', 7, NOW - 5, True, {"open_events": NOW})
    definition = Definition("acme", "nightly", "u1", Recurrence(cron="30 2 * * *"), body, NOW, "nonce", NOW - 250)
    everything = Definition(
        tenant="acme",
        id="nightly",
        uid="u1",
        spec=Recurrence(
            every="PT1H",
            jitter="PT5M",
            start="2026-11-21T10:00:00Z",
            catch_up=CatchUp(policy="all"),
            channel="c",
            retry={"schedule": ["PT1M"], "within": "PT1H"},
            timeout="PT45S",
            content_type="text/xml",
        ),
        body=b'"' + b"x" * 20_000 + b'"',
        created=NOW,
        by="nonce",
        done=NOW - 250,
        revision=3,
        paused=True,
        deleted=True,
        burnt=NOW - 1250,
        ahead=(1_795_256_516_000, 1_795_256_517_000),
        taken=(1_795_256_514_000,),
        last=1_795_256_513_000,
        undo=RevisionUndo(2, NOW - 250, (1_795_256_516_000,), True),
        pointer="n:202611211022:acme:nightly",
        api="bigben",
        stamps=(("eventId", "UNIX/{at}"),),
    )

    several = Recurrence(every="PT1H", start="2026-11-21T10:00:00Z", channels=["a", "b"])
    to_several = replace(everything, spec=several, undo=RevisionUndo(2, NOW - 250, (1_795_256_516_000,), True, ("a", "c")))
    paused = replace(everything, deleted=False, paused_at=NOW - 5000, gaps=((NOW - 9000, NOW - 100), (NOW - 50, NOW + 1)))

    def parse(props: Props) -> Definition:
        return definition_of(Row("00", "d:acme:nightly", props, "", 0, 0))

    return [
        Case("event", new_event(EventIn(due="2026-11-21T10:21:55.255Z", payload=None), body, NOW).props, as_is),
        Case("event with everything set", new_event(full, body, NOW, "mirrored", NOW - 100, 30).props, as_is),
        Case("first event of a fan-out", fanned[0].props, as_is),
        Case("another event of a fan-out", fanned[1].props, as_is),
        Case("event with an ordering key", new_event(keyed, body, NOW).props, as_is),
        Case("event with a target", new_event(aimed, body, NOW).props, as_is),
        Case("event without a payload", new_event(bodiless, b"", NOW).props, as_is),
        Case("event with callbacks", new_event(EventIn(due="2026-11-21T10:21:55.255Z", payload=None, **calls), body, NOW).props, as_is),
        Case("schedule with callbacks", replace(definition, spec=Recurrence(cron="30 2 * * *", **calls)), props_of, parse),
        Case("event of two chunks", new_event(full, b'"' + b"y" * 16_500 + b'"', NOW).props, as_is),
        Case("cancelled event that was not stored yet", withdrawn("mine", NOW - 5, NOW + 5, NOW, "nonce").props, as_is),
        Case("claim of an event", claim_props({"state": "scheduled", "due": NOW}, 7), as_is),
        Case("claim of an event that was tried", claim_props({"state": "retrying", "due": NOW, "tries": 2, "next": NOW}, 7), as_is),
        Case("notices of a kind", noticed, props_of, parse_notice),
        Case("bulk job", job, bulk_rows.CODEC.encode, bulk_rows.CODEC.decode),
        Case("bulk job that runs", running, bulk_rows.CODEC.encode, bulk_rows.CODEC.decode),
        Case("work of a receiver", work, lambda each: {WORK: each.text()}, noted_work),
        Case("work that has ended", work._replace(beats=2, beat=NOW + 5, end="silent"), lambda each: {WORK: each.text()}, noted_work),
        Case("counted events", None, lambda _: bulk_rows.counted_props("5f-0a1-acme", ["e000", "e017"])),
        Case("pass for searchable labels", searched, label_index.PROGRESS.encode, label_index.PROGRESS.decode),
        Case("mark of searchable labels", None, lambda _: mark_of('{"team":"a","order":"17"}', ["order", "team"])),
        Case(
            "plan of wakes",
            Plan(NOW - 9, NOW - 7, (NOW + 5, NOW + 22_005), "wwc", NOW + 86_400_000, NOW + 80_000_000),
            PLAN.encode,
            PLAN.decode,
        ),
        Case("plan without wakes", Plan(), PLAN.encode, PLAN.decode),
        Case("sweep times", SweepTimes(NOW, NOW - 5, NOW - 4), TIMES.encode, TIMES.decode),
        Case("stored forms", FormsRow(1), props_of, lambda props: FormsRow(number_of(row_of("stored-forms", props)) or 0)),
        Case("gate", Gate("open", "w1"), props_of, parse_gate),
        Case(
            "gate with everything set",
            Gate("owned", "o1", 7, 1234, "i:1", "202611211022", Counts(9, 1, 2, 3, 1, 1, 1)),
            props_of,
            parse_gate,
        ),
        Case("gate of an owner with a process", Gate("owned", "o1", 7, process="o1 0123456789abcdef 4711 1989831"), props_of, parse_gate),
        Case("gate of a shard with a held row", Gate("resting", "o1", 7, beside="7 0123456789ab"), props_of, parse_gate),
        Case("held row", held_props(pack_held({"a": [NOW - 5, NOW, NOW + 1], "b": [NOW]}, NOW), "202611211022", 7), as_is),
        Case("fence of the mirror", Fence(), props_of, lambda props: parse_fence(row_of("mirror", props))),
        Case(
            "fence of the mirror with everything set",
            Fence("second", 7, True),
            props_of,
            lambda props: parse_fence(row_of("mirror", props)),
        ),
        Case("schedule", definition, props_of, parse),
        Case("schedule with everything set", everything, props_of, parse),
        Case("paused schedule with gaps", paused, props_of, parse),
        Case(
            "totals of a tenant",
            totals._TotalRow(Counts(9, 4, 1, 2, 1, 1, 0), {"a": ledger.DeliveryFigures({3: 4}, 9, 20, 2)}, ["n:1", "n:2"]),
            totals._TOTAL.encode,
            totals._TOTAL.decode,
        ),
        Case("chain of a new schedule", definition.chain_props(), as_is),
        Case("schedule with channels", to_several, props_of, parse),
        Case("chain of a schedule", everything.chain_props(), as_is),
        Case(
            "ledger entry",
            ledger.entry_for(
                [
                    row_of("e1", {"state": "delivered", "channel": "a", "late": 7}),
                    row_of("e2", {"state": "delivered", "channel": "a"}),
                    row_of("e3", {"state": "dead", "channel": "b"}),
                    row_of("e4", {"state": "cancelled", "channel": "b"}),
                ],
                NOW,
            ),
            as_is,
        ),
        Case(
            "rejected message",
            rejects._props("queue", rejects.RefusedMessage(Problem(422, "invalid", "no"), "te\0xt" * 9000, "s" * 300, NOW), NOW + 1),
            as_is,
        ),
    ]


def _tenants() -> list[Case]:
    http = HttpChannel(type="http", url="https://a.example/b", headers={"x": "y"}).model_copy(update={"timeout": 5000})
    channel = StoredChannel("c", "u1", http, NOW, Generations(NOW), False, "")
    broken = Breaker("half-open", NOW, NOW + 1, 2, 3, "i1", "status 500")
    everything = StoredChannel("c", "u1", http, NOW, Generations(NOW, NOW + 1, NOW - 1, NOW + 2), True, "why", NOW + 3, broken)
    tenant = {"durability": "fast", "limits": {"open_events": 9}, "retry": {"schedule": ["PT1S", "PT1M"], "within": "PT1H"}}
    notices = {"channel": "ops", "kinds": ["event.dead", "breaker.opened"]}
    lookup = KeyRow("acme", "u1", "tsn_ab12", ("events", "fleets"), NOW)
    keys = {"key": lookup, "key of a node in the list": lookup._replace(scopes=("agent",), fleet="f", node="n", digest="00ff", note="why")}
    per_key = KeyLimits(ordered=True, failed_blocks=False)
    rules = [{"audience": "api://orders", "hosts": ["orders.example.com", "*.eu.orders.example.com"]}]
    bearer = channel._replace(spec=http.model_copy(update={"entra_audience": "api://orders"}))
    keyed = channel._replace(spec=http.model_copy(update={"per_key": per_key, "answers": "all"}))
    queue = StoredChannel("c", "u1", QueueChannel(type="queue", queue="mine"), NOW, Generations(), False, "")
    certified = channel._replace(spec=http.model_copy(update={"client_certificate": "bank"}))
    owners = FleetChannel(type="fleet", fleet="search", path="/events", headers={"x": "y"})
    bus = ServiceBusChannel(type="servicebus", namespace="a.servicebus.windows.net", entity="b/c", sessions=True, key_name="d", key="e")

    def parse(props: Props) -> StoredChannel:
        return channel_store._stored(row_of("channel:c", props))

    return [
        *(
            Case(name, value, props_of, lambda props: tenant_rows.home_of(row_of("acme", props)))
            for name, value in {
                "tenant": Home("acme", "u1", Tenant(), NOW, ""),
                "tenant with notices": Home("acme", "u1", Tenant.model_validate({"notices": notices}), NOW, ""),
                "tenant with audiences of Entra": Home("acme", "u1", Tenant.model_validate({"entra_audiences": rules}), NOW, ""),
                "tenant that searches by labels": Home(
                    "acme", "u1", Tenant(searchable=["order", "team"]), NOW, "", declared=f"order={NOW},team={NOW + 9}"
                ),
                "tenant that has gone": Home("acme", "u1", Tenant.model_validate(tenant), NOW, "", True, True),
            }.items()
        ),
        *(Case(name, value, props_of, lambda props: tenant_rows.key_of(row_of("k", props))) for name, value in keys.items()),
        Case("channel with limits per key", keyed, props_of, parse),
        Case("channel", channel, props_of, parse),
        Case("channel with an audience of Entra", bearer, props_of, parse),
        Case("channel with everything set", everything, props_of, parse),
        Case("queue channel", queue, props_of, parse),
        Case("channel with a client certificate", certified, props_of, parse),
        Case("fleet channel", channel._replace(spec=owners), props_of, parse),
        Case("service bus channel", queue._replace(spec=bus), props_of, parse),
    ]


def _delivery() -> list[Case]:
    parts = {"i1": SlotShare(1, 2, NOW), "i2": SlotShare(0, 0, NOW + 1)}
    opened = Breaker("open", NOW, NOW + 1, 2, 3, "", "status 500")
    return [
        Case(
            "parts of a shared limit", parts, lambda v: {"parts": shared_limits._text(v)}, lambda p: shared_limits._parse(str(p["parts"]))
        ),
        Case(
            "no parts of a shared limit", {}, lambda v: {"parts": shared_limits._text(v)}, lambda p: shared_limits._parse(str(p["parts"]))
        ),
        Case("line of an ordering key", LineState((Turn("00001:x", "00-a-t/e000", 3, NOW),), NOW + 1), props_of, parse_line),
        Case("circuit breaker", opened, lambda v: {"breaker": v.text()}, lambda p: circuit_breaker.parse(str(p["breaker"]))),
        Case("closed circuit breaker", Breaker(), lambda v: {"breaker": v.text()}, lambda p: circuit_breaker.parse(str(p["breaker"]))),
        Case("figures of channels", ledger.pack({"a": ledger.DeliveryFigures({3: 4, 1: 2}, 9, 20, 1)}), lambda text: {"late": text}, None),
        Case("counts of alarms", orjson.dumps(Counter(late=2), option=orjson.OPT_SORT_KEYS).decode(), lambda text: {"alarms": text}, None),
    ]
