"""`tocsin import`: files as other schedulers write them become a file that `tocsin apply` takes, and the rest is named."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.cli import session
from shared.cli.connections import Connection
from shared.cli.declared.yaml_text import parse_yaml
from shared.cli.exits import Exit
from shared.cli.foreign import carried as rules
from shared.cli.foreign.command import Format, carry
from shared.core.settings import LOCAL_ADMIN_KEY
from tests.paths import ROOT

from ..conftest import Command, CommandResult

DATA = ROOT / "tests" / "data" / "foreign"
TARGET = rules.Target("moved", "default", "https://shop.example/hook", "")
_WITHOUT_CRONSIM = """
import sys
sys.modules["cronsim"] = None  # an import of it fails
from shared.cli.foreign import carried, cloud_tasks, crontab, eventbridge, function_json
from shared.cli.groups import schedules
print(carried.check(carried.rewritten("0 0 12 ? * 2-6", "quartz")))
"""


def read(form: Format, *names: str, target: rules.Target = TARGET) -> rules.Carried:
    return carry(form, [rules.Source(name, (DATA / name).read_text()) for name in names], target)


def text(form: Format, content: str, name: str = "given") -> rules.Carried:
    return carry(form, [rules.Source(name, content)], TARGET)


def notes(found: rules.Carried, *, lost: bool) -> dict[str, str]:
    """Return the reports of what was left out, by their places in the file."""
    return {note.where: note.what for note in found.notes if note.lost is lost and note.do}


def rule(schedule: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schedule.items() if name not in ("channel", "payload")}


# --- Formats ----------------------------------------------------------------------------------------------------------


def test_timer_triggers_become_schedules() -> None:
    found = read("function-json", "NightlyReport/function.json", "functions.metadata")
    assert {id: rule(each) for id, each in found.schedules.items()} == {
        "NightlyReport": {"cron": "30 2 * * 1-5"},
        "CleanUp": {"every": "PT900S", "catch_up": {"policy": "none"}},
        # Both day fields must match: five fields would mean one of them.
        "MonthEnd": {"cron": "0 0 9 1-7 * MON"},
    }
    assert found.schedules["NightlyReport"]["payload"] == {"job": "NightlyReport"}
    lost = notes(found, lost=True)
    assert lost["functions.metadata: FromSetting"] == "the schedule is in the app setting CleanupSchedule"
    assert lost["functions.metadata: Off"] == "the function is disabled"
    assert lost["functions.metadata: Hook"] == "it has no timer trigger"
    assert lost["functions.metadata: Wrong"].startswith("0 0 25 * * *: hour: ") and len(lost) == 4
    assert "runOnStartup" in notes(found, lost=False)["NightlyReport/function.json: NightlyReport"]


def test_five_fields_of_a_timer_trigger_let_a_day_match_both_day_fields() -> None:
    for schedule, cron in {
        "30 2 13 * FRI": "0 30 2 13 * FRI",
        "*/5 * * * *": "*/5 * * * *",
        "30 9 * january Monday-Friday": "30 9 * JAN MON-FRI",
    }.items():
        entry = {"name": "a", "bindings": [{"type": "timerTrigger", "schedule": schedule}]}
        assert rule(text("function-json", json.dumps(entry)).schedules["a"]) == {"cron": cron}


def test_lines_of_cron_become_schedules_in_their_time_zone() -> None:
    found = read("crontab", "crontab.txt")
    assert {id: rule(each) for id, each in found.schedules.items()} == {
        "report": {"cron": "30 2 * * 1-5", "timezone": "Europe/Berlin"},
        "poll": {"cron": "*/15 * * * *", "timezone": "Europe/Berlin", "overlap": "skip"},
        "app": {"cron": "0 0 * * *", "timezone": "Europe/Berlin"},
        "find": {"cron": "0 4 1,15 * 7", "timezone": "Europe/Berlin"},
        "echo": {"cron": "5 0 * * *", "timezone": "Europe/Berlin"},
        "report-2": {"cron": "17 * * * *", "timezone": "UTC"},
    }
    lost = notes(found, lost=True)
    assert lost["crontab.txt: line 11"] == "@reboot: a schedule has no such time"
    assert "never fires" in lost["crontab.txt: line 14"] and "no line of cron" in lost["crontab.txt: line 15"] and len(lost) == 3
    parts = [note.what for note in found.notes if not note.lost]
    assert "the command stays on the machine: /opt/shop/report.sh" in parts and any("MAILTO" in each for each in parts)
    assert any("standard input" in each for each in parts)


def test_files_of_cron_d_name_a_user_before_the_command() -> None:
    found = read("crontab", "etc/cron.d/sysstat")
    assert {id: each["cron"] for id, each in found.schedules.items()} == {"debian-sa1": "5-55/10 * * * *", "debian-sa1-2": "59 23 * * *"}
    assert [note.what for note in found.notes if "machine: command -v" not in note.what] == [
        "the machine's time zone, which the file does not name: UTC is taken"
    ]


def test_tz_in_a_crontab_is_named_and_moves_no_time() -> None:
    found = text("crontab", "TZ=Asia/Tokyo\n0 1 * * * /a.sh\n")
    assert rule(found.schedules["a"]) == {"cron": "0 1 * * *"}
    assert any("TZ=Asia/Tokyo" in note.what for note in found.notes) and any("UTC is taken" in note.what for note in found.notes)
    zoned = carry("crontab", [rules.Source("given", "0 1 * * * /a.sh\n")], replace(TARGET, timezone="Asia/Tokyo"))
    assert zoned.schedules["a"]["timezone"] == "Asia/Tokyo" and not any("UTC" in note.what for note in zoned.notes)


def test_schedules_and_rules_of_eventbridge_become_schedules_and_events() -> None:
    found = read("eventbridge", "eventbridge.json")
    assert {id: rule(each) for id, each in found.schedules.items()} == {
        "nightly-report": {
            # Weekdays of Amazon begin with Sunday = 1.
            "cron": "30 2 * * 1-5",
            "timezone": "Europe/Berlin",
            "start": "2026-03-31T22:00:00Z",
            "end": "2028-01-01T00:00:00Z",
            "jitter": "PT15M",
        },
        "poll": {"every": "PT5M"},
        "month-end": {"cron": "0 18 L * *"},
    }
    assert found.schedules["nightly-report"]["payload"] == {"job": "report", "note": "$${env:HOME}"}
    assert found.schedules["poll"]["payload"] == "go" and found.schedules["month-end"]["payload"] == {"job": "month-end"}
    assert found.events == [{"id": "launch", "due": "2028-06-01T07:00:00Z", "channel": "default", "payload": {"launch": 1}}]
    lost = {where.partition(": ")[2]: what for where, what in notes(found, lost=True).items()}
    assert lost == {
        "only-2027": "cron(0 8 1 * ? 2027): a schedule has no year, and this one names 2027",
        "off": "it is disabled",
        "summary": "it has no ScheduleExpression",
        "on-upload": "it has an event pattern and no schedule",
    }
    parts = [note.what for note in found.notes if not note.lost and "nightly.report" in note.where]
    assert parts == [
        "the target arn:aws:lambda:eu-central-1:111122223333:function:report",
        "the retry policy: MaximumEventAgeInSeconds 86400, MaximumRetryAttempts 185",
        "the dead-letter queue",
    ]


def test_queues_and_tasks_of_cloud_tasks_become_channels_and_events() -> None:
    found = read("cloud-tasks", "tasks.json", "queue.json", target=replace(TARGET, url=""))
    limits = {"deliveries_per_second": 5.0, "concurrency": 20}
    assert found.channels == {
        "order-reminders": {"type": "http", "url": "https://shop.example/", "limits": limits},
        "order-reminders-2": {"type": "http", "url": "https://other.example/", "limits": limits},
    }
    assert found.events[0] == {
        "id": "remind-17",
        "due": "2028-06-01T09:00:00.250000Z",
        "channel": "order-reminders",
        "payload": {"order": 17},
        "target": {"path": "/tasks/remind", "query": {"order": "17"}, "headers": {"x-trace": "a1"}},
        "retry": {"attempts": 7, "first": "PT0.1S", "max": "PT3600S", "within": "PT86400S"},
    }
    others = {each["id"]: {name: each.get(name) for name in ("payload", "content_type", "target")} for each in found.events[1:]}
    octets = "application/octet-stream"
    assert others == {
        "raw-1": {"payload": "bm90IGpzb24=", "content_type": octets, "target": {"path": "/tasks/raw"}},
        "other-1": {"payload": {}, "content_type": None, "target": {"path": "/", "method": "PUT"}},
        "get-1": {"payload": None, "content_type": None, "target": {"path": "/ping", "method": "GET"}},
    }
    lost = {where.partition(": ")[2]: what for where, what in notes(found, lost=True).items()}
    assert lost == {"engine-1": "it has no httpRequest with a URL"}
    parts = [note.what for note in found.notes if not note.lost]
    assert "it is paused" in parts and "its header X-Api-Key, which may be a secret" in parts and "its oidcToken" in parts
    assert "its dispatchDeadline of 600s" in parts
    assert "hunter2" not in json.dumps(found.document()) + json.dumps(found.events)


def test_a_file_cannot_name_variables_of_the_machine_that_applies_it() -> None:
    evil = "${env:AWS_SECRET_ACCESS_KEY}"
    task = {"name": "projects/p/locations/l/queues/q/tasks/t", "scheduleTime": "2028-06-01T09:00:00Z", "view": "FULL"}
    entry = {"Name": evil, "ScheduleExpression": "rate(1 day)", "Target": {"Input": json.dumps({"a": evil})}}
    entry["ScheduleExpressionTimezone"] = evil
    found = [
        text("eventbridge", json.dumps({**entry, "ScheduleExpression": "cron(0 8 ? * MON *)"})),
        text("eventbridge", json.dumps(entry)),
        text("crontab", f"CRON_TZ={evil}\n0 1 * * * /opt/{evil}.sh\n"),
        text("function-json", json.dumps({"name": evil, "bindings": [{"type": "timerTrigger", "schedule": "01:00:00"}]})),
        carry(
            "cloud-tasks",
            [rules.Source("given", json.dumps({**task, "httpRequest": {"url": f"https://{evil}.evil.example/x"}}))],
            replace(TARGET, url=""),
        ),
    ]
    for each in found:
        assert each.schedules or each.channels
        assert not re.search(r"(?<!\$)\$\{env:", json.dumps(each.document()))


def test_tasks_with_one_id_in_two_queues_become_two_events() -> None:
    tasks = [
        {
            "name": f"projects/p/locations/l/queues/{queue}/tasks/same",
            "scheduleTime": "2028-06-01T09:00:00Z",
            "view": "FULL",
            "httpRequest": {"url": "https://shop.example/"},
        }
        for queue in ("a", "b")
    ]
    found = text("cloud-tasks", json.dumps({"tasks": tasks}))
    assert [(each["id"], each["channel"]) for each in found.events] == [("same", "a"), ("same-2", "b")]
    assert found.channels == {name: {"type": "http", "url": "https://shop.example/hook"} for name in ("a", "b")}


def test_a_task_whose_body_was_not_printed_is_named() -> None:
    task = {"name": "projects/p/locations/l/queues/q/tasks/t", "scheduleTime": "2028-06-01T09:00:00Z", "view": "BASIC"}
    found = text("cloud-tasks", json.dumps({**task, "httpRequest": {"url": "https://shop.example/"}}))
    assert found.events == [] and "--response-view=full" in found.notes[0].what


@pytest.mark.parametrize(
    ("schedule", "every"),
    [("23:59:59", "PT86399S"), ("1.00:00:00", "PT86400S"), ("25:00:00:00", "PT2160000S"), ("24:00:00", None), ("00:90:00", None)],
)
def test_time_span_of_a_timer_is_read_as_dotnet_reads_it_and_an_ambiguous_one_is_refused(schedule: str, every: str | None) -> None:
    found = text("function-json", json.dumps({"name": "a", "bindings": [{"type": "timerTrigger", "schedule": schedule}]}))
    assert found.schedules.get("a", {}).get("every") == every and [note.lost for note in found.notes] == ([] if every else [True])


@pytest.mark.parametrize("expression", ["5/15 * * * *", "0 0 * * MON/2", "0 10/2 * * *"])
def test_step_after_a_single_value_is_refused_because_crons_read_it_differently(expression: str) -> None:
    found = text("crontab", f"{expression} /opt/a.sh\n")
    assert found.schedules == {} and "a step needs" in found.notes[0].what and found.notes[0].lost


@pytest.mark.parametrize(
    "head",
    [
        "# m h dom mon dow user\tcommand\n",
        "# *  *  *  *  * user-name  command to be executed\n",
        "0 1 * * * root cd / && run-parts --report /etc/cron.hourly\n",
        "@daily  root  /usr/sbin/anacron -s\n",
    ],
)
def test_copy_of_a_systems_crontab_is_known_by_its_text(head: str) -> None:
    found = text("crontab", f"{head}17 * * * * www-data /opt/shop/clean.sh\n", "standard input")
    assert found.schedules["clean"]["payload"] == {"job": "clean"}
    assert "the command stays on the machine: /opt/shop/clean.sh" in [note.what for note in found.notes]
    mine = text("crontab", "# m h  dom mon dow   command\n17 * * * * backup /opt/shop/clean.sh\n")
    assert "the command stays on the machine: backup /opt/shop/clean.sh" in [note.what for note in mine.notes]


def test_random_delay_of_a_crontab_is_a_jitter() -> None:
    found = text(
        "crontab", "0 1 * * * /a.sh\n\"RANDOM_DELAY\" = '45'\n0 1 * * * /b.sh\nRANDOM_DELAY=0\n0 1 * * * /c.sh\nRANDOM_DELAY=99999\n"
    )
    assert {id: each.get("jitter") for id, each in found.schedules.items()} == {"a": None, "b": "PT45M", "c": None}
    assert any("RANDOM_DELAY=99999" in note.what for note in found.notes)


def test_schedules_of_eventbridge_that_have_ended_are_left_out() -> None:
    over = [
        {"Name": "ran", "ScheduleExpression": "at(2026-06-01T09:00:00)", "ScheduleExpressionTimezone": "Europe/Berlin"},
        {"Name": "ended", "ScheduleExpression": "rate(1 day)", "EndDate": "2026-06-01T07:00:00Z"},
    ]
    now = 1_780_297_200  # 2026-06-01T07:00:00Z
    found = carry("eventbridge", [rules.Source("given", json.dumps(over))], replace(TARGET, now=now))
    assert found.events == [] and found.schedules == {}
    assert set(notes(found, lost=True).values()) == {"at(2026-06-01T09:00:00): its time is past", "it ended at 2026-06-01T07:00:00Z"}
    before = carry("eventbridge", [rules.Source("given", json.dumps(over))], replace(TARGET, now=now - 1))
    assert [each["due"] for each in before.events] == ["2026-06-01T07:00:00Z"] and set(before.schedules) == {"ended"}


def test_window_of_eventbridge_is_kept_and_never_longer_than_the_interval() -> None:
    window = {"FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 90}}
    entries = [
        {"Name": "once", "ScheduleExpression": "at(2028-06-01T09:00:00)", **window},
        {"Name": "often", "ScheduleExpression": "rate(1 hour)", **window},
        {"Name": "seldom", "ScheduleExpression": "rate(2 hours)", **window},
    ]
    found = text("eventbridge", json.dumps(entries))
    assert found.events[0]["flex"] == "PT90M"
    assert {id: each["jitter"] for id, each in found.schedules.items()} == {"often": "PT1H", "seldom": "PT90M"}
    assert notes(found, lost=False) == {"given: often": "its window of 90 minutes, longer than its interval"}


# --- Bounds and bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["function-json", "eventbridge", "cloud-tasks"])
@pytest.mark.parametrize("content", ["{", "[1, 2", "nonsense", '{"a": 1} garbage', "[" * 100_000, '{"a": NaN}', '["\\ud800"]'])
def test_what_is_not_json_is_refused_with_its_file(form: Format, content: str) -> None:
    with pytest.raises(Exception) as failed:
        text(form, content)
    assert str(failed.value).startswith("given: ") and failed.value.status == Exit.USAGE  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", ["function-json", "eventbridge", "cloud-tasks"])
@pytest.mark.parametrize(
    "content",
    ["1", "null", "[]", "[null, 1, [], {}]", '{"Name": 5}', '{"name": null, "bindings": 3}', '{"bindings": [null, 1, {"type": 5}]}'],
)
def test_json_of_another_shape_is_named_and_nothing_is_made(form: Format, content: str) -> None:
    found = text(form, content)
    assert found.schedules == {} and found.events == [] and len(found.notes) == found.entries


@pytest.mark.parametrize(
    "entry",
    [
        {"ScheduleExpression": "rate(0 minutes)"},
        {"ScheduleExpression": "rate(5 weeks)"},
        {"ScheduleExpression": "cron(* * * *)"},
        {"ScheduleExpression": "at(tomorrow)"},
        {"ScheduleExpression": "at(2028-06-01T09:00:00)", "ScheduleExpressionTimezone": "Mars/Base"},
        {"ScheduleExpression": "at(2028-06-01T09:00:00)", "ScheduleExpressionTimezone": "../../etc/passwd"},
        {"ScheduleExpression": "rate(1 day)", "StartDate": 1e300},
        {"ScheduleExpression": "rate(1 day)", "EndDate": "soon"},
        {"ScheduleExpression": "cron(0 8 ? * 8 *)"},
        {"ScheduleExpression": ["rate(1 day)"]},
    ],
)
def test_an_expression_that_cannot_be_read_is_named(entry: dict[str, Any]) -> None:
    found = text("eventbridge", json.dumps({"Name": "a", **entry}))
    assert found.schedules == {} and found.events == [] and [note.lost for note in found.notes] == [True]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"scheduleTime": "soon"}, "no time with an offset: soon"),
        ({"scheduleTime": "2028-06-01T09:00:00"}, "no time with an offset: 2028-06-01T09:00:00"),
        ({"scheduleTime": None}, "no time with an offset: there is none"),
        ({"httpRequest": {"url": "http://[bad"}}, "Invalid IPv6 URL"),
        ({"httpRequest": {"url": "ftp://shop.example/"}}, "no httpRequest with a URL"),
        ({"httpRequest": {"url": "https://shop.example/", "httpMethod": "HEAD"}}, "its method is HEAD"),
        ({"httpRequest": {"url": "https://shop.example/", "body": "?"}}, "its body is not base64"),
        ({"httpRequest": {"url": "https://shop.example/", "httpMethod": "GET", "body": "MQ=="}}, "a GET with a body"),
        ({"httpRequest": {"url": "https://shop.example/?a=1&b=2&a=3"}}, "its URL repeats a parameter"),
    ],
)
def test_a_task_that_cannot_be_carried_over_is_named(change: dict[str, Any], what: str) -> None:
    task = {"name": "projects/p/locations/l/queues/q/tasks/t", "scheduleTime": "2028-06-01T09:00:00Z"}
    found = text("cloud-tasks", json.dumps({**task, "httpRequest": {"url": "https://shop.example/"}, **change}))
    assert found.events == [] and what in found.notes[0].what


def test_bytes_of_a_task_keep_their_type_and_a_short_deadline_is_the_timeout() -> None:
    headers = {"Content-Type": "text/xml; charset=utf-8"}
    request = {"url": "https://shop.example/", "body": "PGEvPg==", "headers": headers}
    task = {"name": "projects/p/locations/l/queues/q/tasks/t", "scheduleTime": "2028-06-01T09:00:00Z", "dispatchDeadline": "15.5s"}
    [made] = text("cloud-tasks", json.dumps({**task, "httpRequest": request})).events
    assert (made["payload"], made["content_type"], made["timeout"]) == ("PGEvPg==", "text/xml; charset=utf-8", "PT15.5S")


@pytest.mark.parametrize(
    ("kind", "payload", "content_type"),
    [("text/plain", "NDI=", "text/plain"), ("application/json", 42, None), (None, 42, None)],
)
def test_a_body_that_reads_as_json_keeps_another_type_that_its_task_names(kind: str | None, payload: Any, content_type: str | None) -> None:
    request = {"url": "https://shop.example/", "body": "NDI=", "headers": {} if kind is None else {"Content-Type": kind}}
    task = {"name": "projects/p/locations/l/queues/q/tasks/t", "scheduleTime": "2028-06-01T09:00:00Z"}
    [made] = text("cloud-tasks", json.dumps({**task, "httpRequest": request})).events
    assert (made["payload"], made.get("content_type")) == (payload, content_type)


def test_more_definitions_than_are_carried_over_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_ENTRIES", 3)
    assert len(text("crontab", "0 1 * * * /a.sh\n" * 3).schedules) == 3
    with pytest.raises(Exception, match="more than 3 definitions"):
        text("crontab", "0 1 * * * /a.sh\n" * 4)


def test_a_line_of_cron_is_bounded_and_names_are_ids() -> None:
    found = text("crontab", f"0 1 * * * {'x' * 9_000}\n0 1 * * * /opt/{'y' * 400}.sh\n0 1 * * * '$(rm -rf /)'\n0 1 * * * ;;\n")
    assert [note.where for note in found.notes if note.lost] == ["given: line 1"]
    assert all(0 < len(id) <= rules.MAX_ID for id in found.schedules) and len(found.schedules) == 3


# --- The command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def admin(tocsin: Command) -> Command:
    tocsin.environment.setenv("TOCSIN_KEY", LOCAL_ADMIN_KEY)
    return tocsin


def applied(tocsin: Command, path: Path) -> CommandResult:
    return tocsin.ok("apply", "-f", str(path))


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("function-json", ["NightlyReport/function.json", "functions.metadata"]),
        ("crontab", ["crontab.txt", "etc/cron.d/sysstat"]),
        ("eventbridge", ["eventbridge.json"]),
        ("cloud-tasks", ["queue.json", "tasks.json"]),
    ],
)
def test_the_service_takes_what_is_made_of_each_format(form: str, names: list[str], admin: Command, tmp_path: Path) -> None:
    file, events = tmp_path / "tocsin.yaml", tmp_path / "events.ndjson"
    tenant = f"from-{form}"
    given = ["--to", "https://shop.example/hook", "--tenant", tenant, "-o", str(file), "--events", str(events)]
    result = admin("import", "--from", form, *(str(DATA / name) for name in names), *given)
    assert result.code == Exit.FAILED or form == "crontab"
    assert "left out: " in result.err and "\n  do: " in result.err and result.out == ""
    assert file.stat().st_mode & 0o777 == events.stat().st_mode & 0o777 == 0o600
    applied(admin, file)
    stored = {each["id"] for each in admin.ok("schedules", "list", "--tenant", tenant, "--json").documents}
    assert stored == set(parse_yaml(file.read_bytes())["tenants"][tenant].get("schedules", {}))
    app = session.CommandSession(Connection("https://tocsin.test", LOCAL_ADMIN_KEY, tenant))
    for line in events.read_text().splitlines():
        assert app.send("POST", "events", json.loads(line))["state"] == "scheduled"
    app.close()


def test_without_an_address_the_file_names_a_variable_and_is_not_applied_without_it(admin: Command, tmp_path: Path) -> None:
    file = tmp_path / "tocsin.yaml"
    admin.ok("import", "--from", "function-json", str(DATA / "NightlyReport" / "function.json"), "-o", str(file))
    assert "${env:RECEIVER_URL}" in file.read_text()
    refused = admin("apply", "-f", str(file), "--dry-run")
    assert refused.code == Exit.USAGE and "RECEIVER_URL" in refused.err
    named = admin.ok("import", "--from", "function-json", str(DATA / "NightlyReport" / "function.json"), "--channel", "hook")
    assert parse_yaml(named.out.encode())["tenants"]["imported"] == {
        "schedules": {"NightlyReport": {"cron": "30 2 * * 1-5", "channel": "hook", "payload": {"job": "NightlyReport"}}}
    }


def test_standard_input_json_and_one_time_entries_without_a_file(tocsin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"0 3 * * * /opt/a.sh\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    result = tocsin.ok("import", "--from", "crontab", "-", "--json", "--timezone", "Europe/Berlin")
    [document] = result.documents
    assert document["tenants"]["imported"]["schedules"]["a"]["timezone"] == "Europe/Berlin"
    [note] = [json.loads(line) for line in result.err.splitlines()]
    assert note["where"] == "standard input: line 1" and note["lost"] is False
    left = tocsin("import", "--from", "eventbridge", str(DATA / "eventbridge.json"))
    assert (
        left.code == Exit.FAILED
        and "event launch: left out: it happens once, at 2028-06-01T07:00:00Z\n  do: Give --events FILE." in left.err
    )


def test_files_that_cannot_be_read_are_refused(tocsin: Command, tmp_path: Path) -> None:
    assert "cannot be read" in tocsin("import", "--from", "crontab", str(tmp_path / "none")).err
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    result = tocsin("import", "--from", "crontab", str(tmp_path / "binary"))
    assert result.code == Exit.USAGE and "not UTF-8" in result.err
    assert "cannot be written" in tocsin("import", "--from", "crontab", str(DATA / "crontab.txt"), "-o", "/nonexistent/x").err


def test_expressions_are_rewritten_and_checked_without_the_library_that_computes_occurrences() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT_CRONSIM], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("0 12 * * 1-5\n", 0), done.stderr
