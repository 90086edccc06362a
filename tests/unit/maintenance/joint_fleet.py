"""Agents and app together: each follows its production rules, and they exchange the JSON of the API. Used by tests of both."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from email.utils import formatdate
from typing import Any, Final

from shared.maintenance import rules
from shared.maintenance.agent.app.messages import ReportReceipt, body_of, read_answer
from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.decisions import step as agents
from shared.maintenance.agent.effects import Approve, RunHook, SendReport, SendResult
from shared.maintenance.agent.imds.client import Machine
from shared.maintenance.agent.imds.document import read
from shared.maintenance.agent.journal import decode, encode
from shared.maintenance.agent.model import EventPhase, EventsDocument, NodeState, Now, ScheduledEvent
from shared.maintenance.agent.observations import ApprovalPosted, AppUnreachable, DocumentRead, HookEnded, Observation, StartUp, Tick
from shared.maintenance.decisions import approvals
from shared.maintenance.decisions.domain_guard import is_live
from shared.maintenance.model import AgentReportIn
from shared.maintenance.rows import REMOVES, EventRow, FleetEvents
from shared.maintenance.rule_settings import MaintenanceSettings
from shared.maintenance.service.reports import _node
from shared.maintenance.service.views import answer_out

START: Final = 1_800_000_000_000
NAMES: Final = ("a", "b", "c")
DOMAINS: Final = {name: name for name in NAMES}
HOOKS: Final[dict[Any, float]] = {"prepare": 60.0, "emergency": 20.0, "restore": 60.0, "verify": 30.0, "caught_up": 30.0}
MOVES: Final = (
    *("time", "time", "look", "look", "hook", "hook", "report", "report", "report"),
    *("lost", "restart", "event", "azure", "person", "leave"),
)


class JointNode:
    """A node and its agent.

    ready: the events that it is prepared for. holds: those that the app asked its agent to hold.
    passed_over: events and nodes that they did not wait for when the app answered last.
    waiting: reports of changes that are not delivered yet.
    excused: the node went out of service without the guard's permission, and was allowed to.
    back_at: time at which it came back.
    """

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet, self.name, self.partitions, self.boots = fleet, name, 0, 1
        self.settings = AgentSettings(f"vm_{name}", hooks=fleet.hooks, central=True, fleet="db", retry_first=0.0)
        self.machine = Machine(f"vm_{name}", "west", "set", fleet.domains.get(name, name))
        self.waiting, self.excused, self.back_at = list[dict[str, Any]](), False, 0
        self.away_since: int | None = None
        self.answered, self.began_at, self.started_at = frozenset[str](), dict[str, int](), fleet.wall
        self.state, self.ready, self.holds = NodeState(), set[str](), set[str]()
        self.passed_over = set[tuple[str, str]]()
        self.run: RunHook | None = None
        self.seq = 0
        self.observe(StartUp("boot-1", "none"))

    def observe(self, observation: Observation) -> None:
        now = Now(self.fleet.wall, self.fleet.wall / 1000)
        before = self.state
        self.state, effects = agents.step(self.state, observation, now, self.settings)
        if "prepare" not in self.fleet.hooks:
            records = self.state.events.items()
            self.ready |= {event_id for event_id, record in records if record.phase is EventPhase.PREPARED}
        self._judge(before)
        posts = list[Approve]()
        for effect in effects:
            match effect:
                case SendReport():
                    self.waiting.append(body_of(self.state, self.name, self.machine))
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
        self.run, self.started_at, self.answered, self.away_since = None, self.fleet.wall, frozenset(), None
        self.state = decode(encode(self.state))
        self.observe(StartUp("boot-1", "kept", self.state.disabled))

    def report(self, *, lost: bool) -> None:
        """Its reports arrive, those of changes first; the answers do too, unless the first is lost: then it is sent again later."""
        bodies = list(self.waiting) or [body_of(self.state, self.name, self.machine)]
        shown = agents.asked_events(self.state)
        for number, body in enumerate(bodies, 1):
            self.seq += 1
            report = _node(AgentReportIn.model_validate_json(json.dumps({**body, "seq": self.seq}), strict=True))
            accepted = self.fleet.receive(report)
            answer = json.dumps(answer_out(accepted.answer, self.fleet.settings)).encode()
            if lost:
                self.away_since = self.fleet.wall if self.away_since is None else self.away_since
                self.observe(AppUnreachable("lost"))
                return
            if self.waiting:
                self.waiting.pop(0)
            found = read_answer(answer, self.fleet.wall / 1000, shown if number == len(bodies) else frozenset())
            assert isinstance(found, ReportReceipt), found
            self.away_since, self.answered = None, found.answer.permitted | found.answer.refused.keys()
            self.holds = set(found.answer.holds)
            self.passed_over = {
                (event.event_id, name)
                for event in self.fleet.view.events.values()
                for name in self.fleet.nodes
                if self.fleet.passes_over(name, event)
            }
            self.observe(found.answer)

    # -- out of service

    @property
    def out(self) -> bool:
        return self.state.disabled or any(record.phase is EventPhase.PREPARING for record in self.state.events.values())

    def is_out_or_behind(self) -> bool:
        """Return true until the node is back and has caught up."""
        return self.out or (self.back_at > 0 and not self.state.in_step and self.fleet.wall < self.back_at + self.fleet.settings.catch_up)

    def _judge(self, before: NodeState) -> None:
        if before.disabled and not self.state.disabled:
            self.back_at = self.fleet.wall
        for event_id, record in self.state.events.items():
            known = before.events.get(event_id)
            if record.phase is EventPhase.PREPARING and (known is None or known.phase is EventPhase.WAITING):
                self.began_at[event_id] = self.fleet.wall
                self.fleet.goes_out(self, record.event, already=before.disabled)

    def is_silent(self, event_id: str) -> bool:
        """Return true if the app has been away for 10 s, or has not answered about an event for as long."""
        if self.away_since is not None:
            return self.fleet.wall >= self.away_since + 10_000
        since = max(self.state.events[event_id].seen_at, self.started_at) + 10_000
        return event_id not in self.answered and self.fleet.wall >= since


class Fleet:
    """Three nodes in fault domains of their own (or `domains`), the app's rows, and Azure. `posts`: what was approved; `joint`: the number
    of events of several nodes among it that no lease was given for."""

    def __init__(
        self,
        settings: MaintenanceSettings,
        dice: random.Random,
        domains: Mapping[str, str] = DOMAINS,
        hooks: Mapping[Any, float] = HOOKS,
    ) -> None:
        self.settings, self.dice, self.wall, self.view = settings, dice, START, FleetEvents({}, {})
        self.hooks, self.guarded = hooks, 0
        self.listed, self.due = dict[str, dict[str, Any]](), dict[str, int]()
        self.posts, self.made, self.joint, self.domains = list[str](), 0, 0, domains
        self.nodes = {name: self.make_node(name) for name in domains}
        for node in self.nodes.values():
            # An agent that never received its fleet's settings follows its own in the end.
            node.report(lost=False)

    def make_node(self, name: str) -> JointNode:
        return JointNode(self, name)

    def receive(self, report: Any) -> rules.AcceptedAgentReport:
        asked = rules.nodes_to_drain(self.view, report, self.settings)
        held = {name: self.nodes[name].partitions for name in asked}
        accepted = rules.receive(self.view, report, self.settings, held, True, self.wall)
        assert isinstance(accepted, rules.AcceptedAgentReport)
        nodes = {**self.view.nodes, accepted.node.node: accepted.node}
        self.view = FleetEvents(nodes, accepted.events, accepted.monitors, guard=accepted.guard)
        return accepted

    def goes_out(self, node: JointNode, event: ScheduledEvent, *, already: bool) -> None:
        """The judge of a node that begins to prepare. With the guard `prepare`, no more fault domains go out than may be down, except for
        nodes that cannot wait any longer or have no app, and for what a person approved."""
        if self.settings.guard != "prepare" or already:
            return
        known = self.view.events.get(event.event_id)
        by_hand = known is not None and known.grant is not None and known.grant.by != approvals.BY_FLEET
        too_wide = self._is_too_wide(event)
        deadline = self.hooks.get("prepare", self.settings.lead / 2000)
        late = event.type in REMOVES or event.not_before is None or self.wall >= event.not_before - 1000 * deadline
        node.excused = by_hand or too_wide or late or node.is_silent(event.event_id)
        if node.excused:
            return
        self.guarded += 1
        others = [each for each in self.nodes.values() if not each.excused and not self._is_held(each) and each.is_out_or_behind()]
        out = {each.machine.fault_domain for each in (node, *others)}
        assert len(out) <= self.settings.domains_down, f"guard: {node.name} prepares for {event.event_id} while {out} are out"

    def _is_too_wide(self, event: ScheduledEvent) -> bool:
        return len({domain for name, domain in self.domains.items() if f"vm_{name}" in event.resources}) > self.settings.domains_down

    def _is_held(self, node: JointNode) -> bool:
        """Return true if the node is prepared for an event of more domains than may be down: it blocks no other."""
        prepared = [record.event for record in node.state.events.values() if record.phase in (EventPhase.PREPARING, EventPhase.PREPARED)]
        return any(self._is_too_wide(event) for event in prepared)

    def result(self, node: JointNode, result: SendResult) -> None:
        made = rules.finish(self.view, result.approval_id, node.name, result.outcome, result.http_status, self.wall)
        if isinstance(made, EventRow):
            self.view = replace(self.view, events={**self.view.events, made.event_id: made})

    def approved(self, node: JointNode, post: Approve) -> None:
        """The judge of a POST."""
        raw = self.listed[post.raw_id]
        named = [name for name in self.domains if f"vm_{name}" in raw["Resources"]]
        kind, source = raw["EventType"], raw["EventSource"]
        rule = next((rule for rule in self.settings.rules if rule.fits(kind, source, raw["DurationInSeconds"])), None)
        by_rule = rule.action == "approve" if rule is not None else source == "User" and kind not in REMOVES
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

    def move(self, moves: Sequence[str] = MOVES) -> None:
        dice = self.dice
        node = self.nodes[dice.choice(NAMES)]
        match dice.choice(moves):
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
                # A node that leases must leave gets no partitions.
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
        self.due[identity] = self.wall + 1000 * notice
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
