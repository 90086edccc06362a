"""Agents and app together, each by its production rules, in the wire's own words: lost answers, restarts, partitions, holds, approvals."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from email.utils import formatdate
from typing import Any, Final

import pytest

from shared.maintenance import approvals, rules
from shared.maintenance.agent.app.messages import ReportReceipt, body_of, read_answer
from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.decisions import step as agents
from shared.maintenance.agent.effects import Approve, RunHook, SendResult
from shared.maintenance.agent.imds.client import Machine
from shared.maintenance.agent.imds.document import read
from shared.maintenance.agent.journal import decode, encode
from shared.maintenance.agent.model import EventsDocument, NodeState, Now
from shared.maintenance.agent.observations import ApprovalPosted, AppUnreachable, DocumentRead, HookEnded, Observation, StartUp, Tick
from shared.maintenance.domain_guard import is_live
from shared.maintenance.model import AgentReportIn
from shared.maintenance.rows import EventRow, FleetEvents
from shared.maintenance.rule_settings import FleetRule, MaintenanceSettings
from shared.maintenance.service.service import _node
from shared.maintenance.service.views import answer_out

START: Final = 1_800_000_000_000
NAMES: Final = ("a", "b", "c")
DOMAINS: Final = {name: name for name in NAMES}
HOOKS: Final[dict[Any, float]] = {"prepare": 60.0, "emergency": 20.0, "restore": 60.0, "verify": 30.0, "caught_up": 30.0}
SEEDS: Final = 40
MOVES: Final = (
    *("time", "time", "look", "look", "hook", "hook", "report", "report", "report"),
    *("lost", "restart", "event", "azure", "person", "leave"),
)
FLEETS: Final = (
    MaintenanceSettings(catch_up=0, hand_off=20_000),
    MaintenanceSettings(catch_up=30_000, hand_off=20_000, early=True),
    MaintenanceSettings(catch_up=0, hand_off=20_000, early=True, domains_down=3),
    MaintenanceSettings(lead=60_000, catch_up=0, hand_off=20_000, require_central=True, rules=(FleetRule("prepare", source="User"),)),
)


class One:
    """A node and its agent. `ready`: the events it is prepared for; `holds`: those that its agent was told to hold; `passed_over`: events
    and nodes that they did not wait for when the app answered last."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet, self.name, self.partitions, self.boots = fleet, name, 0, 1
        self.settings = AgentSettings(f"vm_{name}", hooks=HOOKS, central=True, fleet="db", retry_first=0.0)
        self.state, self.ready, self.holds = NodeState(), set[str](), set[str]()
        self.passed_over = set[tuple[str, str]]()
        self.run: RunHook | None = None
        self.seq = 0
        self.observe(StartUp("boot-1", "none"))

    def observe(self, observation: Observation) -> None:
        now = Now(self.fleet.wall, self.fleet.wall / 1000)
        self.state, effects = agents.step(self.state, observation, now, self.settings)
        posts = list[Approve]()
        for effect in effects:
            match effect:
                case RunHook():
                    self.run = effect
                    if effect.kind == "restore":
                        self.ready.clear()
                case Approve():
                    posts.append(effect)
                case SendResult():
                    self.fleet.result(self, effect)
        for post in posts:
            if post.raw_id in self.fleet.listed:
                self.fleet.approved(self, post)
                self.observe(ApprovalPosted(post.event_id, "accepted", 200, post.grant))
            else:
                self.observe(ApprovalPosted(post.event_id, "refused", 404, post.grant))

    def look(self) -> None:
        found = read(json.dumps({"DocumentIncarnation": self.fleet.wall, "Events": list(self.fleet.listed.values())}).encode())
        assert isinstance(found, EventsDocument)
        self.observe(DocumentRead(found))

    def hook(self, ok: bool) -> None:
        run, self.run = self.run, None
        if run is not None:
            stopping = self.state.run is not None and self.state.run.stopping
            if run.kind == "prepare" and ok and not stopping and run.record is not None:
                self.ready.add(run.record.event.event_id)
            self.observe(HookEnded(run.run, ok))

    def restart(self) -> None:
        self.run = None
        self.state = decode(encode(self.state))
        self.observe(StartUp("boot-1", "kept", self.state.disabled))

    def report(self, *, lost: bool) -> None:
        """Its report arrives; the answer does too, unless it is lost."""
        self.seq += 1
        machine = Machine(f"vm_{self.name}", "west", "set", self.fleet.domains.get(self.name, self.name))
        body = {**body_of(self.state, self.name, machine), "seq": self.seq}
        shown, sent = agents.prepared_events(self.state), self.fleet.wall / 1000
        told = _node(AgentReportIn.model_validate_json(json.dumps(body), strict=True))
        heard = self.fleet.heard(told)
        answer = json.dumps(answer_out(heard.answer, self.fleet.settings)).encode()
        if lost:
            self.observe(AppUnreachable("lost"))
            return
        found = read_answer(answer, sent, shown)
        assert isinstance(found, ReportReceipt), found
        self.holds = set(found.answer.holds)
        self.passed_over = {
            (event.event_id, name) for event in self.fleet.view.events.values() for name in NAMES if self.fleet.passes_over(name, event)
        }
        self.observe(found.answer)


class Fleet:
    """Three nodes in fault domains of their own (or `domains`), the app's rows, and Azure. `posts`: what was approved; `joint`: the number
    of events of several nodes among it that no lease was given for."""

    def __init__(self, settings: MaintenanceSettings, dice: random.Random, domains: Mapping[str, str] = DOMAINS) -> None:
        self.settings, self.dice, self.wall, self.view = settings, dice, START, FleetEvents({}, {})
        self.listed = dict[str, dict[str, Any]]()
        self.posts, self.made, self.joint, self.domains = list[str](), 0, 0, domains
        self.nodes = {name: One(self, name) for name in domains}
        for node in self.nodes.values():
            # Who has never heard of its fleet's settings goes by its own in the end.
            node.report(lost=False)

    def heard(self, told: Any) -> rules.AcceptedAgentReport:
        asked = rules.nodes_to_drain(self.view, told, self.settings)
        held = {name: self.nodes[name].partitions for name in asked}
        heard = rules.receive(self.view, told, self.settings, held, True, self.wall)
        assert isinstance(heard, rules.AcceptedAgentReport)
        self.view = FleetEvents({**self.view.nodes, heard.node.node: heard.node}, heard.events, heard.monitors)
        return heard

    def result(self, node: One, result: SendResult) -> None:
        made = rules.finish(self.view, result.approval_id, node.name, result.outcome, result.http_status)
        if isinstance(made, EventRow):
            self.view = replace(self.view, events={**self.view.events, made.event_id: made})

    def approved(self, node: One, post: Approve) -> None:
        """The judge of a POST."""
        raw = self.listed[post.raw_id]
        named = [name for name in self.domains if f"vm_{name}" in raw["Resources"]]
        by_rule = raw["EventSource"] == "User" and not self.settings.rules
        again = any(each.partition(".")[0] == post.event_id for each in self.posts)
        self.posts.append(post.grant or post.event_id)
        if by_rule or again or raw["EventStatus"] == "Started":
            # Azure has it already, or has begun: nothing more comes of it.
            return
        event = self.view.events.get(post.event_id)
        for name in named:
            ready = post.event_id in self.nodes[name].ready
            assert ready or (post.event_id, name) in node.passed_over, f"unprepared: {node.name} approves {post.event_id} for {name}"
        if post.grant:
            # An approval that was leased just before may still go out.
            held = event.hold if event is not None else None
            assert held is None or self.wall <= held.at + approvals.GRANT_LEASE, f"held: {node.name} approves {post.event_id}"
            given = event.grant if event is not None else None
            by_hand = given is not None and given.by != approvals.BY_FLEET and self.wall >= given.at + self.settings.hand_off
            for name in named:
                drained = not self.nodes[name].partitions or (post.event_id, name) in node.passed_over
                assert by_hand or drained, f"partitions: {node.name} approves for {name}"
        else:
            assert post.event_id not in node.holds, f"held: {node.name} approves {post.event_id} by itself"
            self.joint += len(named) > 1
            given = event.grant if event is not None else None
            by_hand = given is not None and given.by != approvals.BY_FLEET and self.wall >= given.at + self.settings.hand_off
            for name in named if len(named) > 1 else ():
                drained = not self.nodes[name].partitions or (post.event_id, name) in node.passed_over
                assert by_hand or drained, f"partitions: {node.name} approves by itself for {name}"

    def passes_over(self, name: str, event: EventRow) -> bool:
        """Return true if an approval need not wait for a node, because its agent is silent towards the app."""
        if name not in self.view.nodes:
            return False
        silence = self.wall - max(self.view.nodes[name].at, event.seen)
        by_hand = event.grant is not None and event.grant.by != approvals.BY_FLEET
        if event.source == "User":
            return silence > self.settings.silence or (by_hand and self.view.nodes[name].entry(event.event_id) is None)
        return by_hand and not is_live(self.view.nodes[name], self.view, self.wall)

    # -- what happens

    def move(self) -> None:
        dice = self.dice
        node = self.nodes[dice.choice(NAMES)]
        match dice.choice(MOVES):
            case "time":
                self.pass_time(dice.choice((1, 2, 5, 20)))
            case "look":
                node.look()
            case "hook":
                node.hook(dice.random() < 0.9)
            case "report":
                node.report(lost=False)
            case "lost":
                node.report(lost=True)
            case "restart" if dice.random() < 0.3:
                node.restart()
            case "event" if len(self.listed) < 3:
                self._event()
            case "azure" if self.listed and dice.random() < 0.3:
                raw = self.listed[dice.choice(list(self.listed))]
                if raw["EventStatus"] == "Started":
                    del self.listed[raw["EventId"]]
                else:
                    raw.update(EventStatus="Started", NotBefore="")
            case "person" if self.view.events:
                self._decide()
            case "leave":
                known = self.view.nodes.get(node.name)
                # Who is told to leave gets none.
                node.partitions = 0 if dice.random() < 0.6 or (known is not None and known.leaving) else 2
            case _:
                pass

    def _event(self) -> None:
        named = self.dice.sample(NAMES, self.dice.choice((1, 1, 2)))
        kind = self.dice.choice(("Freeze", "Reboot", "Preempt"))
        source = self.dice.choice(("Platform", "Platform", "User"))
        self.announce(named, kind, source, self.dice.choice((40, 120, 300)))

    def announce(self, named: Sequence[str], kind: str = "Freeze", source: str = "Platform", notice: int = 120) -> str:
        """List an event that names these nodes, with NotBefore in `notice` seconds. Returns its id."""
        self.made += 1
        identity = f"e{self.made}"
        self.listed[identity] = {
            "EventId": identity,
            "EventType": kind,
            "EventStatus": "Scheduled",
            "EventSource": source,
            "Resources": [f"vm_{name}" for name in named],
            "NotBefore": formatdate(self.wall / 1000 + notice, usegmt=True),
            "DurationInSeconds": 9,
        }
        return identity

    def pass_time(self, seconds: int) -> None:
        self.wall += 1000 * seconds
        for each in self.nodes.values():
            each.observe(Tick())

    def _decide(self) -> None:
        event = self.view.events[self.dice.choice(list(self.view.events))]
        made = rules.approve(event, "ops", "", self.wall) if self.dice.random() < 0.7 else rules.hold(event, "ops", "", self.wall)
        if isinstance(made, EventRow):
            self.view = replace(self.view, events={**self.view.events, made.event_id: made})


def test_no_agent_approves_what_the_fleet_or_its_own_node_is_not_ready_for() -> None:
    posts = joint = 0
    for seed in range(SEEDS):
        fleet = Fleet(FLEETS[seed % len(FLEETS)], random.Random(seed))
        for _ in range(250):
            fleet.move()
        posts += len(fleet.posts)
        joint += fleet.joint
    assert posts > SEEDS / 2
    assert joint > 0, "events of several nodes are approved by agents, too"


def play_until_prepared(domains: Mapping[str, str], settings: MaintenanceSettings) -> Fleet:
    """Return a fleet whose nodes are all named by one event, have all prepared for it, and have reported that twice."""
    fleet = Fleet(settings, random.Random(0), domains)
    fleet.announce(tuple(domains), notice=300)
    for _ in range(70):
        fleet.pass_time(5)
        for node in fleet.nodes.values():
            node.look()
            node.hook(True)
            node.report(lost=False)
            # A POST changes the report, which is then sent at once.
            node.report(lost=False)
        if all(node.ready for node in fleet.nodes.values()):
            break
    for node in fleet.nodes.values():
        node.report(lost=False)
    assert fleet.wall < START + 300_000, "before NotBefore"
    return fleet


@pytest.mark.parametrize("count", [2, 5])
def test_an_event_of_several_nodes_of_one_fault_domain_is_approved_once_all_are_prepared(count: int) -> None:
    fleet = play_until_prepared({f"n{number}": "0" for number in range(count)}, MaintenanceSettings())
    assert fleet.posts == ["e1"], "once, although each may"
    assert fleet.joint == 1


def test_an_event_of_two_fault_domains_is_approved_if_both_may_be_down() -> None:
    fleet = play_until_prepared({"a": "0", "b": "1"}, MaintenanceSettings(domains_down=2))
    assert fleet.posts == ["e1"]


def test_an_event_of_more_fault_domains_than_may_be_down_is_held() -> None:
    fleet = play_until_prepared({"a": "0", "b": "1"}, MaintenanceSettings(domains_down=1))
    assert fleet.posts == []
    assert fleet.nodes["a"].state.events["e1"].reason == "held by the fleet: it takes 2 fault domains down at once: 0, 1"


def test_a_node_that_has_not_prepared_keeps_the_others_from_approving() -> None:
    fleet = Fleet(MaintenanceSettings(), random.Random(0), {"a": "0", "b": "0"})
    fleet.announce(("a", "b"), notice=300)
    a, b = fleet.nodes.values()
    for _ in range(60):
        fleet.pass_time(5)
        for node in (a, b):
            node.look()
            node.report(lost=False)
        a.hook(True)
    assert (fleet.posts, a.state.events["e1"].reason) == ([], "held by the fleet: b is preparing")
