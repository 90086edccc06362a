"""`tocsin leases`, `turns`, `maintenance`, `tenants` and `status`."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from shared.cli.doctor.fleet import FleetReport, examine_fleet
from shared.cli.exits import Exit
from shared.cli.fleets.maintenance import changes, comparable_state
from shared.cli.groups import status
from shared.cli.groups.status import list_needs
from shared.client.errors import Conflict
from shared.core.settings import LOCAL_ADMIN_KEY
from tests.texts import assert_text

from ..conftest import Command

INCARNATION = "0b2f7a52-3c1d-4a5e-9f60-7d8e9fa0b1c2"


@pytest.fixture
def fleet(tocsin: Command, request: pytest.FixtureRequest) -> str:
    """A fleet with four partitions and one server, which has none yet."""
    name = request.node.name.removeprefix("test_")[:20].replace("_", "-").strip("-")
    tocsin.ok("leases", "create", name, "--partitions", "4")
    tocsin.kit.client.call("POST", f"fleets/{name}/nodes/s1/beat", {"incarnation": INCARNATION, "seq": 1})
    return name


def report(tocsin: Command, fleet: str, seq: int, **more: Any) -> Any:
    body = {
        "node": "n1",
        "seq": seq,
        "vm": "vm_1",
        "scope": "set",
        "location": "westeurope",
        "fault_domain": "0",
        "boot_id": "b",
        "incarnation": seq,
        "disabled": False,
        "events": [],
    }
    return tocsin.kit.client.call("POST", f"fleets/{fleet}/maintenance/reports", body | more)


def test_fleet_is_created_shown_resized_and_deleted(tocsin: Command) -> None:
    made = tocsin.ok("leases", "create", "web", "--partitions", "8", "--minimum", "2", "--spare", "1", "--lease-profile", "fast", "--json")
    assert [made.documents[0][name] for name in ("partitions", "profile", "servers")] == [8, "fast", {"minimum": 2, "spare": 1}]
    assert tocsin.ok("leases", "fleets").row("web")[:6] == ["web", "8", "fast", "2 + 1", "1", "ok"]
    assert len(tocsin.ok("leases", "show", "web", "--json").documents) == 8
    assert tocsin.ok("leases", "show", "web").row("7")[1] == "unowned"
    assert "unowned" in tocsin.ok("leases", "show", "web", "7").out
    assert tocsin.ok("leases", "show", "web", "--by-server").out == "no servers\n"
    assert tocsin.ok("leases", "resize", "web", "16").out.startswith("web changes to 16 partitions")
    tocsin.ok("leases", "delete", "web", "--yes")
    assert tocsin("leases", "show", "web").code == Exit.REFUSED
    assert tocsin("leases", "create", "web", "--settings", "[]").code == Exit.USAGE
    assert tocsin("leases", "create", "web").code == Exit.REFUSED


def test_operators_verbs_stand_until_they_are_taken_back(tocsin: Command, fleet: str) -> None:
    said = ("--note", "an incident")
    tocsin.ok("leases", "offline", fleet, "1", *said, "--expires", "PT1H")
    tocsin.ok("leases", "pin", fleet, "2", "--server", "s1", *said)
    tocsin.ok("leases", "prohibit", fleet, "--server", "s9", *said)
    tocsin.ok("leases", "prohibit", fleet, "--server", "s8", "--partition", "3", *said)
    tocsin.ok("leases", "drain", fleet, "s1", "--exit", *said)
    standing_now = {(each["verb"], each["target"]) for each in tocsin.ok("leases", "intents", fleet, "--json").documents}
    assert standing_now == {("offline", 1), ("pin", 2), ("prohibit", "s9"), ("prohibit", 3), ("drain", "s1")}
    assert tocsin.ok("leases", "intents", fleet).row("pin")[1:4] == ["2", "s1", "an incident"]
    tocsin.ok("leases", "online", fleet, "1", *said)
    tocsin.ok("leases", "unpin", fleet, "2", *said)
    tocsin.ok("leases", "permit", fleet, "--server", "s9", *said)
    tocsin.ok("leases", "permit", fleet, "--server", "s8", "--partition", "3", *said)
    tocsin.ok("leases", "undrain", fleet, "s1", *said)
    assert tocsin.ok("leases", "intents", fleet).out == "no manual controls\n"
    again = tocsin("leases", "online", fleet, "1", *said)
    assert again.code == Exit.REFUSED and f"where: POST fleets/{fleet}/leases/1/online" in again.err
    assert tocsin("leases", "bump", fleet, "1").code == Exit.USAGE, "a verb without a note"


def test_a_drain_to_a_server_says_which_control_it_has_ended_and_what_goes_elsewhere(tocsin: Command, fleet: str) -> None:
    said = ("--note", "a restart")
    other = "9b2ff1d4-3a88-4a56-a7a4-9a01e6b3f8aa"
    tocsin.kit.client.call("POST", f"fleets/{fleet}/nodes/s2/beat", {"incarnation": other, "seq": 1, "capacity": 1})
    tocsin.kit.client.call("POST", f"fleets/{fleet}/leases/claim", {"node": "s1", "incarnation": INCARNATION, "partitions": [0, 1, 2, 3]})
    tocsin.ok("leases", "drain", fleet, "s2", *said)
    done = tocsin.ok("leases", "drain", fleet, "s1", "--to", "s2", *said)
    assert_text("leases.drain-to-a-full-server", done.lines, partitions=3)
    assert tocsin.ok("leases", "plan", fleet, "--json").documents[0]["diverted"]
    assert tocsin.ok("leases", "intents", fleet).row("drain")[1:4] == ["s1", "s2", "a restart"]
    refused = tocsin("leases", "drain", fleet, "s2", "--to", "s2", *said)
    assert refused.code == Exit.REFUSED and "must be another server than s2" in refused.err


def test_plan_is_a_dry_run_unless_it_is_to_be_applied(tocsin: Command, fleet: str) -> None:
    dry = tocsin.ok("leases", "plan", fleet)
    assert dry.lines[0] == "moves, dry run" and len([line for line in dry.lines if " s1 " in line]) == 4
    [applied] = tocsin.ok("leases", "plan", fleet, "--apply", "--json").documents
    assert applied["applied"] and len(applied["moves"]) == 4


def test_nodes_are_listed_with_what_they_have(tocsin: Command, fleet: str) -> None:
    assert tocsin.ok("leases", "nodes", fleet).row("s1")[1] == "live"


def test_doctor_finds_nothing_wrong_with_a_fleet_that_is_served(tocsin: Command, fleet: str) -> None:
    tocsin.kit.client.call("POST", f"fleets/{fleet}/leases/claim", {"node": "s1", "incarnation": INCARNATION, "partitions": [0, 1, 2, 3]})
    assert tocsin.ok("leases", "doctor", fleet).out == f"nothing is wrong with {fleet}\n"
    assert tocsin.ok("leases", "stale", fleet).lines[:2] == ["partitions without a server", "  none"]
    assert tocsin.ok("leases", "show", fleet, "--by-server").row("s1")[3:] == ["4", "0-3"]


def test_doctor_ends_with_1_where_something_is_bad(tocsin: Command) -> None:
    tocsin.ok("leases", "create", "lost", "--partitions", "4")
    tocsin.kit.client.call("POST", "fleets/lost/nodes/s1/beat", {"incarnation": INCARNATION, "seq": 1})
    tocsin.kit.client.call("POST", "fleets/lost/nodes/s1/drain", {"note": "repair"})
    said = tocsin("leases", "doctor", "lost")
    assert said.code == Exit.FAILED and [line for line in said.lines if line.startswith("bad: ") and " 0-3 " in line]
    found = tocsin("leases", "doctor", "lost", "--json")
    assert found.code == Exit.FAILED and found.documents[0]["how"] == "bad"


def test_fleet_that_never_had_a_server_is_no_worry(tocsin: Command) -> None:
    tocsin.ok("leases", "create", "new", "--partitions", "4", "--minimum", "3")
    assert "look: the fleet never had a server" in tocsin.ok("leases", "doctor", "new").lines
    assert not [each for each in tocsin.ok("status", "--json").documents[0]["needs"] if "fleet new" in each]
    assert tocsin.ok("status").row("new")[1:4] == ["4", "-", "none yet"]
    tocsin.ok("leases", "delete", "new", "--yes")


def test_doctor_names_each_finding_and_puts_bad_ones_first() -> None:
    stale = {
        "items": [{"partition": 3, "reason": "owner silent"}, {"partition": 4, "reason": "missing"}],
        "servers": {"live": 2, "needed": 3, "silent": ["s1"], "late": ["s2"]},
        "forgotten": [{"verb": "offline", "target": 1, "created": "2027-01-01T00:00:00.000Z", "note": "why"}],
        "alarms": [{"alarm": "silent", "since": "2027-01-01T00:00:00.000Z", "subjects": list(range(12))}],
    }
    beat = {"state": "live", "fault_domain": "a"}
    nodes = [
        {"node": "s2", "beat": beat, "partitions": {str(each): 1 for each in range(30)}, "turn": {"down": "clock", "report_age_ms": 5000}},
        {"node": "s3", "beat": {**beat, "fault_domain": "b"}, "partitions": {"99": 1}, "turn": None},
    ]
    intents = [{"verb": "offline", "target": 1}, {"verb": "drain", "target": "s4"}]
    plan = {"unplaced": [{"partition": 7, "reason": "prohibited"}]}
    fleet = {"name": "web", "servers": {"minimum": 1, "spare": 2}, "resizing": {"partitions": 8}}
    found = examine_fleet(FleetReport(fleet=fleet, stale=stale, nodes=nodes, intents=intents, plan=plan))
    assert [each.how for each in found] == sorted((each.how for each in found), key=lambda how: how != "bad")
    told = "\n".join(each.what for each in found)
    parts = (
        *("partition 3: owner silent", "partition 4: missing", "partition 7 has no possible owner", "2 servers live, 3 wanted"),
        *("not fenced: s1", "late: s2", "offline 1 is in force since", "offline by manual control: 1", "drained by manual control: s4"),
        *("fault domain a has 30 of 31", "alarm silent", "and 2 more", "a resize is in progress", "replica s2"),
    )
    for part in parts:
        assert part in told
    assert all(each.means and each.do for each in found)
    do = "\n".join(each.do for each in found)
    for command in ("tocsin leases online web 1 --note", "tocsin leases undrain web s4 --note", "tocsin leases intents web"):
        assert command in do


def test_turns_are_listed_and_revoked(tocsin: Command, fleet: str) -> None:
    assert tocsin.ok("turns", "list", fleet).out == "no turns yet\n"
    said = {"term": 1, "applied": 10, "last_checkpoint": 0, "taking": None}
    epoch = 0
    for seq in range(1, 40):
        for node, role in (("s1", "primary"), ("s2", "secondary"), ("s3", "secondary")):
            mono = int(tocsin.kit.now.timestamp() * 1000)
            body = {"seq": seq, "role": role, "mono_ms": mono, **said}
            turn = tocsin.kit.client.call("POST", f"fleets/{fleet}/replicas/{node}/report", body)["turn"]
            epoch = turn["epoch"] if turn else epoch
        if epoch:
            break
        tocsin.kit.advance(seconds=5)
    assert epoch, "no turn was granted"
    assert tocsin.ok("turns", "list", fleet).row(str(epoch))[2] == "granted"
    assert tocsin.ok("turns", "revoke", fleet, str(epoch), "--note", "its disk is full").out.startswith(f"turn {epoch} is revoked")
    assert "its disk is full" in tocsin.ok("turns", "list", fleet).out
    none = tocsin("turns", "latest", fleet)
    assert none.code == Exit.REFUSED and "none has been published" in none.err


def test_claim_to_be_primary_is_forgotten(tocsin: Command, fleet: str) -> None:
    def claim(node: str, seq: int, term: int) -> Any:
        mono = int(tocsin.kit.now.timestamp() * 1000)
        body = {"seq": seq, "role": "primary", "term": term, "applied": 10, "last_checkpoint": 0, "taking": None, "mono_ms": mono}
        return tocsin.kit.client.call("POST", f"fleets/{fleet}/replicas/{node}/report", body)

    claim("s1", 1, 999)
    with pytest.raises(Conflict, match="not the primary any more"):
        claim("s2", 1, 2)
    assert tocsin("turns", "forget", fleet).code == Exit.USAGE, "a note is needed"
    said = tocsin.ok("turns", "forget", fleet, "--note", "the term of a test")
    assert_text("turns.forgotten", said.lines, fleet=fleet)
    claim("s2", 1, 2)
    for _ in range(2):
        again = tocsin.ok("turns", "forget", fleet, "--note", "the term of a test", "--json")
        assert again.documents == [{"fleet": fleet, "forgotten": True}]
    nowhere = tocsin("turns", "forget", "nowhere", "--note", "x")
    assert nowhere.code == Exit.REFUSED and "POST fleets/nowhere/primary/forget" in nowhere.err


def test_maintenance_is_listed_held_approved_and_rehearsed(tocsin: Command, fleet: str) -> None:
    event = {
        "event_id": "e1",
        "type": "Freeze",
        "status": "Scheduled",
        "source": "Platform",
        "duration_s": 9,
        "resources": ["vm_1"],
        "not_before": "2027-01-15T23:00:00Z",
        "phase": "WAITING",
    }
    report(tocsin, fleet, 1, events=[event])
    assert tocsin.ok("maintenance", "list", fleet).row("e1")[1:5] == ["Freeze", "scheduled", "2027-01-15T23:00:00.000Z", "1 WAITING"]
    assert tocsin.ok("maintenance", "hold", fleet, "e1", "--reason", "a repair").out == "event e1: held\n"
    shown = tocsin.ok("maintenance", "show", fleet, "e1").out
    assert "a repair" in shown and "WAITING" in shown
    assert tocsin.ok("maintenance", "approve", fleet, "e1").out == "event e1: granted\n"
    assert len(tocsin.ok("maintenance", "list", fleet, "--open", "--json").documents) == 1
    told = tocsin.ok("maintenance", "story", fleet, "e1")
    assert [told.out.index(text) for text in ("first reported", "held by", "approved by")] == sorted(
        told.out.index(text) for text in ("first reported", "held by", "approved by")
    )
    steps = tocsin.ok("maintenance", "story", fleet, "e1", "--node", "n1", "--json").documents
    assert [(each["node"], each["by"], each["text"]) for each in steps] == [("n1", "app", "the node is WAITING")]
    assert tocsin("maintenance", "story", fleet, "nothing").code == Exit.REFUSED
    seen = tocsin.ok("maintenance", "watch", fleet, "--times", "1", "--json").documents
    assert {each["what"]: each["after"] for each in seen}["node n1"] == "WAITING"
    rehearsal = tocsin.ok("maintenance", "rehearse", fleet, "--node", "n1", "--json").documents[0]["event_id"]
    assert rehearsal in tocsin.ok("maintenance", "list", fleet).out
    assert tocsin("maintenance", "show", fleet, "nothing").code == Exit.REFUSED


def test_changes_of_maintenance_are_announced_once() -> None:
    event = {"event_id": "e", "type": "Freeze", "status": "scheduled", "nodes": {"n": {"phase": "WAITING"}}, "approval": None, "alarms": []}
    before = {"e": comparable_state(event)}
    assert list(changes({}, before)) == [("e", "event", "", "Freeze scheduled"), ("e", "node n", "", "WAITING")]
    assert list(changes(before, before)) == []
    event |= {"nodes": {"n": {"phase": "PREPARED"}}, "approval": {"state": "granted", "by": "ops"}, "alarms": ["late"]}
    after = {"e": comparable_state(event)}
    assert set(changes(before, after)) == {
        ("e", "node n", "WAITING", "PREPARED"),
        ("e", "approval", "", "granted by ops"),
        ("e", "alarm late", "", "raised"),
    }
    assert list(changes(after, before))[-1][3] == "gone"


def test_whether_nodes_may_prepare_is_a_part_of_an_event_that_changes() -> None:
    event = {"type": "Freeze", "status": "scheduled", "nodes": {}, "approval": None, "alarms": []}
    assert "permission" not in comparable_state(event), "a fleet with the guard approve"
    refused = event | {"permission": {"state": "refused", "reason": "e2 goes first"}}
    assert comparable_state(refused)["permission"] == "refused: e2 goes first"
    assert comparable_state(event | {"permission": {"state": "granted"}})["permission"] == "granted"


def test_tenant_its_keys_and_channels(tocsin: Command) -> None:
    tocsin.environment.setenv("TOCSIN_KEY", LOCAL_ADMIN_KEY)
    tocsin.ok("tenants", "put", "shop", "--settings", '{"limits": {"events_per_second": 100}}')
    assert tocsin.ok("tenants", "list").row("shop")[2] == "events_per_second 100.0"
    made = tocsin.ok("tenants", "keys", "create", "shop", "--scope", "events", "--note", "web")
    assert len(made.lines) == 1 and "not shown again" in made.err and made.lines[0] not in made.err
    key, [listed] = made.lines[0], tocsin.ok("tenants", "keys", "list", "shop", "--json").documents
    assert listed["note"] == "web" and key.startswith(listed["prefix"])
    to = ("--to", "http://receiver.test/x", "--header", "x-team=blue")
    channel = tocsin.ok("tenants", "channels", "put", "shop", "default", *to, "--json")
    assert channel.documents[0]["secret"].startswith("whsec_")
    assert tocsin.ok("tenants", "channels", "list", "shop").row("default")[1:5] == ["http", "http://receiver.test/x", "ok", "closed"]
    tocsin.ok("tenants", "channels", "pause", "shop", "default", "--reason", "moving")
    assert tocsin.ok("tenants", "channels", "list", "shop").row("default")[3] == "paused"
    tocsin.ok("tenants", "channels", "resume", "shop", "default")
    assert tocsin.ok("tenants", "channels", "rotate", "shop", "default").out.startswith("whsec_")
    assert tocsin("tenants", "channels", "put", "shop", "x").code == Exit.USAGE
    tocsin.ok("tenants", "keys", "revoke", "shop", listed["prefix"], "--yes")
    tocsin.ok("tenants", "channels", "delete", "shop", "default", "--yes")
    tocsin.ok("tenants", "delete", "shop", "--yes")
    assert tocsin("tenants", "get", "shop").code == Exit.REFUSED
    done = tocsin.ok("audit", "--of", "shop", "--json").documents
    assert [each["action"] for each in done][:3] == ["tenants_delete", "channels_delete", "keys_delete"] and len(done) >= 8
    shown = tocsin.ok("audit", "--of", "shop", "--action", "channels_pause").out
    assert "bootstrap" in shown and "paused: false -> true" in shown


def test_status_shows_what_the_key_may_see_and_names_the_rest(tocsin: Command, fleet: str) -> None:
    said = tocsin.ok("status")
    assert "events" in said.lines and "fleets" in said.lines and fleet in said.out and "needs a person" in said.lines
    tocsin.environment.setenv("TOCSIN_KEY", LOCAL_ADMIN_KEY)
    assert "tenants" in tocsin.ok("status").lines
    assert fleet in tocsin.ok("status", "--tenant", "demo").out


def test_status_with_an_admin_key_has_a_line_for_each_tenant_the_worst_first(tocsin: Command) -> None:
    tocsin.environment.setenv("TOCSIN_KEY", LOCAL_ADMIN_KEY)
    tocsin.ok("tenants", "put", "aaa")
    tocsin.ok("tenants", "put", "zzz")
    tocsin.ok("tenants", "channels", "put", "zzz", "default", "--to", "https://127.0.0.1.example/x")
    tocsin.ok("tenants", "channels", "pause", "zzz", "default", "--reason", "repair")
    made = tocsin.kit.client_with(LOCAL_ADMIN_KEY, tenant="zzz").schedule({}, delay=timedelta(0))
    tocsin.kit.advance(minutes=3)
    asked: list[str] = []
    call = status.CommandSession.get

    def noted(session: Any, path: str, **query: Any) -> Any:
        asked.append(path)
        return call(session, path, **query)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(status.CommandSession, "get", noted)
        said = tocsin("status", "--check", "--json")
    assert asked == ["key", *["tenant-overview"] * 2], "nothing is asked for each tenant"
    [found] = said.documents
    assert said.code == Exit.FAILED and "tenant zzz: channel default: paused" in found["needs"], (made, found)
    names = [each["name"] for each in found["tenants"]]
    assert {"aaa", "demo", "zzz"} <= set(names) and names.index("zzz") < names.index("aaa")
    assert tocsin.ok("status").row("zzz")[4] == "1"
    tocsin.ok("tenants", "delete", "zzz", "--yes")
    tocsin.ok("tenants", "delete", "aaa", "--yes")


def test_the_needs_of_tenants_are_named_and_a_check_fails_for_figures_that_are_not_exact() -> None:
    quiet = dict.fromkeys(("stuck", "overdue", "dead", "blocked_channels", "fleets", "retrying", "open"), 0)
    blocked = {"blocked": [{"channel": "c", "state": "paused"}], "blocked_channels": 3, "fleets": 1}
    items = [{**quiet, "tenant": "a", **blocked}, {**quiet, "tenant": "b", "blocked": []}]

    class Session(SimpleNamespace):
        app = SimpleNamespace(url="http://localhost", tenant=None)

        def get(self, path: str, **_: Any) -> Any:
            return {"scopes": ["admin"]} if path == "key" else {"items": items[:1], "incomplete": True}

        def items(self, path: str) -> Any:
            return items

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(status, "readiness", lambda _: {"status": "ready"})
        found = status.gather(Session())  # type: ignore[arg-type]
    assert [each["name"] for each in found["tenants"]] == ["a", "b"]
    needs = ["channel c: paused", "2 more blocked channels", "1 fleet with needs"]
    assert list(list_needs(found)) == [f"tenant a: {each}" for each in needs]
    assert found["denied"] == {"exact figures of some tenants": "the app could not count everything"}


def test_a_check_that_cannot_look_at_something_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = {"url": "", "health": {"status": "ready"}, "events": None, "fleets": None}
    ended: list[int] = []
    for denied in ({}, {"fleets": "the key lacks the scope fleets"}):
        monkeypatch.setattr(status, "gather", lambda _, denied=denied: {**nothing, "denied": denied})
        try:
            status.status(SimpleNamespace(json=True, emit=lambda _: None), check=True)  # type: ignore[arg-type]
        except typer.Exit as found:
            ended.append(found.exit_code)
    assert ended == [Exit.FAILED]


def test_status_with_a_wrong_key_is_refused(tocsin: Command) -> None:
    tocsin.environment.setenv("TOCSIN_KEY", "not-the-right-key")
    said = tocsin("status")
    assert said.code == Exit.REFUSED and "TOCSIN_KEY" in said.err and "not-the-right-key" not in said.out + said.err


def test_status_can_be_a_check(tocsin: Command) -> None:
    tocsin.ok("leases", "create", "short", "--partitions", "4", "--minimum", "3")
    tocsin.kit.client.call("POST", "fleets/short/nodes/s1/beat", {"incarnation": INCARNATION, "seq": 1})
    said = tocsin("status", "--check", "--json")
    assert said.code == Exit.FAILED and "fleet short: 1 of 3 servers" in said.documents[0]["needs"]


def test_everything_that_needs_a_person_is_named() -> None:
    found = {
        "health": {"status": "not-ready", "detail": "storage is away"},
        "events": {"overdue": 3, "stuck": 0, "dead": 2, "channels": {"a": {"state": "paused"}, "b": {"state": "ok"}}},
        "fleets": [
            {
                "name": "web",
                "stale": 2,
                "servers": {"live": 1, "needed": 2},
                "alarms": ["silent"],
                "maintenance": [{"event_id": "e", "type": "Freeze", "alarms": ["quorum"]}, {"alarms": []}],
            }
        ],
    }
    assert_text("status.needs", list_needs(found), reason="storage is away", overdue=3, fleet="web", alarm="silent")
    assert list(list_needs({"health": {"status": "ready"}, "events": None, "fleets": None})) == []
