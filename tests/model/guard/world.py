"""Agents of several fault domains and the app, explored whole. Each node has an event of its own; all have one NotBefore.

Time has three moments: before the lead, after it, and after the latest start. An answer may arrive later than what happens meanwhile, or be
lost. Documents are read at once, prepare hooks end at once, and POSTs are accepted. From each state after the lead it is tried whether all
nodes get permission in turn, before the latest start, when nothing more goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from shared.maintenance import rules
from shared.maintenance.agent import journal
from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.decisions import step
from shared.maintenance.agent.effects import Approve, RunHook
from shared.maintenance.agent.model import EventPhase, EventsDocument, NodeState, Now, ScheduledEvent
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
from shared.maintenance.rows import FleetEvents, NodeEntry, NodeRow
from shared.maintenance.rule_settings import MaintenanceSettings
from tests.model.checking.checker import FROM_HERE, Violation

NOT_BEFORE: Final = 1_000_000
"""The NotBefore of all events, in wall milliseconds."""
MOMENTS: Final = (0, 950_000, 995_000)
"""The wall times of the model: before the lead, between it and the latest start, and after that."""
LATE: Final = len(MOMENTS) - 1
ABSENT, SCHEDULED, STARTED, GONE = range(4)
LISTED: Final = {SCHEDULED: "Scheduled", STARTED: "Started"}
POLICY: Final = FleetPolicy("db", 60.0, guard="prepare")
FLEET: Final = MaintenanceSettings(lead=60_000, catch_up=0, guard="prepare")


@dataclass(frozen=True)
class Play:
    """The number of nodes, and the largest number of answers and reports that are lost, of answers that arrive after other steps, of
    restarts, and of events that are cancelled. evicted: number of nodes, the first ones, with an event that removes the machine.
    ahead: the event of the first node has the earlier NotBefore."""

    name: str
    nodes: int = 2
    lost: int = 0
    late: int = 0
    restarts: int = 0
    cancelled: int = 0
    evicted: int = 0
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class One:
    """A node, its event, and the answer on its way to it.

    answered: an answer about its event has arrived. silent: the app has not answered for longer than the node waits. excused: the node went
    out of service without permission, and might.
    """

    agent: NodeState
    event: int = ABSENT
    approved: bool = False
    answer: AppAnswer | None = None
    answered: bool = False
    silent: bool = False
    excused: bool = False
    seq: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """The nodes, the app's rows, the moment, and the faults that are left."""

    nodes: tuple[One, ...]
    view: FleetEvents
    moment: int = 0
    lost: int = 0
    late: int = 0
    restarts: int = 0
    cancelled: int = 0


@dataclass
class GuardWorld:
    """A play as the checker walks it."""

    play: Play
    _ends_well: set[Hashable] = field(default_factory=set)

    def initial(self) -> State:
        play = self.play
        state = State((), FleetEvents({}, {}), 0, play.lost, play.late, play.restarts, play.cancelled)
        for number in range(play.nodes):
            state = replace(state, nodes=(*state.nodes, One(NodeState())))
            state = self._observe(state, number, StartUp("boot-1", "none"))
            state = self._observe(state, number, AppAnswer(policy=POLICY))
        return state

    # -- steps

    def successors(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        """Return the steps that may happen next."""
        if state.moment == LATE:
            # Each node prepares by then, with or without permission.
            return
        yield "time passes", lambda: self._pass_time(state)
        for number, one in enumerate(state.nodes):
            for label, then in self._of(state, number, one):
                yield f"{_name(number)}: {label}", then

    def _of(self, state: State, number: int, one: One) -> Iterator[tuple[str, Callable[[], State]]]:
        for label, made in self._changes(state, number, one):
            # A change is reported at once.
            yield label, lambda made=made: self._call(made(), number)
            if state.lost:
                yield f"{label}, and the report is lost", lambda made=made: self._lose(_spent(made(), "lost"), number)
            if state.late:
                yield f"{label}, and the answer is late", lambda made=made: self._report(_spent(made(), "late"), number)
        if one.answer is not None:
            yield "the answer arrives", lambda: self._receive(state, number)
        else:
            yield "it reports", lambda: self._call(state, number)
        if state.lost:
            yield "an answer is lost", lambda: self._lose(_spent(self._report(state, number), "lost"), number)

    def _changes(self, state: State, number: int, one: One) -> Iterator[tuple[str, Callable[[], State]]]:
        if one.event == ABSENT:
            yield "its event is announced", lambda: self._event(state, number, SCHEDULED)
        if one.event == SCHEDULED and one.approved:
            yield "its event starts", lambda: self._event(state, number, STARTED)
        if one.event == SCHEDULED and state.cancelled:
            yield "its event is cancelled", lambda: self._event(replace(state, cancelled=state.cancelled - 1), number, GONE)
        if one.event == STARTED:
            yield "its event ends", lambda: self._event(state, number, GONE)
        if one.agent.run is not None:
            yield f"{one.agent.run.kind} succeeds", lambda: self._end_hook(state, number)
        if state.restarts:
            yield "it starts again", lambda: self._restart(replace(state, restarts=state.restarts - 1), number)

    def _call(self, state: State, number: int) -> State:
        """Report. The answer arrives at once; one that is on its way already arrives first."""
        if state.nodes[number].answer is not None:
            state = self._receive(state, number)
        return self._receive(self._report(state, number), number)

    def _pass_time(self, state: State) -> State:
        if self.play.ahead and state.moment == 0:
            # Between the two moments each agent reports many times. One that gets no answer counts the app as silent.
            for number, one in enumerate(state.nodes):
                state = self._call(state, number) if not one.agent.app.away else state
        # Whoever has no answer about its event, or whose last report was lost, has waited long enough by then.
        nodes = tuple(replace(one, silent=one.silent or not one.answered or bool(one.agent.app.away)) for one in state.nodes)
        state = replace(state, moment=state.moment + 1, nodes=nodes)
        for number in range(len(nodes)):
            state = self._observe(state, number, Tick())
        if state.moment == LATE:
            for number, one in enumerate(state.nodes):
                record = one.agent.events.get(_id(number))
                if record is not None and record.phase is EventPhase.WAITING and one.agent.run is None:
                    raise Violation(f"late: {_name(number)} does not prepare, although its hook needs the rest of the time")
        return state

    def _event(self, state: State, number: int, event: int) -> State:
        one = replace(state.nodes[number], event=event)
        if event == SCHEDULED:
            # The wait for the first answer begins with the event, unless the app is away.
            one = replace(one, silent=one.silent and bool(one.agent.app.away), answered=False)
        state = _with(state, number, one)
        return self._look(state, number)

    def _look(self, state: State, number: int) -> State:
        event = state.nodes[number].event
        kind = "Preempt" if self._is_evicted(number) else "Freeze"
        soon = NOT_BEFORE - 1 if self.play.ahead and number == 0 else NOT_BEFORE
        shown = () if event not in LISTED else (replace(_scheduled(number), type=kind, status=LISTED[event], not_before=soon),)
        state = self._observe(state, number, DocumentRead(EventsDocument(None, shown)))
        record = state.nodes[number].agent.events.get(_id(number))
        waits = record is not None and record.phase is EventPhase.WAITING and not record.unsure and state.nodes[number].agent.run is None
        if waits and self._is_evicted(number):
            raise Violation(f"late: {_name(number)} waits, although its machine is removed in any case")
        return state

    def _is_evicted(self, number: int) -> bool:
        return number < self.play.evicted

    def _end_hook(self, state: State, number: int) -> State:
        run = state.nodes[number].agent.run
        assert run is not None
        return self._observe(state, number, HookEnded(run.number, True))

    def _report(self, state: State, number: int) -> State:
        one = state.nodes[number]
        if one.answer is not None:
            return state
        records = one.agent.events.values()
        entries = tuple(
            NodeEntry(
                record.event.event_id,
                record.event.type,
                "Started" if record.event.status == "Started" else "Scheduled",
                record.phase.value,
                record.event.not_before,
                resources=record.event.resources,
                outcome=record.outcome or "",
            )
            for record in records
        )
        name = _name(number)
        # Nodes of scopes of their own see their own events only.
        row = NodeRow(name, name, name, one.seq + 1, 0, "west", name, disabled=one.agent.disabled, entries=entries)
        heard = rules.receive(state.view, row, FLEET, {}, True, MOMENTS[state.moment])
        assert isinstance(heard, rules.AcceptedAgentReport)
        view = FleetEvents({**state.view.nodes, name: heard.node}, heard.events, heard.monitors, guard=heard.guard)
        asked = heard.answer.permissions
        answer = AppAnswer(
            step.asked_events(one.agent),
            holds=dict(heard.answer.holds),
            permitted=frozenset(event_id for event_id, why in asked.items() if not why),
            refused={event_id: why for event_id, why in asked.items() if why},
            policy=POLICY,
        )
        return _with(replace(state, view=view), number, replace(one, seq=one.seq + 1, answer=answer))

    def _receive(self, state: State, number: int) -> State:
        one = state.nodes[number]
        assert one.answer is not None
        heard = _id(number) in one.answer.permitted | one.answer.refused.keys()
        after = replace(one, answer=None, answered=one.answered or heard, silent=one.silent and not heard)
        return self._observe(_with(state, number, after), number, one.answer)

    def _lose(self, state: State, number: int) -> State:
        after = _with(state, number, replace(state.nodes[number], answer=None))
        return self._observe(after, number, AppUnreachable("no answer"))

    def _restart(self, state: State, number: int) -> State:
        one = state.nodes[number]
        saved = journal.decode(journal.encode(one.agent))
        after = _with(state, number, replace(one, agent=saved, answer=None, answered=False, silent=False))
        after = self._observe(after, number, StartUp("boot-1", "kept", saved.disabled))
        return self._look(after, number)

    # -- the agents

    def _observe(self, state: State, number: int, observation: Observation) -> State:
        one = state.nodes[number]
        wall = MOMENTS[state.moment]
        agent, effects = step.step(one.agent, observation, Now(wall, wall / 1000), _settings(number))
        self._judge(state, number, agent)
        before, after = one.agent.events.get(_id(number)), agent.events.get(_id(number))
        if after is not None and after.phase is EventPhase.PREPARING and (before is None or before.phase is EventPhase.WAITING):
            one = replace(one, excused=self._excuse(state, number))
        state = _with(state, number, replace(one, agent=agent))
        for effect in effects:
            if isinstance(effect, RunHook) and effect.kind == "prepare":
                state = self._observe(state, number, HookEnded(effect.run, True))
            if isinstance(effect, Approve):
                state = _with(state, number, replace(state.nodes[number], approved=True))
                state = self._observe(state, number, ApprovalPosted(effect.event_id, "accepted", 200, effect.grant))
        return state

    def _excuse(self, state: State, number: int) -> bool:
        return state.moment == LATE or state.nodes[number].silent or self._is_evicted(number)

    def _judge(self, state: State, number: int, agent: NodeState) -> None:
        before, after = state.nodes[number].agent.events.get(_id(number)), agent.events.get(_id(number))
        if after is None or after.phase is not EventPhase.PREPARING or (before is not None and before.phase is not EventPhase.WAITING):
            return
        if self._excuse(state, number):
            return
        for other, one in enumerate(state.nodes):
            if other != number and not one.excused and _is_out(one, other):
                raise Violation(f"guard: {_name(number)} goes out of service while {_name(other)} is out")

    # -- judges

    def check(self, state: State) -> None:
        """Check the end without further faults: all nodes prepare in turn before the latest start, and are back."""
        if state.moment != LATE - 1 or any(one.answer is not None for one in state.nodes):
            return
        quiet = replace(state, lost=0, late=0, restarts=0, cancelled=0)
        key = self.key(quiet)
        if key in self._ends_well:
            return
        for _ in range(8 * self.play.nodes):
            for number in range(self.play.nodes):
                quiet = self._go_on(quiet, number)
        waiting = [_name(number) for number, one in enumerate(quiet.nodes) if one.event not in (ABSENT, GONE) or _is_out(one, number)]
        if waiting:
            raise Violation(f"stuck: {', '.join(waiting)}: no permission, although all others are back", [f"{FROM_HERE}, in turn)"])
        self._ends_well.add(key)

    def _go_on(self, state: State, number: int) -> State:
        """Let a node, its event and the app do what is next."""
        one = state.nodes[number]
        if one.agent.run is not None:
            state = self._end_hook(state, number)
        elif one.event == STARTED:
            state = self._event(state, number, GONE)
        elif one.event == SCHEDULED and one.approved:
            state = self._event(state, number, STARTED)
        if state.nodes[number].answer is None:
            state = self._report(state, number)
        return self._receive(state, number)

    def key(self, state: State) -> Hashable:
        """States that differ only in times, counts and texts are one."""
        nodes = tuple(_key(number, one) for number, one in enumerate(state.nodes))
        return nodes, stored(state), (state.lost, state.late, state.restarts, state.cancelled)


def stored(state: State) -> Hashable:
    """Return what the app has stored, without times and texts, and the moment."""
    view = state.view
    nodes = tuple(
        (name, node.at, node.disabled, node.caught_up, tuple((entry.event_id, entry.phase, entry.status) for entry in node.entries))
        for name, node in sorted(view.nodes.items())
    )
    events = tuple((event.event_id, event.status, bool(event.cleared)) for _, event in sorted(view.events.items()))
    return nodes, events, tuple(sorted(view.guard.reserved)), state.moment


def _key(number: int, one: One) -> Hashable:
    agent, answer = one.agent, one.answer
    app, record, run = agent.app, agent.events.get(_id(number)), agent.run
    shown = None if record is None else (record.phase, record.event.status, record.unsure, record.approved_at is None)
    own = (agent.disabled, agent.restore and agent.restore.step, run and (run.kind, run.stopping), shown)
    known = (app.away, app.away_since if app.away else 0, frozenset(app.heard), frozenset(app.holds), app.permitted, frozenset(app.refused))
    coming = None if answer is None else (answer.told, frozenset(answer.holds), answer.permitted, frozenset(answer.refused))
    return own, known, coming, one.event, one.approved, one.answered, one.silent, one.excused


def _is_out(one: One, number: int) -> bool:
    record = one.agent.events.get(_id(number))
    return one.agent.disabled or (record is not None and record.phase is EventPhase.PREPARING)


def _spent(state: State, fault: str) -> State:
    return replace(state, **{fault: getattr(state, fault) - 1})


def _with(state: State, number: int, one: One) -> State:
    return replace(state, nodes=(*state.nodes[:number], one, *state.nodes[number + 1 :]))


def _name(number: int) -> str:
    return "abc"[number]


def _id(number: int) -> str:
    return f"e{number + 1}"


def _scheduled(number: int) -> Any:
    event_id = _id(number)
    return ScheduledEvent(event_id, event_id, "Freeze", "Scheduled", NOT_BEFORE, duration=9, resources=(_name(number),))


def _settings(number: int) -> AgentSettings:
    hooks: dict[Any, float] = {"prepare": 10.0, "restore": 10.0}
    never = {"gap": 1e9, "keep_done": 1e9, "late_warning": 1e9, "started_warning": 1e9}
    return AgentSettings(_name(number), hooks=hooks, central=True, fleet="db", **never)
