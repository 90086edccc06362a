"""The conformance mode: names, the verdict on a load, advice, the command line."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest
from azure.core.credentials import AccessToken

from devhost.conformance import service
from devhost.conformance.__main__ import main
from devhost.conformance.access import CONNECTION, RunTables, StorageAccess, Traffic
from devhost.conformance.access_check import explain
from devhost.conformance.load import PART, Posted, cancel, judge
from devhost.conformance.naming import Run
from devhost.conformance.parts import PARTS, Options
from devhost.conformance.removal import command
from devhost.conformance.report import Percentiles, Report
from shared.app.application import Application
from shared.core.clock import ServerTime, SystemClock, to_text
from shared.core.errors import Problem, UnsafeSettings
from shared.storage import limits
from shared.storage.names import ALL_QUEUES, ALL_TABLES, POISON_QUEUES
from shared.storage.ports import Applied, Op
from shared.storage.server_time import ServerTimeEstimator, time_etag

NOW = datetime(2026, 11, 23, 15, 3, 26, tzinfo=UTC)


def test_a_runs_names_are_legal_and_contain_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", Tokens)
    run = Run.new(NOW)
    assert run.began == NOW.replace(second=0) and Run.new(NOW) != run and Run.parse(run.id) == run
    access = StorageAccess(account="someaccount", run=run)
    suite, load = access.tables(), access.tables(part=PART)
    for table in ALL_TABLES:
        names = {suite.named(table), load.named(table)}
        assert len(names) == 2, "the load must not find what the suite has stored"
        for name in names:
            limits.check_table(name)
            assert Run.of(name) == run
    for queue in (*ALL_QUEUES, *POISON_QUEUES):
        limits.check_queue(run.queues + queue)
        assert Run.of(run.queues + queue) == run


@pytest.mark.parametrize(
    "name",
    ["TocsinEvents", "tocsin-shards", "TocsinConformance", "TocsinConformanceNotes", "TocsinConformance26112315030011aabbx",
     "TocsinConformance26992315030011aabbxEvents", "tocsin-conformance-2611231503-events", "xTocsinConformance26112315030011aabbxEvents"],
)  # fmt: skip
def test_no_other_name_is_taken_for_a_runs(name: str) -> None:
    assert Run.of(name) is None


def test_a_wrong_id_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("", "x", "2611231503", "26113315030011aabb", "*"):
        with pytest.raises(ValueError, match="is not the id of a run"):
            Run.parse(text)
    with pytest.raises(SystemExit, match="2"):
        main(["--azurite", "--clean", "everything"])
    assert "--clean: 'everything' " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the account: --account NAME"),
        (["--account", "https://a.table.core.windows.net"], "--account takes the name of a storage account"),
        (["--account", "abc", "--azurite"], "give either --account or --azurite"),
        (["--azurite", "--only", "load,lease"], "--only: 'lease' is none of suite, gate, service, load"),
        (["--azurite", "--only", ","], "--only: ',' is none of"),
        (["--azurite", "--minutes", "0"], "--minutes must be more than 0"),
        (["--azurite", "--minutes", "nan"], "--minutes must be more than 0"),
    ],
)
def test_wrong_use_is_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CONNECTION, raising=False)
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err


def test_without_a_terminal_nothing_is_done_unless_yes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(["--account", "someaccount"]) == 2
    said = capsys.readouterr().out
    assert "estimate " in said and "USD" in said and "give --yes" in said


def test_an_account_is_opened_by_its_name() -> None:
    access = StorageAccess(account="someaccount", suffix="core.chinacloudapi.cn", run=Run.new(NOW))
    assert access.address("table") == "https://someaccount.table.core.chinacloudapi.cn" and not access.emulated
    again = StorageAccess.from_environment(access.environment())
    assert (again.address("queue"), again.run) == ("https://someaccount.queue.core.chinacloudapi.cn", access.run)
    assert command(access, Run("26112315030011aabb")) == "python -m devhost.conformance --account someaccount --clean 26112315030011aabb"


class Tokens:
    """A fake of azure-identity: each token is a new one and lasts for an hour."""

    asked = 0

    def __init__(self) -> None:
        type(self).asked = 0

    def get_token(self, *scopes: str, **options: object) -> AccessToken:
        type(self).asked += 1
        return AccessToken(f"token{self.asked}", int(time.time()) + 3600)

    def close(self) -> None:
        pass


def test_all_adapters_share_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", Tokens)
    access = StorageAccess(account="someaccount")

    async def authorized() -> str:
        headers: dict[str, str] = {}
        credential = access.open_account("queue").credential
        await credential.authorize("GET", "/", {}, headers, 0)
        await credential.close()
        return headers["Authorization"]

    assert [asyncio.run(authorized()) for _ in range(3)] == ["Bearer token1"] * 3 and Tokens.asked == 1
    access.blocking_tables().close()
    access.close()


def test_a_connection_string_in_the_clear_is_refused() -> None:
    with pytest.raises(UnsafeSettings):
        StorageAccess(connection="DefaultEndpointsProtocol=http;AccountName=abc;AccountKey=YWJj")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("no token for the storage account: CredentialUnavailableError", "az login"),
        ("the list request failed 2 times, last: ClientConnectorDNSError", "Is the account's name right"),
        ("AuthorizationPermissionMismatch (403)", "'Storage Queue Data Contributor'"),
        ("KeyBasedAuthenticationNotPermitted (403)", "--account NAME"),
        ("AuthorizationFailure (403)", "network rules"),
        ("InvalidAuthenticationInfo (401)", "another tenant"),
    ],
)
def test_a_refusal_is_explained(error: str, advice: str) -> None:
    assert advice in explain(StorageAccess(account="someaccount"), "queue", error)


def test_a_load_is_judged_by_what_was_acknowledged() -> None:
    posted = Posted(due=dict.fromkeys("abcdef", 100), cancelled={"e"}, doubtful={"f"})
    arrivals = [("a", 100), ("b", 99), ("c", 150), ("c", 160), ("e", 120), ("unknown", 5)]
    found = judge(posted, arrivals)
    assert (found.lost, found.early, found.doubled, found.after_cancel) == (["d"], ["b"], ["c"], ["e"])


@pytest.mark.parametrize(("code", "refused"), [("already-firing", 0), ("already-final", 0), ("not-found", 1)])
async def test_an_event_that_was_claimed_before_its_cancel_must_be_delivered(code: str, refused: int) -> None:
    class Changes:
        async def cancel(self, *_: object) -> None:
            raise Problem(409, code, "no")

    posted = Posted(due={"a": 100})
    await cancel(cast(Application, SimpleNamespace(scheduler=SimpleNamespace(changes=Changes()))), posted, "a")
    assert sum(posted.refused.values()) == refused and posted.too_late == ({"a"} if not refused else set())
    assert judge(posted, []).lost == ["a"]


def test_a_failed_check_and_a_note_are_distinguished() -> None:
    output = io.StringIO()
    report = Report(output)
    report.add("one", "ok", "well")
    report.add("two", "note", "differs")
    assert report.failed == 0
    report.add("three", "FAILED", "bad")
    assert report.failed == 1 and output.getvalue().splitlines()[2] == "FAILED   three: bad"


class _Clocks:
    """Tables whose partitions have clocks of their own. ahead: milliseconds, by partition."""

    def __init__(self, ahead: dict[str, int]) -> None:
        self._ahead = ahead

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied:
        return Applied((time_etag(to_text(SystemClock().now() + self._ahead.get(pk, 0)), 0),))


@pytest.mark.parametrize(
    ("ahead", "outcome"),
    [({}, "ok"), ({"timesa": 60_000}, "FAILED"), ({"times3": 500, "times4": -400}, "note")],
)
async def test_clocks_of_partitions_that_differ_are_noted_and_ones_that_differ_by_seconds_fail(
    ahead: dict[str, int], outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_APART", 5_000.0)
    target = service.Target(cast(RunTables, _Clocks(ahead)), Traffic(), ServerTimeEstimator(SystemClock()), emulated=False, batches=1)
    report = Report(io.StringIO())
    await report.run("times of partitions", service.times_of_partitions(target))
    [line] = report.lines
    assert line.outcome == outcome and "the clocks of 16 partitions are at least" in line.detail


def test_spread_of_clocks_is_between_what_is_certain_and_what_is_possible() -> None:
    near = service.spread_of([ServerTime(0.0, 30.0, 0.0), ServerTime(20.0, 40.0, 0.0)], 0.0)
    apart = service.spread_of([ServerTime(0.0, 10.0, 0.0), ServerTime(5.0, 20.0, 0.0), ServerTime(60.0, 70.0, 0.0)], 0.0)
    assert near == (0.0, 40.0) and apart == (50.0, 70.0)


def test_percentiles_of_any_number_of_values() -> None:
    assert Percentiles.of([]) == Percentiles(0, 0.0, 0.0, 0.0)
    assert Percentiles.of(list(range(200, 0, -1))) == Percentiles(200, 101, 199, 200)


def test_the_estimate_grows_with_the_load() -> None:
    short, long = (PARTS["load"].expect(Options(("load",), minutes)) for minutes in (1, 10))
    assert long["table"] > 5 * short["table"] and long["queue"] > 3 * short["queue"]
