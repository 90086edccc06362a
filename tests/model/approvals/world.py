"""Agents of one fleet or two, and the app, explored whole. One event names all their nodes, and perhaps a VM that nobody knows.

The agents' and the app's own rules decide. Time has two moments: the second comes after every turn and lease of the first, and before
NotBefore. An answer may arrive after other steps, or be lost. What another fleet has stored may be older than what is decided by it. An
agent may be killed between any two effects, and start again or stay away. From each state it is tried whether the event is approved when
nothing more goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from shared.maintenance import rules
from shared.maintenance.agent import journal
from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.decisions import step
from shared.maintenance.agent.effects import Approve, RunHook, SendResult
from shared.maintenance.agent.model import EventPhase, EventsDocument, LeasedApproval, NodeState, Now, ScheduledEvent
from shared.maintenance.agent.observations import (
    AppAnswer,
    ApprovalPosted,
    AppUnreachable,
    DocumentRead,
    HookEnded,
    Observation,
    StartUp,
    Tick,
)
from shared.maintenance.agent.policy import FleetPolicy
from shared.maintenance.decisions import approvals
from shared.maintenance.rows import EventRow, FleetEvents, NodeEntry, NodeRow, OtherNode
from shared.maintenance.rule_settings import MaintenanceSettings
from tests.model.checking.checker import FROM_HERE, Violation

EVENT: Final = "e"
STRANGER: Final = "x"
MOMENTS: Final = (1_000_000, 1_025_000, 1_050_000)
"""The wall times of the model, none after a turn or a lease of the one before. Agents report more often than that, so none is silent."""
LAST: Final = 1
"""The moment until which something may go wrong. The one after it is for the turns that stand then."""
ALONE: Final = -1
"""Stands for the moment of an approval that an agent sends while the app does not answer."""
NOT_BEFORE: Final = 1_200_000
LEAD: Final = 300.0
SCOPE: Final = "set"
ROUNDS: Final = 4
"""Reports of each agent at one moment after which all that can be approved is approved."""


@dataclass(frozen=True)
class Play:
    """The fleets' nodes, and the largest numbers of faults: answers that are lost, answers that arrive after other steps, decisions by what
    another fleet had stored before, agents that are killed and start again, agents that stay away, POSTs that fail; and of what persons do:
    holds of the second fleet's event, approvals by the first fleet.

    at_once: the rules approve the event without preparation. stranger: the event names a VM that no agent knows. early: the first fleet
    approves events before their time.
    """

    name: str
    fleets: tuple[str, ...] = ("a", "d")
    lost: int = 0
    late: int = 0
    stale: int = 0
    killed: int = 0
    gone: int = 0
    failed: int = 0
    held: int = 0
    granted: int = 0
    at_once: bool = False
    stranger: bool = False
    early: bool = False


@dataclass(frozen=True, slots=True)
class Consent:
    """The state that the app had stored when it decided an answer.

    approved: another agent of the fleet had approved the event. held: a person of the other fleet held it.
    """

    approved: bool = False
    held: bool = False


@dataclass(frozen=True, slots=True)
class One:
    """A node, its agent, and the answer on its way to it.

    asking: what the other fleets had stored when the app read its report. consent, coming: about the last answer, and about the one on its
    way. posted: the moment at which its agent sent an approval that has not failed. ready: it is prepared. away: its agent runs no more.
    """

    agent: NodeState
    answer: AppAnswer | None = None
    asking: tuple[NodeRow, tuple[tuple[str, OtherNode], ...]] | None = None
    consent: Consent = Consent()
    coming: Consent = Consent()
    posted: int | None = None
    under_way: Approve | None = None
    ready: bool = False
    away: bool = False
    seq: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """The nodes, the rows of each fleet, the moment, and the faults that are left."""

    nodes: tuple[One, ...]
    views: tuple[FleetEvents, ...]
    moment: int = 0
    lost: int = 0
    late: int = 0
    stale: int = 0
    killed: int = 0
    gone: int = 0
    failed: int = 0
    held: int = 0
    granted: int = 0


FAULTS: Final = ("lost", "late", "stale", "killed", "gone", "failed", "held", "granted")


@dataclass
class ApprovalWorld:
    """A play as the checker walks it."""

    play: Play
    _ends_well: set[Hashable] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.names = "".join(self.play.fleets)
        self.fleet_of = tuple(number for number, names in enumerate(self.play.fleets) for _ in names)
        self.settings = tuple(
            MaintenanceSettings(catch_up=0, hand_off=0, domains_down=9, early=self.play.early and number == 0)
            for number in range(len(self.play.fleets))
        )

    def initial(self) -> State:
        views = tuple(FleetEvents({}, {}) for _ in self.play.fleets)
        state = State((), views, **{fault: getattr(self.play, fault) for fault in FAULTS})
        for number in range(len(self.names)):
            state = replace(state, nodes=(*state.nodes, One(NodeState())))
            state = self._observe(state, number, StartUp("boot-1", "none"))
            state = self._observe(state, number, AppAnswer(policy=FleetPolicy("db", LEAD)))
            # Each has reported before the event is announced.
            state = self._decide(self._ask(state, number), number)
            state = self._receive(state, number)
        for number in range(len(self.names)):
            state = self._look(state, number)
        return state

    # -- steps

    def successors(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        """Return the steps that may happen next."""
        if state.moment < LAST:
            yield "time passes", lambda: self._pass_time(state)
        for number, one in enumerate(state.nodes):
            if not one.away:
                for label, then in self._of(state, number, one):
                    yield f"{self.names[number]}: {label}", then
        for number, view in enumerate(state.views):
            event = view.events.get(EVENT)
            if event is None or event.status != "scheduled":
                continue
            if state.held and number == 1 and event.hold is None:
                yield "a person holds it in the second fleet", lambda: self._hold(_spent(state, "held"), 1)
            if state.granted and number == 0 and event.grant is None:
                yield "a person approves it in the first fleet", lambda: self._grant(_spent(state, "granted"), 0)

    def _of(self, state: State, number: int, one: One) -> Iterator[tuple[str, Callable[[], State]]]:
        if one.agent.run is not None:
            yield "its prepare ends", lambda: self._end_hook(state, number)
        if one.under_way is not None:
            yield "its POST is accepted", lambda: self._post(state, number, "accepted")
            if state.failed:
                yield "its POST fails", lambda: self._post(_spent(state, "failed"), number, "busy")
        if one.answer is not None:
            yield "the answer arrives", lambda: self._receive(state, number)
        elif one.asking is not None:
            yield "the app decides", lambda: self._receive(self._decide(state, number), number)
        else:
            yield "it reports", lambda: self._call(state, number)
            if state.lost:
                yield "its answer is lost", lambda: self._lose(_spent(self._report(state, number), "lost"), number)
            if state.late:
                yield "it reports, and the answer is late", lambda: self._report(_spent(state, "late"), number)
            if state.stale:
                yield "the app reads the other fleet", lambda: self._ask(_spent(state, "stale"), number)
        if state.killed:
            yield "it is killed and starts again", lambda: self._restart(_spent(state, "killed"), number)
        if state.gone:
            yield "it is killed for good", lambda: _with(_spent(state, "gone"), number, replace(one, away=True, answer=None, asking=None))

    def _call(self, state: State, number: int) -> State:
        return self._receive(self._report(state, number), number)

    def _report(self, state: State, number: int) -> State:
        return self._decide(self._ask(state, number), number)

    def _pass_time(self, state: State) -> State:
        state = replace(state, moment=state.moment + 1)
        for number, one in enumerate(state.nodes):
            if not one.away:
                state = self._observe(state, number, Tick())
        for number, one in enumerate(state.nodes):
            if not one.away:
                # Between the moments it has repeated its report, so it does not count as silent.
                fleet, name = self.fleet_of[number], self.names[number]
                view = state.views[fleet]
                nodes = {**view.nodes, name: replace(view.nodes[name], at=MOMENTS[state.moment])}
                state = _with_view(state, fleet, replace(view, nodes=nodes))
        return state

    def _look(self, state: State, number: int) -> State:
        return self._observe(state, number, DocumentRead(EventsDocument(None, (self._event(),))))

    def _event(self) -> ScheduledEvent:
        named = (*self.names, *([STRANGER] if self.play.stranger else []))
        source: Any = "User" if self.play.at_once else "Platform"
        return ScheduledEvent(EVENT, EVENT, "Freeze", "Scheduled", NOT_BEFORE, source, 9, named)

    def _end_hook(self, state: State, number: int) -> State:
        one = state.nodes[number]
        run = one.agent.run
        assert run is not None
        return self._observe(_with(state, number, replace(one, ready=True)), number, HookEnded(run.number, True))

    def _post(self, state: State, number: int, outcome: Any) -> State:
        one = state.nodes[number]
        post = one.under_way
        assert post is not None
        posted = one.posted if outcome == "accepted" else None
        state = _with(state, number, replace(one, under_way=None, posted=posted))
        state = self._observe(state, number, ApprovalPosted(EVENT, outcome, 200 if outcome == "accepted" else 0, post.grant))
        # A look follows each failure.
        return state if outcome == "accepted" else self._look(state, number)

    def _restart(self, state: State, number: int) -> State:
        one = state.nodes[number]
        saved = journal.decode(journal.encode(one.agent))
        after = replace(one, agent=saved, answer=None, asking=None, under_way=None, consent=Consent())
        state = self._observe(_with(state, number, after), number, StartUp("boot-1", "kept", saved.disabled))
        return self._look(state, number)

    # -- the app

    def _row(self, state: State, number: int) -> NodeRow:
        one, name = state.nodes[number], self.names[number]
        entries = tuple(
            NodeEntry(
                EVENT,
                record.event.type,
                "Scheduled",
                record.phase.value,
                record.event.not_before,
                record.event.source,
                record.event.duration,
                record.event.resources,
                at_once=record.at_once,
            )
            for record in one.agent.events.values()
        )
        return NodeRow(name, name, SCOPE, one.seq + 1, 0, "west", name, disabled=one.agent.disabled, entries=entries)

    def _ask(self, state: State, number: int) -> State:
        """Let a report arrive: the app reads what the other fleets know."""
        one = state.nodes[number]
        if one.asking is not None or one.answer is not None:
            return state
        row, fleet = self._row(state, number), self.fleet_of[number]
        scope = rules.scopes_to_ask(state.views[fleet], [row], self.settings[fleet]).get(EVENT)
        held = any(event.hold is not None for event in self._rows(state) if event is not None)
        found: dict[str, OtherNode] = {}
        if scope is not None:
            others = {str(other): view.events.get(EVENT) for other, view in enumerate(state.views) if other != fleet}
            found = approvals.known_elsewhere(others, scope)
        asking = (row, tuple(sorted(found.items())))
        return _with(state, number, replace(one, asking=asking, coming=Consent(held=held), seq=one.seq + 1))

    def _decide(self, state: State, number: int) -> State:
        """Let the app decide and store it. Rows of the same fleet that have changed since it read are read again."""
        one, fleet = state.nodes[number], self.fleet_of[number]
        if one.asking is None:
            return state
        row, found = one.asking
        now = MOMENTS[state.moment]
        view = replace(state.views[fleet], others={EVENT: dict(found)})
        before = view.events.get(EVENT)
        taken = before is not None and before.by_agent is not None and before.by_agent.node != row.node
        heard = rules.receive(view, row, self.settings[fleet], {}, True, now)
        assert isinstance(heard, rules.AcceptedAgentReport)
        nodes = {**view.nodes, row.node: heard.node}
        answer = heard.answer
        sent = now / 1000
        told = AppAnswer(
            frozenset(entry.event_id for entry in row.entries if entry.phase == "PREPARED" or entry.asks_turn),
            tuple(LeasedApproval(each.id, each.event_id, sent + each.lease / 1000, each.expires) for each in answer.approvals),
            dict(answer.holds),
            policy=FleetPolicy("db", LEAD),
            until=sent + answer.turn / 1000,
            approves={event_id: other.node for event_id, other in answer.others.items() if not other.approved},
            approved={event_id: other.node for event_id, other in answer.others.items() if other.approved},
        )
        state = _with_view(state, fleet, FleetEvents(nodes, heard.events, heard.monitors, guard=heard.guard))
        return _with(state, number, replace(one, asking=None, answer=told, coming=replace(one.coming, approved=taken)))

    def _receive(self, state: State, number: int) -> State:
        one = state.nodes[number]
        if one.answer is None:
            return state
        after = replace(one, answer=None, consent=one.coming, coming=Consent())
        return self._observe(_with(state, number, after), number, one.answer)

    def _lose(self, state: State, number: int) -> State:
        after = _with(state, number, replace(state.nodes[number], answer=None, coming=Consent()))
        return self._observe(after, number, AppUnreachable("no answer"))

    def _hold(self, state: State, fleet: int) -> State:
        view = state.views[fleet]
        held = rules.hold(view.events[EVENT], "ops", "", MOMENTS[state.moment])
        return state if isinstance(held, str) else _with_view(state, fleet, replace(view, events={EVENT: held}))

    def _grant(self, state: State, fleet: int) -> State:
        view = state.views[fleet]
        made = rules.approve(view.events[EVENT], "ops", "", MOMENTS[state.moment])
        return state if made is None else _with_view(state, fleet, replace(view, events={EVENT: made}))

    # -- the agents

    def _observe(self, state: State, number: int, observation: Observation) -> State:
        one = state.nodes[number]
        wall = MOMENTS[state.moment]
        agent, effects = step.step(one.agent, observation, Now(wall, wall / 1000), _settings(self.names[number]))
        state = _with(state, number, replace(one, agent=agent))
        for effect in effects:
            match effect:
                case Approve():
                    self._judge(state, number, effect)
                    posted = ALONE if state.nodes[number].agent.app.away else state.moment
                    state = _with(state, number, replace(state.nodes[number], posted=posted, under_way=effect))
                case SendResult():
                    state = self._result(state, number, effect)
                case RunHook():
                    assert effect.kind == "prepare"
        return state

    def _result(self, state: State, number: int, result: SendResult) -> State:
        fleet = self.fleet_of[number]
        view = state.views[fleet]
        made = rules.finish(view, result.approval_id, self.names[number], result.outcome, result.http_status, MOMENTS[state.moment])
        return _with_view(state, fleet, replace(view, events={EVENT: made})) if isinstance(made, EventRow) else state

    # -- judges

    def _judge(self, state: State, number: int, post: Approve) -> None:
        """Judge a POST: what it counts for, and those before it."""
        one, name = state.nodes[number], self.names[number]
        by_hand = bool(post.grant) and self._is_by_hand(state, self.fleet_of[number])
        if not self.play.at_once and not by_hand:
            for other, each in enumerate(state.nodes):
                if not each.ready:
                    raise Violation(f"unprepared: {name} approves for {self.names[other]}")
            if self.play.stranger:
                raise Violation(f"stranger: {name} approves for a VM that nobody knows")
            if one.consent.held:
                raise Violation(f"held: {name} approves although a person of the other fleet held it when the app was asked")
        if one.agent.app.away:
            # The app does not answer, and each agent follows its own rules.
            return
        if one.consent.approved:
            raise Violation(f"twice: {name} approves, although the app knew that another agent had")
        for other, each in enumerate(state.nodes):
            if other != number and self.fleet_of[other] == self.fleet_of[number] and each.posted == state.moment:
                raise Violation(f"twice: {name} approves beside {self.names[other]}")

    def _is_by_hand(self, state: State, fleet: int) -> bool:
        event = state.views[fleet].events.get(EVENT)
        return event is not None and event.grant is not None and event.grant.by != approvals.BY_FLEET

    def _rows(self, state: State) -> list[EventRow | None]:
        return [view.events.get(EVENT) for view in state.views]

    def check(self, state: State) -> None:
        """Check the end without further faults: the event is approved, and no agent that runs still waits."""
        quiet = replace(state, **dict.fromkeys(FAULTS, 0))
        key = self.key(quiet)
        if key in self._ends_well or not self._may_end(state):
            return
        while True:
            for _ in range(ROUNDS):
                for number in range(len(self.names)):
                    quiet = self._go_on(quiet, number)
            if quiet.moment > LAST:
                break
            quiet = self._pass_time(quiet)
        for fleet, names in enumerate(self.play.fleets):
            mine = [one for one, at in zip(quiet.nodes, self.fleet_of, strict=True) if at == fleet]
            # The POST of an agent that was killed may never have been sent.
            if not any(one.posted is not None and not (one.away and one.under_way) for one in mine):
                raise Violation(f"stuck: no agent of {names} approves the event", [f"{FROM_HERE}, in turn)"])
            waiting = [one for one in mine if not one.away and _phase(one) is EventPhase.WAITING]
            if waiting:
                raise Violation(f"waits: an agent of {names} never hears that the event is approved", [f"{FROM_HERE}, in turn)"])
        self._ends_well.add(key)

    def _may_end(self, state: State) -> bool:
        """Return true if the event can still be approved before its time by an agent of each fleet."""
        if any(all(one.away for one, at in zip(state.nodes, self.fleet_of, strict=True) if at == fleet) for fleet in set(self.fleet_of)):
            return False
        if self.play.at_once:
            return all(event is None or event.hold is None for event in self._rows(state))
        # Each node that is away has prepared, and is known to have.
        known = all(not one.away or self._is_known_ready(state, number) for number, one in enumerate(state.nodes))
        return known and not self.play.stranger and all(event is None or event.hold is None for event in self._rows(state))

    def _is_known_ready(self, state: State, number: int) -> bool:
        entry = state.views[self.fleet_of[number]].nodes[self.names[number]].entry(EVENT)
        return entry is not None and entry.phase in ("PREPARED", "APPROVED")

    def _go_on(self, state: State, number: int) -> State:
        """Let a node and the app do what is next."""
        if state.nodes[number].away:
            return state
        if state.nodes[number].agent.run is not None:
            state = self._end_hook(state, number)
        if state.nodes[number].under_way is not None:
            state = self._post(state, number, "accepted")
        return self._call(self._receive(state, number), number)

    def key(self, state: State) -> Hashable:
        """States that differ only in times, counts and texts are one."""
        nodes = tuple(_key(one) for one in state.nodes)
        return nodes, tuple(_stored(view) for view in state.views), state.moment, tuple(getattr(state, fault) for fault in FAULTS)


def _stored(view: FleetEvents) -> Hashable:
    """Return what is stored of a fleet, without texts."""
    nodes = tuple(
        (name, node.at, node.disabled, tuple((entry.phase, entry.at_once) for entry in node.entries))
        for name, node in sorted(view.nodes.items())
    )
    event = view.events.get(EVENT)
    shown: Hashable = None
    if event is not None:
        grant = event.grant and (
            event.grant.state,
            event.grant.node,
            event.grant.until,
            event.grant.by,
            event.grant.at,
            event.grant.epoch > 0,
        )
        turn = event.turn and (event.turn.node, event.turn.at)
        by_agent = event.by_agent and event.by_agent.node
        shown = (event.status, event.seen, bool(event.cleared), bool(event.agreed), event.own, event.hold is None, grant, turn, by_agent)
    return nodes, shown, view.monitors.primary


def _key(one: One) -> Hashable:
    agent, answer, app = one.agent, one.answer, one.agent.app
    record = agent.events.get(EVENT)
    shown: Hashable = None
    if record is not None:
        sent = (record.approve_intent is None, record.approved_at is None, record.posting, min(record.posts, 1), record.look_first)
        shown = (record.phase, record.at_once, record.unsure, record.hurry, sent)
    leases = tuple((grant.id, grant.until) for grant in app.grants.values())
    known = (app.away, app.away_since if app.away else 0, app.heard, app.heard_until if app.heard else 0, tuple(app.holds), leases)
    coming: Hashable = None
    if answer is not None:
        leased = tuple((grant.id, grant.until) for grant in answer.grants)
        coming = (answer.told, tuple(answer.holds), leased, answer.until, tuple(answer.approves), tuple(answer.approved))
    asking = one.asking and (tuple((entry.phase, entry.at_once) for entry in one.asking[0].entries), one.asking[1])
    own = (agent.disabled, agent.run and agent.run.kind, shown, tuple(app.others.items()))
    meta = (one.consent, one.coming, one.posted, one.under_way and one.under_way.grant, one.ready, one.away)
    return own, known, coming, asking, meta


def _phase(one: One) -> EventPhase | None:
    record = one.agent.events.get(EVENT)
    return None if record is None else record.phase


def _spent(state: State, fault: str) -> State:
    return replace(state, **{fault: getattr(state, fault) - 1})


def _with(state: State, number: int, one: One) -> State:
    return replace(state, nodes=(*state.nodes[:number], one, *state.nodes[number + 1 :]))


def _with_view(state: State, fleet: int, view: FleetEvents) -> State:
    return replace(state, views=(*state.views[:fleet], view, *state.views[fleet + 1 :]))


def _settings(name: str) -> AgentSettings:
    hooks: dict[Any, float] = {"prepare": 10.0, "restore": 10.0}
    never = {"gap": 1e9, "keep_done": 1e9, "late_warning": 1e9, "started_warning": 1e9}
    return AgentSettings(name, hooks=hooks, central=True, fleet="db", retry_first=0.0, **never)
