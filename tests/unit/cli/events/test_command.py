"""`tocsin events` and `tocsin schedules`."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from shared.cli import session
from shared.cli.events import following, options
from shared.cli.exits import Exit
from shared.cli.session import CommandSession
from shared.core.settings import LOCAL_ADMIN_KEY
from shared.delivery.channels.answer_heads import AnswerHead
from shared.delivery.channels.ports import Verdict
from shared.scheduler.model import EventState
from shared.testing.kit import TENANT
from tests.texts import assert_text

from ..conftest import Command


def test_event_is_created_looked_up_listed_and_cancelled(tocsin: Command) -> None:
    made = tocsin.ok("events", "create", "--delay", "PT1H", "--payload", '{"order": 17}', "--id", "one", "--label", "team=blue")
    assert made.out.startswith("one is scheduled, due ")
    shown = tocsin.ok("events", "get", "one").out
    assert 'payload  {"order":17}' in shown and 'labels   {"team":"blue"}' in shown and shown.endswith("attempts\n  none\n")
    assert tocsin.ok("events", "list").row("one")[2:4] == ["scheduled", "default"]
    assert tocsin.ok("events", "change", "one", "--delay", "PT2H").out.startswith("one is scheduled, due ")
    assert tocsin.ok("events", "cancel", "one").out == "one is cancelled\n"
    [found] = tocsin.ok("events", "get", "one", "--json").documents
    assert found["state"] == "cancelled" and found["payload"] == {"order": 17}


def test_the_list_says_why_an_event_is_retried_or_held(tocsin: Command) -> None:
    tocsin.kit.receiver.script("failed", Verdict("retry", 503, "answered 503", answer=AnswerHead("", "")))
    tocsin.ok("events", "create", "--delay", "PT0S", "--id", "failed")
    tocsin.kit.advance(seconds=2)
    assert tocsin.ok("events", "list", "--state", "retrying").row("failed")[-1] == "answered 503"
    assert "no body" in tocsin.ok("events", "get", "failed").out
    tocsin.environment.setenv("TOCSIN_KEY", LOCAL_ADMIN_KEY)
    tocsin.ok("tenants", "channels", "pause", TENANT, "default", "--reason", "repair")
    tocsin.kit.advance(minutes=10)
    held = tocsin.ok("events", "list", "--held", "--tenant", TENANT).row("failed")[-1]
    tocsin.ok("tenants", "channels", "resume", TENANT, "default")
    assert held == "held: paused; answered 503"


def test_event_with_a_target(tocsin: Command) -> None:
    parts = ("--path", "/17", "--method", "PUT", "--query", "a=b=c", "--header", "X-A=1")
    tocsin.ok("events", "create", "--delay", "PT1H", "--id", "aimed", *parts)
    [found] = tocsin.ok("events", "get", "aimed", "--json").documents
    assert found["target"] == {"path": "/17", "query": {"a": "b=c"}, "method": "PUT", "headers": {"X-A": "1"}}


def test_event_whose_request_has_no_body(tocsin: Command) -> None:
    tocsin.ok("events", "create", "--delay", "PT1H", "--id", "asks", "--method", "GET", "--path", "/17")
    tocsin.ok("events", "create", "--delay", "PT1H", "--id", "removes", "--method", "DELETE", "--payload", "[1]")
    [asks] = tocsin.ok("events", "get", "asks", "--json").documents
    [removes] = tocsin.ok("events", "get", "removes", "--json").documents
    assert (asks["target"]["method"], "payload" in asks, removes["payload"]) == ("GET", False, [1])
    refused = tocsin("events", "create", "--delay", "PT1H", "--method", "GET", "--payload", "{}")
    assert refused.code != 0 and "a GET request has no body" in refused.err


def test_own_terms_and_a_body_of_another_type_are_given_changed_and_taken_away(tocsin: Command, tmp_path: Path) -> None:
    file = tmp_path / "order.xml"
    file.write_bytes(b"<a/>\xff")
    raw = ("--payload", f"@{file}", "--content-type", "text/xml", "--timeout", "45s", "--retry", '{"attempts": 3}')
    tocsin.ok("events", "create", "--delay", "PT1H", "--id", "raw", *raw)
    tocsin.ok("schedules", "put", "raw", "--every", "15m", *raw)
    wanted = {"payload": "PGEvPv8=", "content_type": "text/xml", "timeout": "PT45S", "retry": {"attempts": 3}}
    for words in (("events", "get"), ("schedules", "get")):
        [found] = tocsin.ok(*words, "raw", "--json").documents
        assert {name: found[name] for name in wanted} == wanted
    tocsin.ok("schedules", "delete", "raw", "--yes")
    tocsin.ok("events", "change", "raw", "--payload", "text", "--content-type", "text/plain", "--timeout", "30s")
    [found] = tocsin.ok("events", "get", "raw", "--json").documents
    assert (found["payload"], found["content_type"], found["timeout"]) == ("dGV4dA==", "text/plain", "PT30S")
    tocsin.ok("events", "change", "raw", *(word for name in ("retry", "timeout", "content-type") for word in ("--remove", name)))
    [found] = tocsin.ok("events", "get", "raw", "--json").documents
    assert not {"retry", "timeout", "content_type"} & found.keys()
    for words in (("events", "create", "--delay", "1h"), ("schedules", "put", "x", "--every", "1h")):
        failed = tocsin(*words, "--content-type", "text/xml")
        assert failed.code == Exit.USAGE and "--content-type needs --payload" in failed.err


def test_expires_never_overrides_the_tenants_default(tocsin: Command) -> None:
    admin = tocsin.kit.client_with(LOCAL_ADMIN_KEY)
    admin.call("PUT", f"tenants/{TENANT}", {"expires": "PT1H"})
    for name, words in (("usual", ()), ("never", ("--expires", "never"))):
        tocsin.ok("events", "create", "--delay", "PT1H", "--id", name, *words)
    [usual] = tocsin.ok("events", "get", "usual", "--json").documents
    [never] = tocsin.ok("events", "get", "never", "--json").documents
    assert (usual["expires"], "expires" in never) == ("PT1H", False)
    tocsin.ok("events", "change", "usual", "--expires", "Never")
    # The other tests of this module share the tenant.
    admin.call("PUT", f"tenants/{TENANT}", {"expires": None})
    [usual] = tocsin.ok("events", "get", "usual", "--json").documents
    assert "expires" not in usual
    assert tocsin("events", "create", "--delay", "PT1H", "--expires", "nevermore").code == Exit.USAGE


def test_target_callbacks_and_end_are_changed_and_taken_away(tocsin: Command) -> None:
    tocsin.ok("events", "create", "--delay", "PT1H", "--id", "altered", "--path", "/17", "--expires", "PT1H")
    changed = ("--path", "/18", "--query", "a=b", "--on-dead", "default", "--on-delivered", "default", "--remove", "expires")
    tocsin.ok("events", "change", "altered", *changed)
    [found] = tocsin.ok("events", "get", "altered", "--json").documents
    assert found["target"] == {"path": "/18", "query": {"a": "b"}, "method": "POST"}
    assert (found["on_dead"], found["on_delivered"], "expires" in found) == ("default", "default", False)
    tocsin.ok("events", "change", "altered", "--remove", "target", "--remove", "on-dead")
    [found] = tocsin.ok("events", "get", "altered", "--json").documents
    assert found["on_delivered"] == "default" and not {"target", "on_dead"} & found.keys()


def test_same_event_again_is_the_same_and_one_without_an_id_gets_one(tocsin: Command) -> None:
    arguments = ("events", "create", "--due", "2027-06-01T10:00:00Z", "--json")
    assert tocsin.ok(*arguments, "--id", "twice").documents == tocsin.ok(*arguments, "--id", "twice").documents
    assert tocsin.ok(*arguments).documents[0]["id"].startswith("~")


def test_list_is_cut_at_the_limit_and_json_is_a_document_a_line(tocsin: Command) -> None:
    for number in range(5):
        tocsin.ok("events", "create", "--due", f"2027-07-01T10:00:0{number}Z", "--id", f"cut-{number}")
    window = ("--from", "2027-07-01T10:00:00Z", "--to", "2027-07-01T10:01:00Z")
    assert len(tocsin.ok("events", "list", *window, "--json").documents) == 5
    assert len(tocsin.ok("events", "list", *window, "--json", "-n", "2").documents) == 2
    assert tocsin.ok("events", "list", "--from", "2028-01-01T00:00:00Z", "--to", "2028-01-02T00:00:00Z").out == "no events\n"


def test_dead_event_shows_its_attempts_and_is_redriven(tocsin: Command) -> None:
    refusal = Verdict("final", 400, error="said 400", answer=AnswerHead("text/plain", "no such order\x1b[2J"))
    tocsin.kit.receiver.script("broken", refusal, Verdict("delivered", 200))
    tocsin.ok("events", "create", "--delay", "PT1S", "--id", "broken")
    tocsin.kit.advance(seconds=90)
    shown = tocsin.ok("events", "get", "broken")
    assert "state" in shown.out and "dead" in shown.out and "said 400" in shown.out
    assert ": text/plain\nno such order\\x1b[2J\n" in shown.out and "\x1b[2J" not in shown.out
    assert tocsin.ok("events", "list", "--state", "dead").row("broken")[2] == "dead"
    refused = tocsin("events", "redrive", "--all")
    assert refused.code == Exit.USAGE and "--yes" in refused.err
    assert tocsin.ok("events", "redrive", "--all", "--yes").out == "1 dead letter redriven\n"
    tocsin.kit.advance(seconds=120)
    assert tocsin.ok("events", "get", "broken", "--json").documents[0]["state"] == "delivered"
    assert tocsin.ok("events", "stats", "--json").documents[0]["delivered"] >= 1
    assert tocsin("events", "redrive", "broken").code == Exit.REFUSED


def test_late_event_says_why(tocsin: Command) -> None:
    tocsin.kit.receiver.script("tried-twice", Verdict("retry", 503), Verdict("delivered", 200))
    tocsin.ok("events", "create", "--delay", "PT1S", "--id", "tried-twice", "--payload", "1")
    tocsin.kit.advance(minutes=30)
    shown = tocsin.ok("events", "get", "tried-twice").out
    assert "late because\n" in shown and " between failed attempts\n" in shown


def test_one_of_several_that_fails_does_not_stop_the_others(tocsin: Command) -> None:
    for name in ("first", "last"):
        tocsin.ok("events", "create", "--delay", "PT1H", "--id", name)
    result = tocsin("events", "cancel", "first", "nobody", "nothing", "last")
    assert result.code == Exit.REFUSED and result.lines == ["first is cancelled", "last is cancelled"]
    assert "where: DELETE events/nobody" in result.err and "where: DELETE events/nothing" in result.err


def test_an_event_that_waited_for_a_paused_channel_says_so(tocsin: Command) -> None:
    tocsin.environment.setenv("TOCSIN_KEY", LOCAL_ADMIN_KEY)
    tocsin.ok("tenants", "channels", "pause", TENANT, "default", "--reason", "to see a late event")
    tocsin.ok("events", "create", "--tenant", TENANT, "--id", "late-17", "--delay", "0s")
    tocsin.kit.advance(seconds=2)
    tocsin.ok("tenants", "channels", "resume", TENANT, "default")
    tocsin.kit.advance(seconds=2)
    [found] = tocsin.ok("events", "get", "--tenant", TENANT, "late-17", "--json").documents
    assert found["state"] == "delivered" and found["late_because"][0]["reason"] == "paused"


def test_lists_take_the_states_of_the_app_that_a_stored_event_can_have() -> None:
    assert {*get_args(options.EventState)} == {*get_args(EventState.__value__)} - {"queued"}


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("create",), "exactly one of --due and --delay"),
        (("create", "--delay", "PT1S", "--due", "2027-06-01T10:00:00Z"), "exactly one of --due and --delay"),
        (("create", "--delay", "PT1S", "--payload", "{"), "where: --payload"),
        (("create", "--delay", "PT1S", "--payload", "NaN"), "where: --payload"),
        (("create", "--delay", "PT1S", "--payload", "@/nonexistent/file"), "where: --payload"),
        (("create", "--delay", "PT1S", "--label", "x"), "where: --label"),
        (("list", "--state", "queued"), "Invalid value for '--state': 'queued' is not one of"),
        (("cancel", "not an id"), "where: EVENT"),
        (("get", ".."), "is not a valid name"),
        (("change", "x"), "name at least one thing"),
        (("change", "x", "--on-dead", "y", "--remove", "on-dead"), "exclude each other"),
        (("redrive",), "give ids, or filters such as --channel, or --all"),
        (("redrive", "x", "--channel", "default"), "give ids, or filters such as --channel, or --all"),
        (("redrive", "x", "--all"), "give ids, or filters such as --channel, or --all"),
    ],
)
def test_wrong_usage_shows_the_place_and_sends_nothing(tocsin: Command, arguments: tuple[str, ...], where: str) -> None:
    tocsin.environment.setenv("TOCSIN_URL", "https://nobody.invalid")
    result = tocsin("events", *arguments)
    assert result.code == Exit.USAGE and where in result.err and result.out == ""


def test_refusal_names_the_field(tocsin: Command) -> None:
    result = tocsin("events", "create", "--delay", "PT9999999H")
    assert result.code == Exit.REFUSED and "/delay" in result.err and "where: POST events" in result.err and "do: " in result.err


def test_payload_comes_from_a_file(tocsin: Command, tmp_path: Path) -> None:
    (tmp_path / "payload.json").write_text('{"big": 12345678901234567890123}')
    made = tocsin.ok("events", "create", "--delay", "PT1H", "--payload", f"@{tmp_path / 'payload.json'}", "--json")
    assert '"big":12345678901234567890123' in made.out


def test_what_users_stored_moves_no_cursor(tocsin: Command) -> None:
    tocsin.ok("events", "create", "--delay", "PT1H", "--id", "evil", "--payload", '{"x": "\\u001b[2J[red]boo"}')
    result = tocsin.ok("events", "get", "evil")
    assert "\x1b" not in result.out and "[red]boo" in result.out


def test_tail_prints_each_state_once(tocsin: Command) -> None:
    events = [
        {"id": "b", "due": "2", "state": "scheduled"},
        {"id": "a", "due": "1", "state": "delivered", "attempts": [{}]},
    ]
    assert [each["id"] for each in following.changed_events({}, events)] == ["a", "b"]
    known = {each["id"]: following.state_mark(each) for each in events}
    assert list(following.changed_events(known, events)) == []
    again = [{"id": "b", "due": "2", "state": "retrying", "attempts": [{}]}, {"id": "b2", "due": "3", "state": "scheduled"}]
    assert [each["id"] for each in following.changed_events(known, again)] == ["b", "b2"]


def test_schedule_is_put_listed_previewed_paused_and_deleted(tocsin: Command) -> None:
    tocsin.ok("schedules", "put", "nightly", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin")
    assert tocsin.ok("schedules", "list").row("nightly")[1:3] == ["30 2 * * * Europe/Berlin", "ok"]
    words, _, first, _ = tocsin.ok("schedules", "preview", "nightly", "-n", "2").lines
    assert words == "at 02:30 every day, in Europe/Berlin" and first.startswith("20")
    tocsin.ok("schedules", "pause", "nightly")
    assert tocsin.ok("schedules", "list").row("nightly")[2] == "paused"
    tocsin.ok("schedules", "resume", "nightly")
    assert tocsin.ok("schedules", "trigger", "nightly").out.startswith("event ")
    assert tocsin("schedules", "delete", "nightly").code == Exit.USAGE
    tocsin.ok("schedules", "delete", "nightly", "--keep-overdue", "--yes")
    assert tocsin("schedules", "get", "nightly").code == Exit.REFUSED
    assert tocsin("schedules", "put", "x").code == Exit.USAGE
    assert tocsin("schedules", "put", "x", "--every", "PT1H", "--within", "PT1H").code == Exit.USAGE


def test_cron_of_another_scheduler_is_rewritten_and_a_wrong_one_refused_before_a_call(tocsin: Command) -> None:
    put = ("schedules", "put", "report", "--cron", "0 15 10 ? * 6L")
    shown = tocsin.ok(*put, "--dialect", "quartz")
    assert "15 10 * * 5L" in shown.out and "at 10:15 on the last Friday of each month, in UTC" in shown.out
    tocsin.ok("schedules", "delete", "report", "--yes")
    for wrong in (("--cron", "0 15 10 L-2 * ?", "--dialect", "quartz"), ("--every", "1h", "--dialect", "quartz")):
        refused = tocsin("schedules", "put", "report", *wrong)
        assert refused.code == Exit.USAGE and ("L-2" in refused.err or "--dialect needs --cron" in refused.err)
    assert tocsin.ok("schedules", "list").lines == ["no schedules"]


def test_watch_looks_again_and_again(tocsin: Command) -> None:
    result = tocsin.ok("schedules", "list", "--watch", "0.1", "--times", "2")
    assert result.lines == ["no schedules"] * 2


def test_events_of_several_channels(tocsin: Command) -> None:
    for name in ("billing", "stock"):
        channel = {"type": "http", "url": "https://receiver.test/x"}
        tocsin.kit.client_with(LOCAL_ADMIN_KEY).call("PUT", f"tenants/{TENANT}/channels/{name}", channel)
    aimed = ("--channel", "stock", "--channel", "billing")
    made = tocsin.ok("events", "create", "--delay", "PT1H", "--id", "paid", *aimed).out.splitlines()
    assert [line.split(",")[0] for line in made] == ["paid@billing is scheduled", "paid@stock is scheduled"]
    assert tocsin.ok("events", "get", "paid").row("paid@stock")[1:3] == ["stock", "scheduled"]
    assert tocsin.ok("events", "change", "paid", "--delay", "PT2H").lines == ["paid@billing is scheduled", "paid@stock is scheduled"]
    tocsin.ok("events", "cancel", "paid@stock")
    partly = tocsin.ok("events", "fire", "paid")
    assert_text("events.fired-in-part", partly.lines)
    nothing = tocsin("events", "redrive", "paid")
    assert nothing.code == Exit.REFUSED and "no event of paid was changed" in nothing.err


def test_create_waits_for_the_end_and_prints_each_attempt(tocsin: Command) -> None:
    tocsin.environment.setattr(session, "time", SimpleNamespace(sleep=lambda seconds: tocsin.kit.advance(seconds=seconds)))
    tocsin.kit.receiver.script("slow", Verdict("retry", 503, "answered 503"), Verdict("delivered", 204))
    *_, first, second, end = tocsin.ok("events", "create", "--id", "slow", "--delay", "30s", "--wait").lines
    assert first.endswith("  retry, answered 503, 0 ms") and second.endswith("  delivered, 204, 0 ms")
    assert end.startswith("slow is delivered")
    tocsin.kit.receiver.script("gone", Verdict("final", 422, "answered 422"))
    dead = tocsin("events", "create", "--id", "gone", "--delay", "1s", "--wait", "--json")
    assert dead.code == Exit.FAILED and [each["state"] for each in dead.documents] == ["dead"]


def test_list_is_sorted_and_says_what_it_leaves_out(tocsin: Command) -> None:
    for number in (3, 1, 2):
        tocsin.ok("events", "create", "--id", f"sorted-{number}", "--delay", f"{number}h")
    found = tocsin.ok("events", "list", "--id-prefix", "sorted-")
    assert [line.split()[0] for line in found.lines[1:]] == ["sorted-1", "sorted-2", "sorted-3"]
    stats = tocsin.kit.client.stats()
    listed = tocsin.ok("events", "list", "--state", "scheduled", "-n", "2").out
    assert f"Showing 2 of {stats.open - stats.retrying}. -n 20 shows more" in listed
    assert "Showing 1. -n 10 shows more" in tocsin.ok("events", "list", "--id-prefix", "sorted-", "-n", "1").out
    assert "Showing" not in tocsin.ok("events", "list", "--id-prefix", "sorted-", "-n", "3").out


def test_an_id_whose_run_has_ended_undelivered_is_named_kept_or_refused(tocsin: Command) -> None:
    create = ("events", "create", "--due", "2030-01-01T10:00:00Z", "--id", "over")
    assert tocsin.ok(*create).err == ""
    tocsin.ok("events", "cancel", "over")
    kept = tocsin.ok(*create)
    assert "over is cancelled" in kept.out and "over exists and is cancelled: nothing was scheduled" in kept.err
    refused = tocsin(*create, "--on-conflict", "error")
    assert refused.code == Exit.REFUSED and "over exists and is cancelled" in refused.err


def test_a_due_time_that_is_past_is_told(tocsin: Command) -> None:
    made = tocsin.ok("events", "create", "--due", "2020-01-01T10:00:00Z", "--id", "past")
    assert re.fullmatch(r"tocsin: due \d,\d{3} days ago: it is delivered now\n", made.err)
    assert tocsin.ok("events", "create", "--delay", "0s").err == ""
    tocsin.ok("events", "create", "--delay", "PT1H", "--id", "later")
    assert tocsin.ok("events", "change", "later", "--delay", "PT2H").err == ""
    assert "days ago: it is delivered now" in tocsin.ok("events", "change", "later", "--due", "2020-01-01T10:00:00Z", "--json").err


def test_an_event_that_comes_again_on_a_later_page_is_listed_once(tocsin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["again-a", "again-b", "again-c"]
    for name in names:
        tocsin.ok("events", "create", "--id", name, "--delay", "PT1H", "--payload", "1")
    whole = CommandSession.get

    def get(self: CommandSession, path: str, **query: Any) -> Any:
        """Answer with two events, and then with all: a shard has finished meanwhile."""
        cursor, query = query.get("cursor"), query | {"cursor": None, "limit": 1000}
        page = whole(self, path, **query)
        return page if cursor else {"items": page["items"][:2], "next": "more"}

    monkeypatch.setattr(CommandSession, "get", get)
    for more in ((), ("-n", "3")):
        assert sorted(each["id"] for each in tocsin.ok("events", "list", "--id-prefix", "again-", "--json", *more).documents) == names
