"""`tocsin doctor`: findings about a tenant, and the commands that they name."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.cli.doctor import command
from shared.cli.doctor.tenant import LATE_FROM, TenantReport, examine_all, examine_tenant
from shared.cli.events import jobs
from shared.cli.exits import Exit
from shared.cli.findings import Finding
from shared.core.settings import LOCAL_ADMIN_KEY
from shared.delivery.channels.ports import Verdict
from shared.testing import BlockingTocsin
from shared.testing.kit import KEY

from ..conftest import Command

EVIL = "it's $(reboot) `reboot` \"; reboot #"


@pytest.fixture
def kit() -> Iterator[BlockingTocsin]:
    """An app of this test's own: its tenant has nothing wrong at first."""
    with BlockingTocsin() as running:
        yield running


@pytest.fixture
def admin(tocsin: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command with the admin key, at the time of the app. While it waits, the app works."""
    monkeypatch.setattr(command, "present", lambda: tocsin.kit.now)
    # The app of the kit sweeps when there is something to do, not every minute.
    monkeypatch.setattr(command, "readiness", lambda session: HEALTHY)
    monkeypatch.setattr(jobs, "wait", lambda session: tocsin.kit.advance(seconds=1))
    monkeypatch.setenv("TOCSIN_KEY", LOCAL_ADMIN_KEY)
    settings = {"notices": {"channel": "default", "kinds": ["event.dead"]}}
    tocsin.ok("tenants", "set", "demo", "--settings", json.dumps(settings))
    return tocsin


def examined(command: Command, code: int = Exit.FAILED) -> list[dict[str, Any]]:
    found = command("doctor", "--tenant", "demo", "--json")
    assert found.code == code, found
    return found.documents


def create(command: Command, event_id: str, *options: str, delay: str = "PT1S") -> None:
    command.ok("events", "create", "--delay", delay, "--id", event_id, "--tenant", "demo", *options)


def channel(command: Command, name: str) -> None:
    command.ok("tenants", "channels", "put", "demo", name, "--to", "http://receiver.test/x")


def refused(text: str) -> Verdict:
    return Verdict("final", 400, error=text)


def troubled(command: Command) -> None:
    """Make one of each trouble."""
    receiver = command.kit.receiver
    for name in ("shop", "paused", "slow", "gone", "missing"):
        channel(command, name)
    for number, text in enumerate(("answered 400 Bad Request", "answered 400 Bad Request", EVIL)):
        receiver.script(f"dead-{number}", refused(text), Verdict("delivered", 200))
        create(command, f"dead-{number}", "--channel", "shop")
    receiver.script("-odd", refused("answered 422"), Verdict("delivered", 200))
    command.kit.client_with(LOCAL_ADMIN_KEY, tenant="demo").call("POST", "events", {"id": "-odd", "delay": "PT1S", "payload": None})
    receiver.script("again", Verdict("retry", 503, error="answered 503", retry_after=900.0), Verdict("delivered", 200))
    create(command, "again", "--channel", "slow")
    create(command, "later", delay="PT10S")
    command.kit.advance(seconds=30)
    create(command, "unheard", "--channel", "gone", delay="PT5S")
    command.ok("tenants", "channels", "delete", "demo", "gone", "--yes")
    command.ok("tenants", "channels", "pause", "demo", "paused", "--reason", EVIL)
    create(command, "waiting", "--channel", "paused")
    command.ok("schedules", "put", "lost", "--cron", "0 9 * * *", "--channel", "missing", "--tenant", "demo", "--payload", "{}")
    command.ok("tenants", "channels", "delete", "demo", "missing", "--yes")
    for at in range(4):
        create(command, f"planned-{at}", delay="P1D")
    settings: dict[str, Any] = {"limits": {"open_events": 6, "schedules": 1}}
    command.ok("tenants", "set", "demo", "--settings", json.dumps(settings))
    expires = (command.kit.now + timedelta(minutes=2)).isoformat().replace("+00:00", "Z")
    command.ok("tenants", "keys", "create", "demo", "--scope", "read", "--scope", "events", "--note", EVIL, "--expires", expires)
    command.ok("tenants", "keys", "create", "demo", "--scope", "agent", "--fleet", "web", "--node", "s1", "--expires", expires)
    command.kit.advance(minutes=3)


def test_nothing_is_wrong_with_a_tenant_whose_events_arrive(admin: Command) -> None:
    create(admin, "fine")
    admin.kit.advance(minutes=2)
    found = admin.ok("doctor", "--tenant", "demo")
    assert found.out == "nothing is wrong with demo\n"
    assert examined(admin, Exit.OK) == []


def test_each_trouble_is_found_with_its_cause_and_the_worst_come_first(admin: Command) -> None:
    troubled(admin)
    found = examined(admin)
    assert [each["how"] for each in found] == sorted((each["how"] for each in found), key=lambda how: how != "bad")
    what = [each["what"] for each in found]
    for part in (
        "channel paused is paused since 2027-01-15T08:00:3",
        "2 dead events of channel shop: answered 400 Bad Request",
        f"1 dead event of channel shop: {EVIL}",
        "1 dead event of channel default: answered 422",
        "1 dead event of channel gone: the channel no longer exists",
        "1 event of channel slow waits for a retry: answered 503",
        "limit open_events is reached: 6 of 6",
        "limit schedules is reached: 1 of 1",
        "schedule lost delivers to a channel that does not exist: missing",
        "expired at 2027-01-15T08:02:3",
    ):
        assert [each for each in what if part in each], (part, what)
    assert all(each["means"] and each["do"] for each in found)
    assert len(what) == 11 and sum("expired at" in each for each in what) == 2
    [paused] = [each for each in found if "channel paused" in each["what"]]
    assert paused["what"].endswith(f": {EVIL}") and paused["means"].endswith("1 event waits.")


def test_every_command_of_a_finding_runs_as_it_is_printed(admin: Command) -> None:
    troubled(admin)
    commands = [run for each in examined(admin) for run in each["run"]]
    assert len({*commands}) >= 18
    for run in commands:
        program, *words = shlex.split(run)
        assert program == "tocsin"
        # People are asked; programs are not.
        asks = ["--yes"] if {"redrive", "fire", "revoke"}.intersection(words) else []
        admin.ok(*words, *asks)
        admin.kit.advance(seconds=5)
    admin.kit.advance(minutes=3)
    left = [each["what"] for each in examined(admin) if each["how"] == "bad"]
    assert left == ["1 dead event of channel gone: the channel no longer exists"], "only what needs a new channel is left"


def test_a_terminal_shows_a_block_for_each_finding_with_its_commands(admin: Command) -> None:
    admin.kit.receiver.script("refused", refused("answered 400"))
    create(admin, "refused")
    admin.kit.advance(seconds=90)
    found = admin("doctor", "--tenant", "demo")
    assert found.code == Exit.FAILED
    assert found.lines[0] == "bad: 1 dead event of channel default: answered 400"
    assert found.lines[1].split(maxsplit=1) == ["means", "The receiver refused them, so they were not tried again."]
    assert found.lines[3] == "  tocsin events get --tenant demo refused"
    assert found.lines[4].startswith("  tocsin events redrive --channel default --error 'answered 400' --from 2027-01-15T")


def test_a_key_of_the_tenant_examines_it_as_far_as_it_may_look(admin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    channel(admin, "paused")
    admin.ok("tenants", "channels", "pause", "demo", "paused")
    create(admin, "waiting", "--channel", "paused")
    admin.kit.advance(seconds=60)
    monkeypatch.setenv("TOCSIN_KEY", KEY)
    found = admin("doctor", "--json")
    assert found.code == Exit.FAILED
    assert [each["what"] for each in found.documents] == [
        "channel paused is paused",
        "not examined: limits and notices, channels, keys",
    ]
    assert found.documents[0]["run"] == ["tocsin events list --held --channel paused", "tocsin tenants channels resume demo paused"]
    admin.ok(*shlex.split(found.documents[0]["run"][0])[1:])


def test_an_operator_without_a_tenant_gets_the_tenants_that_need_a_person(admin: Command) -> None:
    admin.ok("tenants", "put", "quiet")
    assert admin.ok("doctor").out == "no tenant needs a person\n"
    admin.kit.receiver.script("refused", refused("answered 400"))
    create(admin, "refused")
    admin.kit.advance(seconds=90)
    found = admin("doctor", "--json")
    assert found.code == Exit.FAILED
    [tenant] = found.documents
    assert tenant["what"] == "tenant demo: 1 dead event" and tenant["run"] == ["tocsin doctor --tenant demo"]


def test_a_tenant_that_does_not_exist_is_refused(admin: Command) -> None:
    found = admin("doctor", "--tenant", "nobody")
    assert found.code == Exit.REFUSED and "There is no such tenant" in found.err


NOW = datetime(2027, 1, 15, 9, tzinfo=UTC)
HEALTHY: dict[str, Any] = {"status": "ready"}
STATS: dict[str, Any] = {"open": 0, "overdue": 0, "stuck": 0, "dead": 0, "retrying": 0, "channels": {}}
NO_LIMITS: dict[str, Any] = {"limits": {"open_events": None}, "notices": {"channel": "a"}}
OPEN = {"breaker": "closed"}


def report(**change: Any) -> TenantReport:
    """A tenant with nothing wrong, but for the change."""
    given: dict[str, Any] = {"name": "shop", "option": ("--tenant", "shop"), "now": NOW, "health": HEALTHY, "denied": {}, "stats": STATS}
    given |= dict.fromkeys(("dead", "retrying", "delivered", "schedules", "fleets", "keys"), ())
    given |= {"tenant": NO_LIMITS, "channels": [{"name": "a", "paused": False, "flow": OPEN}]}
    return TenantReport(**given | change)


def only(**change: Any) -> Finding:
    [found] = examine_tenant(report(**change))
    return found


def test_a_service_that_is_not_ready_and_overdue_events_lead_to_its_status() -> None:
    assert only(health={"status": "not-ready", "detail": "lease_scan is late"}).what == "the app is not ready: lease_scan is late"
    found = only(stats={**STATS, "overdue": 7, "stuck": 2})
    assert (found.how, found.what, found.run) == ("bad", "7 overdue events, 2 of them stuck", ("tocsin status",))
    assert only(stats={**STATS, "incomplete": True}).how == "look"


def test_an_open_breaker_is_bad_and_a_pause_without_events_is_worth_a_look() -> None:
    flow = {"breaker": "open", "since": "2027-01-15T08:00:00.000Z", "failures": 5, "error": "could not connect"}
    found = only(channels=[{"name": "a", "paused": False, "flow": flow}])
    assert (found.how, found.what) == (
        "bad",
        "channel a: circuit breaker open since 2027-01-15T08:00:00.000Z, 5 failures: could not connect",
    )
    assert found.run == ("tocsin tenants channels resume shop a",)
    found = only(channels=[{"name": "a", "paused": False, "flow": flow, "url": "https://shop.example/a?b=c"}])
    moved = "tocsin tenants channels set shop a --to 'https://shop.example/a?b=c'"
    assert found.run == (moved, "tocsin tenants channels resume shop a")
    assert found.do.startswith("Mend the receiver; if it has moved, put its new URL in place of the one below.")
    paused = {"name": "a", "paused": True, "paused_at": "2027-01-15T08:00:00.000Z", "reason": "a move", "flow": OPEN}
    found = only(channels=[paused])
    assert (found.how, found.what) == ("look", "channel a is paused since 2027-01-15T08:00:00.000Z: a move")
    held = {**STATS, "channels": {"a": {"state": "paused", "held": 3}}}
    assert only(channels=[paused], stats=held).means.endswith(" 3 events wait.")


@pytest.mark.parametrize("reason", ["accepted-late", "rate", "concurrency", "storage", "not-taken", "unknown-to-this-release"])
def test_late_events_are_counted_by_the_longest_part_of_their_wait(reason: str) -> None:
    because = [{"reason": "retry", "ms": 1}, {"reason": reason, "ms": 5_000}]
    events = [{"id": f"e{at}", "channel": "a", "late_ms": LATE_FROM + at, "late_because": because} for at in range(3)]
    found = only(delivered=[*events, {"id": "punctual", "late_ms": LATE_FROM - 1}, {"id": "x", "late_ms": None}])
    assert found.what.startswith("3 events of the last hour came late, at most by 1.0 s: ") and found.what.endswith(reason)
    assert found.run[0] == "tocsin events get --tenant shop e2"


@pytest.mark.parametrize(
    ("limit", "count", "how"), [(10, 8, None), (10, 9, "look"), (10, 10, "bad"), (10, 12, "bad"), (None, 12, None), (0, 0, None)]
)
def test_a_limit_is_a_finding_from_nine_tenths(limit: int | None, count: int, how: str | None) -> None:
    found = examine_tenant(report(tenant={**NO_LIMITS, "limits": {"open_events": limit}}, stats={**STATS, "open": count}))
    assert [each.how for each in found] == ([how] if how else [])
    if how:
        assert found[0].run == ("""tocsin tenants set shop --settings '{"limits": {"open_events": 20}}'""",)


def test_notices_need_a_channel_that_exists() -> None:
    found = only(tenant={**NO_LIMITS, "notices": {"channel": "gone"}})
    assert (found.how, found.run) == ("bad", ("""tocsin tenants set shop --settings '{"notices": {"channel": "a"}}'""",))
    assert only(tenant={**NO_LIMITS, "notices": {"channel": "gone"}}, channels=()).run[0].endswith("""'{"notices": null}'""")
    assert only(tenant={"limits": {}}).what == "the tenant has no notices"
    assert examine_tenant(report(tenant={"limits": {}}, channels=())) == []


@pytest.mark.parametrize(
    "blocked",
    [{"paused": True, "flow": OPEN}, {"paused": False, "flow": {"breaker": "open", "since": "2027-01-15T08:59:00Z", "failures": 9}}],
)
@pytest.mark.parametrize("notices", [None, {"channel": "gone"}])
def test_a_channel_for_notices_is_proposed_among_those_that_deliver(blocked: dict[str, Any], notices: dict[str, Any] | None) -> None:
    channels = [{"name": "blocked"} | blocked, {"name": "works", "paused": False, "flow": OPEN}]
    found = examine_tenant(report(tenant=NO_LIMITS | {"notices": notices}, channels=channels))
    [proposed] = [each.run[0] for each in found if "notices" in each.what]
    assert '{"channel": "works"' in proposed


@pytest.mark.parametrize("failing", ["dead", "retrying"])
def test_a_channel_whose_events_fail_is_not_proposed_for_notices(failing: str) -> None:
    channels = [{"name": name, "paused": False, "flow": OPEN} for name in ("fails", "works")]
    event = {"id": "e", "channel": "fails", "due": "2027-01-15T08:00:00Z", "error": "answered 503 Service Unavailable"}
    found = examine_tenant(report(tenant=NO_LIMITS | {"notices": None}, channels=channels, **{failing: [event]}))
    [proposed] = [each.run[0] for each in found if "notices" in each.what]
    assert '{"channel": "works"' in proposed


def test_a_key_is_a_finding_from_a_week_before_its_end() -> None:
    def ending(**after: int) -> list[Finding]:
        key = {"prefix": "tsn_a", "scopes": ["agent"], "fleet": "web", "node": "s1", "note": "it's s1's", "last_used": "2027-01-14"}
        return examine_tenant(report(keys=[{**key, "expires": (NOW + timedelta(**after)).isoformat()}]))

    assert ending(days=8) == []
    [soon] = ending(days=6)
    create = """tocsin tenants keys create shop --scope agent --fleet web --node s1 --note 'it'"'"'s s1'"'"'s'"""
    assert soon.run == (create,) and " expires at " in soon.what
    [past] = ending(seconds=-1)
    assert past.run == (create, "tocsin tenants keys revoke shop tsn_a") and "last used on 2027-01-14" in past.means


def test_missed_schedules_and_fleets_in_need_are_found() -> None:
    schedule = {"id": "nightly", "channel": "a", "paused": False, "next": "2027-01-15T08:00:00.000Z", "missed": "2027-01-15T08:00:00.000Z"}
    assert only(schedules=[schedule]).what == "1 schedule missed an occurrence, nightly first, since 2027-01-15T08:00:00.000Z"
    needs = [{"source": "leases", "text": "1 silent server"}, {"source": "approvals", "text": "2 approvals waiting"}]
    found = only(fleets=[{"fleet": "web", "urgency": "urgent", "needs": needs}])
    assert (found.how, found.what) == ("bad", "fleet web: 1 silent server, 2 approvals waiting")
    assert found.run == ("tocsin leases doctor web --tenant shop", "tocsin maintenance list web --tenant shop")


def test_events_that_failed_are_found_by_the_printable_part_of_their_error_and_their_receiver_by_its_url() -> None:
    channels = [{"name": "a", "paused": False, "flow": OPEN, "url": "https://shop.example/hook"}]
    moved = "tocsin tenants channels set shop a --to https://shop.example/hook"
    for error, part in (
        ("\x1b[31mno\u2028 answer in time\r\n", "--error 'answer in time'"),
        ("could not connect", "--error 'could not connect'"),
        ("\x1b\x07 ", ""),
    ):
        event = {"id": "d", "channel": "a", "error": error, "due": "2027-01-15T08:00:00.000Z"}
        dead = only(dead=[event], stats={**STATS, "dead": 1}, channels=channels)
        wanted = f"tocsin events redrive --channel a {part} --from 2027-01-15T08:00:00.000Z --tenant shop".replace("  ", " ")
        assert dead.run == ("tocsin events get --tenant shop d", moved, wanted)
    retried = only(retrying=[{"id": "r", "channel": "a", "error": "answered 503", "due": "2027-01-15T08:00:00.000Z"}], channels=channels)
    assert retried.run[0] == moved


def test_causes_beyond_the_first_ten_are_counted() -> None:
    dead = [{"id": f"d{at}", "channel": "a", "error": f"error {at}", "due": "2027-01-15T08:00:00.000Z"} for at in range(12)]
    found = examine_tenant(report(dead=dead, stats={**STATS, "dead": 5_012}))
    assert len(found) == 11 and found[-1].what == "5,002 more dead events"


def test_what_the_key_may_not_see_is_named_by_reason() -> None:
    denied = {"channels": "the key lacks the scope admin", "keys": "the key lacks the scope admin"}
    assert only(denied=denied, tenant=None, channels=None, keys=None).what == "not examined: channels, keys"


def test_tenants_of_the_overview_are_findings_by_their_urgency() -> None:
    quiet = dict.fromkeys(("stuck", "overdue", "dead", "blocked_channels", "fleets"), 0)
    found = examine_all(
        [
            {**quiet, "tenant": "a", "urgency": "urgent", "stuck": 1, "overdue": 3},
            {**quiet, "tenant": "b", "urgency": "later", "fleets": 2},
            {**quiet, "tenant": "c", "urgency": "soon", "dead": 1, "blocked_channels": 2},
            {**quiet, "tenant": "d", "urgency": "none"},
        ]
    )
    assert [(each.how, each.what) for each in found] == [
        ("bad", "tenant a: 1 stuck event, 3 overdue events"),
        ("bad", "tenant c: 1 dead event, 2 blocked channels"),
        ("look", "tenant b: 2 fleets that need a person"),
    ]
