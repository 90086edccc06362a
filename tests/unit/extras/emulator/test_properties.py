"""Whatever is scripted, asked and waited for, the emulated service keeps its own contract."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import Problem
from shared.extras.emulator import rules
from shared.extras.emulator.metadata_service import EVENTS_PATH, ImdsRequest, ask
from shared.extras.emulator.model import World
from shared.extras.emulator.scenario import steps_of
from shared.extras.emulator.transitions import listed_events
from tests.unit.extras.emulator.worlds import LATEST, METADATA, START, world

VMS = [
    {"name": "a", "host": "h1", "fault_domain": 0},
    {"name": "b", "host": "h1", "fault_domain": 0},
    {"name": "c", "host": "h2", "fault_domain": 1, "incarnation": 5},
    {"name": "x", "host": "h1", "scope": "other"},
]
NAMES = st.sampled_from(["e1", "e2", "e3"])
SOME = st.lists(st.sampled_from(["a", "b", "c", "x"]), min_size=1, max_size=3, unique=True)
SPANS = st.sampled_from(["PT0S", "PT1S", "PT30S", "PT10M", "PT26H"])
TARGETS = st.one_of(
    st.builds(lambda vms: {"vms": vms}, SOME), st.sampled_from([{"host": "h1"}, {"host": "h2"}, {"fault_domain": 0}, {"fault_domain": 1}])
)
EVENTS = st.builds(
    lambda name, target, more: {"event": {"name": name, **target, **more}},
    NAMES,
    TARGETS,
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["Freeze", "Reboot", "Preempt"]),
            "notice": SPANS,
            "settles": SPANS,
            "delay": SPANS,
            "others": st.sampled_from(["never", "PT1M"]),
            "started": st.booleans(),
        },
    ),
)
STEPS = st.one_of(
    EVENTS,
    *(st.builds(lambda name, verb=verb: {verb: name}, NAMES) for verb in ("cancel", "vanish", "start", "complete")),
    *(st.builds(lambda name, vms, verb=verb: {verb: {"event": name, "vms": vms}}, NAMES, SOME) for verb in ("hide", "show")),
    st.builds(lambda name, span: {"change": {"event": name, "notice": span}}, NAMES, SPANS),
    st.builds(lambda name: {"impact": {"event": name, "lasts": "PT20S"}}, NAMES),
    st.builds(lambda name: {"approve": {"event": name}}, NAMES),
    st.builds(lambda vms, number: {"reset": {"vms": vms, "incarnation": number}}, SOME, st.integers(0, 5)),
    st.builds(lambda vms: {"skip": {"vms": vms, "by": 2}}, SOME),
    st.builds(lambda vms, times: {"fault": {"vms": vms, "status": 503, "times": times}}, SOME, st.integers(1, 3)),
)
MOVES = st.one_of(
    STEPS,
    st.builds(lambda vm: ("get", vm), st.sampled_from(["a", "b", "c", "x"])),
    st.builds(lambda vm, index: ("post", vm, index), st.sampled_from(["a", "b", "c", "x"]), st.integers(0, 3)),
    st.builds(lambda seconds: ("wait", seconds), st.sampled_from([0.001, 0.5, 1, 29.5, 60, 600, 3600, 90_000])),
)
BEGINNINGS = st.sampled_from(
    [
        [],
        [{"event": {"name": "e1", "host": "h1"}}, ("post", "a", 0)],
        [{"event": {"name": "e1", "host": "h1", "settles": "PT10M"}}, ("post", "a", 0), ("post", "b", 0), {"approve": {"event": "e1"}}],
        [{"event": {"name": "e1", "host": "h1", "settles": "PT10M"}}, ("wait", 960)],
    ]
)
"""Moves that random ones rarely make: one machine of a host has approved, all have, and NotBefore has passed without approval."""


def moved(there: World, move: Any) -> World:
    """The world after one move; a step that does not fit leaves it as it is."""
    if isinstance(move, dict):
        try:
            return rules.inject_steps(there, steps_of(move))
        except Problem:
            return there
    kind, value, *more = move
    if kind == "wait":
        return rules.tick(there, there.now + round(value * 1000))
    body = b""
    if kind == "post" and there.events:
        body = json.dumps({"StartRequests": [{"EventId": there.events[more[0] % len(there.events)].shown.id}]}).encode()
    return rules.tick(ask(there, value, ImdsRequest(kind.upper(), EVENTS_PATH, LATEST, METADATA, body))[0], there.now)


@given(st.lists(MOVES, max_size=30), st.sampled_from([0, 60]))
def test_a_document_has_a_new_incarnation_exactly_when_it_changes(moves: list[Any], flow: int) -> None:
    there = world(*VMS, flow=f"PT{flow}S")
    for move in moves:
        after = moved(there, move)
        for name, vm in after.vms.items():
            before = there.vms[name]
            # Many changes may fall into one wait; then the number has moved on at least as soon as the document differs.
            if vm.on_at is None or before.on_at is None or (isinstance(move, dict) and ("reset" in move or "skip" in move)):
                continue
            if vm.on_at != before.on_at:
                continue
            same = listed_events(there, before) == listed_events(after, vm)
            waited = not isinstance(move, dict) and move[0] == "wait"
            assert (vm.incarnation == before.incarnation) == same or (waited and same and vm.incarnation > before.incarnation)
        there = after


@given(BEGINNINGS, st.lists(MOVES, max_size=30))
def test_no_event_starts_before_not_before_unless_all_of_its_host_have_approved_or_it_was_made_to(
    first: list[Any], more: list[Any]
) -> None:
    there, forced = world(*VMS), set()
    for move in (*first, *more):
        if isinstance(move, dict):
            forced |= {move["start"]} if "start" in move else set()
            forced |= {move["event"]["name"]} if "event" in move and move["event"].get("started") else set()
        there = moved(there, move)
        for event in there.events:
            if event.started_at is None or event.name in forced:
                continue
            job = [each for each in (*there.events, *there.ended) if each.job == event.job]
            approved = all(each.approved_at is not None and each.others_at is not None for each in job)
            assert approved or event.started_at >= min(each.shown.not_before for each in job)


@given(BEGINNINGS, st.lists(MOVES, max_size=30))
def test_approvals_stay_and_ended_events_do_not_come_back(first: list[Any], more: list[Any]) -> None:
    there = world(*VMS)
    for move in (*first, *more):
        after = moved(there, move)
        known = {event.shown.id: event for event in (*after.events, *after.ended)}
        for event in there.events:
            if event.approved_at is not None:
                assert known[event.shown.id].approved_at == event.approved_at
        for event in there.ended:
            assert known[event.shown.id].outcome == event.outcome
        there = after


@given(st.lists(MOVES, max_size=20), st.integers(0, 100_000_000), st.integers(0, 100_000_000))
def test_what_happens_does_not_depend_on_how_often_one_looks(moves: list[Any], first: int, more: int) -> None:
    there = world(*VMS)
    for move in moves:
        there = moved(there, move)
    assert rules.tick(rules.tick(there, there.now + first), there.now + first + more) == rules.tick(there, there.now + first + more)


@given(st.lists(MOVES, max_size=30))
def test_the_log_has_no_gaps_and_its_times_do_not_step_back(moves: list[Any]) -> None:
    there = world(*VMS)
    for move in moves:
        there = moved(there, move)
    assert [line.number for line in there.log] == list(range(1, there.happened + 1))
    assert all(START <= one.at <= two.at for one, two in zip(there.log, there.log[1:], strict=False))


@given(st.lists(MOVES, max_size=30))
def test_in_the_end_nothing_is_left(moves: list[Any]) -> None:
    there = world(*VMS)
    for move in moves:
        there = moved(there, move)
    there = rules.tick(there, there.now + 40 * 86_400_000)
    assert not there.events and not there.impacts and rules.next_due(there) is None
