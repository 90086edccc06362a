"""Real receivers with one planted fault each: the fault is found by its line, and no other line is red."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

import pytest

from shared.cli.findings import Line
from shared.cli.receiver.endpoint import Endpoint
from shared.cli.receiver.plan import Check, CheckPlan, requests_of
from shared.cli.receiver.requests import Requests
from shared.cli.receiver.rules import judge
from shared.cli.receiver.run import ReceiverRun
from shared.cli.receiver.seen import ReceiverSeen
from shared.delivery.egress_guard import Egress

from . import receivers
from .receivers import SECRET, Good, running

PLAN = CheckPlan(timeout=20.0, rate=200.0, late=0.6, idle=0.4, pieces=0.5, settle=0.05, longest_settle=2.4)
FAST = CheckPlan(timeout=0.5, grace=8.0, rate=200.0, late=0.6, idle=0.4, pieces=0.1, settle=0.05)
STEADY = CheckPlan(timeout=1.0, grace=1.0, rate=200.0, late=0.6, idle=60.0)
EGRESS = Egress(["127.0.0.0/8"])
PAYLOAD = b'{"order":17,"name":"caf\xc3\xa9"}'


def check(receiver: Good, plan: CheckPlan = PLAN, *, counted: bool = False, checks: Collection[Check] = tuple(Check)) -> dict[str, Line]:
    """Run the checks against a receiver; return the lines by name."""
    seen = ReceiverSeen()

    async def run(port: int) -> None:
        url = f"http://127.0.0.1:{port}"
        made = Requests(f"{url}/hook", [SECRET], EGRESS, method="POST", headers={}, timeout=plan.timeout, seed="s1")
        endpoint = Endpoint(f"{url}/hook", EGRESS)
        await endpoint.resolve()
        it = ReceiverRun(endpoint, made, PAYLOAD, seen, plan, lambda text: None)
        if counted:
            it.count_at(endpoint, url + "/done?event={id}")
        await it.run(checks)

    with running(receiver) as port:
        asyncio.run(run(port))
    assert seen.requests <= requests_of(checks, token=False, counted=counted)
    lines = judge(seen, plan, checks)
    assert len({line.check for line in lines}) == len(lines)
    assert all((line.means and line.do) or line.result == "ok" for line in lines)
    return {line.check: line for line in lines}


def results(lines: dict[str, Line]) -> dict[str, str]:
    """Return the results that are not ok."""
    return {name: line.result for name, line in lines.items() if line.result != "ok"}


@pytest.mark.parametrize("counted", [False, True], ids=["header", "count"])
def test_good_receiver_has_no_fault_and_nothing_is_left_unseen(counted: bool) -> None:
    lines = check(Good(), counted=counted)
    assert results(lines) == {}
    assert {"duplicates", "parallel", "late", "same payload", "signature", "idle", "connections"} <= set(lines)


UNJUDGED = ("timestamp", "rotation", "bytes")
PLANTED: dict[type[Good], dict[str, str]] = {
    receivers.Chunked: {},
    receivers.NoDedup: {"duplicates": "bad", "parallel": "unseen", "late": "unseen"},
    receivers.DedupByBody: {"same payload": "bad"},
    receivers.DedupByCeId: {"ce-id": "bad"},
    receivers.Race: {"parallel": "bad"},
    receivers.Forgets: {"late": "bad"},
    receivers.RefusesDuplicates: {"duplicates": "bad", "late": "bad"},
    receivers.VerifiesNothing: {"signature": "bad", **dict.fromkeys(UNJUDGED, "unseen")},
    receivers.VerifiesDecoded: {"bytes": "bad", "large": "unseen"},
    receivers.IgnoresTime: {"timestamp": "bad"},
    receivers.FirstSignatureOnly: {"rotation": "bad"},
    receivers.StoresBeforeVerifying: {"signature": "bad"},
    receivers.FinalForWrongSignatures: {"signature": "look"},
    receivers.FailsForWrongSignatures: {"signature": "look", "timestamp": "look"},
    receivers.Closes: {"connections": "look"},
    receivers.ClosesAnnounced: {"connections": "look"},
    receivers.NoSecondRequest: {"connections": "bad", "idle": "look"},
    receivers.InexactClock: {"clock": "look"},
    receivers.SmallBodies: {"large": "bad"},
    receivers.CrashesOnEmpty: {"empty": "bad"},
    receivers.CrashesOnText: {"text": "bad"},
    receivers.ShortIds: {"headers": "bad"},
    receivers.SmallHeaders: {"headers": "look"},
    receivers.WrongClock: {"clock": "bad", "delivery": "look"},
    receivers.ProxyWithWrongClock: {"clock": "bad"},
    receivers.ProxyWithVeryWrongClock: {"clock": "look"},
    receivers.FailsByChance: {"bytes": "bad"},
    receivers.FailsByChanceInRotation: {"rotation": "bad"},
    receivers.BadRequestWithoutSignature: {},
}


@pytest.mark.parametrize("faulty", PLANTED, ids=lambda faulty: faulty.__name__)
def test_planted_fault_is_found_by_its_line_and_no_other_line_is_red(faulty: type[Good]) -> None:
    assert results(check(faulty())) == PLANTED[faulty]


BLIND = {"duplicates": "unseen", "parallel": "unseen", "late": "unseen"}
WITH_A_COUNT: dict[type[Good], dict[str, str]] = {
    receivers.NoDedup: {"duplicates": "bad", "parallel": "unseen", "late": "unseen"},
    receivers.Race: {"parallel": "bad"},
    receivers.Silent: {},
    receivers.AnswersBeforeWork: {"effect": "look"},
    receivers.WorksBeforeVerifying: {"signature": "bad"},
    receivers.WrongCount: {**BLIND, "effect": "bad"},
    receivers.NoCount: {**BLIND, "count": "bad"},
    receivers.AcceptsAndIgnores: {"signature": "look"},
    receivers.WorksLaterAndVerifiesNothing: {"signature": "bad", "effect": "look"},
    receivers.ThrottlesCounts: {**BLIND, "count": "look"},
}


@pytest.mark.parametrize("faulty", WITH_A_COUNT, ids=lambda faulty: faulty.__name__)
def test_planted_fault_is_found_by_the_count_of_effects(faulty: type[Good]) -> None:
    checks = [Check.DUPLICATES, Check.PARALLEL, Check.SIGNATURE, Check.LATE]
    assert results(check(faulty(), counted=True, checks=checks)) == WITH_A_COUNT[faulty]


def test_without_count_and_header_duplicates_cannot_be_seen_and_the_lines_say_how_to_make_them_visible() -> None:
    lines = check(receivers.Silent())
    assert results(lines) == BLIND
    assert all("tocsin-duplicate" in lines[name].do and "--count-url" in lines[name].do for name in BLIND)


HOSTILE: dict[type[Good], tuple[CheckPlan, dict[str, str]]] = {
    receivers.Slow: (FAST, {"answer time": "bad"}),
    receivers.NeverAnswers: (STEADY, {"delivery": "bad"}),
    receivers.Redirects: (PLAN, {"delivery": "bad"}),
    receivers.HeaderBomb: (PLAN, {"delivery": "bad"}),
    receivers.SlowDrip: (STEADY, {"delivery": "bad"}),
    receivers.Escapes: (PLAN, {"delivery": "bad"}),
    receivers.NotHttp: (PLAN, {"delivery": "bad"}),
    receivers.NoClock: (PLAN, {"delivery": "bad"}),
    receivers.BadDate: (PLAN, {"delivery": "bad"}),
    receivers.OneAtATime: (STEADY, {"run": "bad", "signature": "unseen"}),
}


@pytest.mark.parametrize("faulty", HOSTILE, ids=lambda faulty: faulty.__name__)
def test_endpoint_that_does_not_answer_in_order_is_found_and_no_text_of_it_is_shown(faulty: type[Good]) -> None:
    plan, expected = HOSTILE[faulty]
    lines = check(faulty(), plan, checks=[Check.SIGNATURE])
    assert results(lines) == expected
    assert all(text.isprintable() for line in lines.values() for text in (line.found, line.means, line.do))


def test_endless_answers_are_left_after_a_second_and_named() -> None:
    lines = check(receivers.EndlessAnswer(), checks=[Check.DUPLICATES])
    assert results(lines) == {"clock": "unseen", "answer body": "look", "connections": "look", "duplicates": "unseen"}


def test_answer_before_the_body_is_found() -> None:
    lines = check(receivers.AnswersBeforeBody(), checks=[Check.SLOW])
    assert results(lines) == {"slow": "bad", "connections": "look"}


def test_failure_by_chance_is_not_taken_for_a_wrong_signature() -> None:
    assert "fails" in check(receivers.FailsByChance(), checks=[Check.BYTES])["bytes"].means


def test_checks_are_unseen_and_none_is_bad_where_the_endpoint_limits_the_rate() -> None:
    lines = check(receivers.Throttles())
    assert results(lines) == {"rate": "look", **dict.fromkeys(("signature", "bytes", "rotation"), "unseen")}
    assert "429" in lines["rate"].found and "--rate" in lines["bytes"].do


def test_certain_fault_is_found_though_the_endpoint_limits_the_rate() -> None:
    found = results(check(receivers.ThrottlesAndVerifiesNothing(), checks=[Check.SIGNATURE]))
    assert found == {"rate": "look", "signature": "bad"}


@pytest.mark.parametrize("counted", [False, True])
def test_time_for_which_the_rate_delays_a_request_does_not_count_as_the_receivers(counted: bool) -> None:
    # A wait for the turn is longer than half of the time limit.
    plan = replace(PLAN, timeout=2.0, grace=8.0, rate=0.8)
    assert results(check(Good(), plan, counted=counted, checks=[])) == {}


def test_connection_that_is_closed_while_the_rate_delays_a_request_is_no_failed_delivery() -> None:
    lines = check(receivers.ShortKeepAlive(), replace(PLAN, rate=0.8), checks=[])
    assert results(lines) == {"connections": "look"} and "closed within" in lines["connections"].found
