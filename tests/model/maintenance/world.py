"""One node and two events, explored whole. The agent's own rules decide; what is true is kept apart from what the agent believes.

Time has two moments, before both NotBefore and after; back-offs are nought, so that a retry may come at any moment. Crashes come between
any two effects of a decision, before them and after. After each state it is tried whether all ends well when nothing more goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from shared.maintenance.agent import journal
from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.decisions import step
from shared.maintenance.agent.effects import AgentEffect, Approve, RunHook
from shared.maintenance.agent.model import EventRecord, EventsDocument, LeasedApproval, NodeState, Now, ScheduledEvent
from shared.maintenance.agent.observations import (
    AppAnswer,
    ApprovalPosted,
    AppUnreachable,
    DocumentRead,
    HookEnded,
    Observation,
    PollFailed,
    StartUp,
    StopRequested,
    Tick,
)
from shared.maintenance.agent.policy import ActionRule, FleetPolicy
from tests.model.checking.checker import Violation

VM: Final = "vm-1"
SOON: Final = 1_000_000
"""NotBefore of both events, in wall milliseconds: before the second moment."""
MOMENTS: Final = (0, 2_000_000)
ABSENT, SCHEDULED, STARTED, GONE = range(4)
STATUSES: Final = {SCHEDULED: "Scheduled", STARTED: "Started"}
SETTINGS: Final = AgentSettings(
    vm=VM,
    hooks={"prepare": 60.0, "emergency": 20.0, "restore": 60.0, "verify": 30.0},
    retry_first=0.0,
    prepare_tries=1,
    near=10_000.0,
    late_warning=1e9,
    started_warning=1e9,
    keep_done=1e9,
    gap=1e9,
)
ASKED: Final = FleetPolicy(rules=(ActionRule("prepare", source="User"),))
"""A policy that a fleet may ask of its agents."""


@dataclass(frozen=True)
class Faults:
    """The largest number of faults of each kind: crashes of the process or the machine, looks that bring nothing or a part, hooks that
    fail, POSTs that are not answered or refused, ends on request, lost state files; and approvals that the fleet leases, its asking for
    more, and its answers to reports of an event that names other nodes too."""

    crashes: int = 0
    looks: int = 0
    hooks: int = 0
    posts: int = 0
    stops: int = 0
    losses: int = 0
    grants: int = 0
    policies: int = 0
    answers: int = 0


@dataclass(frozen=True)
class Play:
    """Two events, what may go wrong, and how the node is set up. drained: an operator has taken the node out of service. due: NotBefore has
    passed from the beginning, so that all that is seen is due at once."""

    name: str
    events: tuple[ScheduledEvent, ...]
    faults: Faults
    settings: AgentSettings = SETTINGS
    drained: bool = False
    due: bool = False
    direct: bool = False
    """Events may be first seen Started."""
    numbered: bool = False
    """All documents have one incarnation; otherwise none has any."""


@dataclass(frozen=True, slots=True)
class State:
    """The agent, what the metadata service lists, and what is true of the services."""

    node: NodeState
    events: tuple[int, ...]
    faults: Faults
    moment: int = 0
    boot: int = 1
    down: bool = False
    ours: bool = False
    begun: bool = False
    ready: frozenset[str] = frozenset()
    told: bool = False
    """The process got SIGTERM."""
    asked: bool = False
    """The fleet has asked that users' events be prepared for too."""
    seen: tuple[int, ...] | None = None
    """The events as the last look showed them; None when it showed nothing whole."""
    sent: frozenset[str] | None = None
    """The events that the report under way shows as PREPARED; None when no report is under way."""
    agreed: frozenset[str] = frozenset()
    """The events that the last answer of the app lets this process approve."""


@dataclass
class AgentWorld:
    """A play as the checker walks it."""

    play: Play
    _ends_well: set[Hashable] = field(default_factory=set)

    def initial(self) -> State:
        blank = State(NodeState(), (ABSENT,) * len(self.play.events), self.play.faults, int(self.play.due), down=self.play.drained)
        return self._observe(blank, StartUp("boot-1", "none"))

    # -- steps

    def successors(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        """Return the steps that may happen next."""
        for number, now in enumerate(state.events):
            for then in self._next(now):
                yield f"event {number + 1}: {then}", lambda number=number, then=then: self._list(state, number, then)
        if state.moment == 0:
            yield from self._observed("NotBefore passes", replace(state, moment=1), Tick())
        yield from self._look(state)
        run = state.node.run
        if run is not None:
            yield from self._hook(state, ok=True)
            if state.faults.hooks:
                yield from self._hook(_spent(state, "hooks"), ok=False)
        for record in state.node.events.values():
            if record.posting:
                yield from self._post(state, record)
        yield from self._trouble(state)

    def _next(self, now: int) -> tuple[int, ...]:
        first = (SCHEDULED, STARTED) if self.play.direct else (SCHEDULED,)
        return {ABSENT: first, SCHEDULED: (STARTED, GONE), STARTED: (GONE,)}.get(now, ())

    def _list(self, state: State, number: int, then: int) -> State:
        return replace(state, events=(*state.events[:number], then, *state.events[number + 1 :]))

    def _look(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        shown = replace(state, seen=state.events)
        yield from self._observed("a look", shown, DocumentRead(self._document(state)))
        if state.faults.looks:
            blind = replace(_spent(state, "looks"), seen=None)
            yield from self._observed("a look brings nothing", blind, PollFailed("nonsense"))
            part = EventsDocument(None, self._document(state).events[1:], ("Events[0]: not an object",))
            yield from self._observed("a look brings a part", blind, DocumentRead(part))

    def _hook(self, state: State, *, ok: bool) -> Iterator[tuple[str, Callable[[], State]]]:
        run = state.node.run
        assert run is not None
        # A stopped hook did not finish, whatever it says.
        over = self._hook_over(state, ok and not run.stopping)
        yield from self._observed(f"{run.kind} {'succeeds' if ok else 'fails'}", over, HookEnded(run.number, ok))

    def _post(self, state: State, record: EventRecord) -> Iterator[tuple[str, Callable[[], State]]]:
        id = record.event.event_id
        grant = "g" if id in state.node.app.grants else ""
        yield from self._observed(f"{id}: 200", state, ApprovalPosted(id, "accepted", 200, grant))
        if state.faults.posts:
            spent = _spent(state, "posts")
            yield from self._observed(f"{id}: no answer", spent, ApprovalPosted(id, "busy", 0, grant))
            yield from self._observed(f"{id}: 404", spent, ApprovalPosted(id, "refused", 404, grant))

    def _trouble(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        faults = state.faults
        if faults.crashes:
            spent = _spent(state, "crashes")
            yield "the process is killed", lambda: self._restart(spent, reboot=False)
            yield "the machine boots", lambda: self._restart(spent, reboot=True)
        if faults.losses:
            yield "the state is lost", lambda: self._restart(_spent(state, "losses"), reboot=False, lost="corrupt")
        if faults.stops:
            yield from self._observed("SIGTERM", replace(_spent(state, "stops"), told=True), StopRequested())
        if state.told:
            yield "the process starts again", lambda: self._restart(state, reboot=False)
        if faults.grants:
            for event in self.play.events:
                grants = (LeasedApproval("g", event.event_id, 1e9, 10**12),)
                yield from self._observed(f"{event.event_id}: leased", _spent(state, "grants"), AppAnswer(grants=grants))
        if faults.answers:
            yield from self._answers(state)
        if faults.policies:
            yield from self._observed("the fleet asks", replace(_spent(state, "policies"), asked=True), AppAnswer(policy=ASKED))

    def _answers(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        if state.sent is None:
            yield "a report is sent", lambda: replace(state, sent=step.asked_events(state.node))
            return
        spent = replace(_spent(state, "answers"), sent=None)
        holds = {event.event_id: "vm-2 has not prepared" for event in self.play.events}
        yield from self._observed("the app holds", replace(spent, agreed=frozenset()), AppAnswer(state.sent, holds=holds))
        yield from self._observed("the app agrees", replace(spent, agreed=state.sent), AppAnswer(state.sent))
        yield from self._observed("the app is away", replace(spent, agreed=frozenset()), AppUnreachable("no answer"))

    # -- the agent

    def _observed(self, label: str, state: State, observation: Observation) -> Iterator[tuple[str, Callable[[], State]]]:
        """The step, and the same with a crash before its effects, or between them."""
        decided = self._step(state, observation)
        yield label, lambda: self._done(state, decided)
        if state.faults.crashes:
            for done in range(sum(isinstance(effect, RunHook | Approve) for effect in decided.effects)):
                part = f"{label}; {done} effects"
                yield f"{part}, then a kill", lambda done=done: self._cut(state, decided, done, reboot=False)
                yield f"{part}, then the machine boots", lambda done=done: self._cut(state, decided, done, reboot=True)

    def _step(self, state: State, observation: Observation) -> step.Decision:
        return step.step(state.node, observation, Now(MOMENTS[state.moment], 0.0), self.play.settings)

    def _observe(self, state: State, observation: Observation) -> State:
        return self._done(state, self._step(state, observation))

    def _done(self, state: State, decided: step.Decision, most: int | None = None) -> State:
        """Save the state and carry out the first `most` of its effects; None: all of them."""
        node, effects = decided
        doing = [effect for effect in effects if isinstance(effect, RunHook | Approve)]
        ours = state.ours or any(isinstance(effect, RunHook) and effect.kind in ("prepare", "emergency") for effect in doing)
        after = replace(state, node=node, ours=ours)
        for effect in doing[:most]:
            after = self._carry_out(after, effect)
        return after

    def _cut(self, state: State, decided: step.Decision, done: int, *, reboot: bool) -> State:
        return self._restart(_spent(self._done(state, decided, done), "crashes"), reboot=reboot)

    def _carry_out(self, state: State, effect: AgentEffect) -> State:
        if state.told:
            raise Violation("ended: something is begun after SIGTERM")
        if isinstance(effect, Approve):
            self._judge_post(state, effect)
            return state
        assert isinstance(effect, RunHook)
        if effect.kind in ("prepare", "emergency"):
            return replace(state, down=True, begun=True)
        if not state.ours:
            raise Violation("undone: a restore though we did not take the services down")
        self._whole(state, "a restore")
        if any(status in STATUSES for status in state.seen or ()):
            raise Violation("garbage: a restore while an event is listed")
        return replace(state, ready=frozenset())

    def _hook_over(self, state: State, ok: bool) -> State:
        run = state.node.run
        if run is not None and ok and run.kind == "prepare":
            return replace(state, ready=state.ready | {run.event_id})
        return replace(state, down=False) if run is not None and ok and run.kind == "restore" else state

    def _restart(self, state: State, *, reboot: bool, lost: Any = "kept") -> State:
        marker = state.node.disabled
        node = journal.decode(journal.encode(state.node)) if lost == "kept" else NodeState()
        after = replace(state, node=node, seen=None, told=False, sent=None, agreed=frozenset())
        if reboot:
            after = replace(after, boot=state.boot + 1, ready=frozenset(), down=self.play.drained and not state.begun)
        return self._observe(after, StartUp(f"boot-{after.boot}", lost, marker))

    # -- judges

    def _document(self, state: State) -> EventsDocument:
        listed = tuple(self._event(number, status) for number, status in enumerate(state.events) if status in STATUSES)
        return EventsDocument(1 if self.play.numbered else None, listed)

    def _event(self, number: int, status: int) -> ScheduledEvent:
        return replace(self.play.events[number], status=STATUSES[status])  # type: ignore[arg-type]

    def _whole(self, state: State, what: str) -> None:
        if state.seen is None:
            raise Violation(f"garbage: {what} though the last look brought nothing whole")

    def _judge_post(self, state: State, effect: Approve) -> None:
        self._whole(state, "a POST")
        number = next(number for number, event in enumerate(self.play.events) if event.event_id == effect.event_id)
        if state.seen is not None and state.seen[number] != SCHEDULED:
            raise Violation("garbage: a POST of what is not Scheduled")
        event = self.play.events[number]
        needs = VM in event.resources and (event.source == "Platform" or state.asked) and event.duration != 0
        if needs and event.event_id not in state.ready:
            raise Violation(f"unprepared: {event.event_id} is approved")
        if needs and event.not_before is None and not effect.grant:
            raise Violation(f"undated: {event.event_id} is approved, and nothing shows how much time is left")
        others = needs and event.resources != (VM,)
        if others and not effect.grant and event.event_id not in state.agreed:
            raise Violation(f"alone: {event.event_id} is approved, and the app has not agreed for the other nodes")

    def check(self, state: State) -> None:
        """Check the end without further faults, once all events have gone: the node is back if we took it out, and untouched if not."""
        quiet = replace(state, events=tuple(GONE if each in STATUSES else each for each in state.events), faults=Faults(), moment=1)
        key = self.key(quiet)
        if key in self._ends_well:
            return
        steps = []
        for _ in range(20):
            node = quiet.node
            if quiet.told:
                quiet = self._restart(quiet, reboot=False)
            elif node.run is not None:
                steps.append(f"{node.run.kind} succeeds")
                quiet = self._observe(self._hook_over(quiet, not node.run.stopping), HookEnded(node.run.number, True))
            else:
                quiet = self._observe(replace(quiet, seen=quiet.events), DocumentRead(self._document(quiet)))
        if quiet.node.disabled or quiet.node.run is not None or (quiet.begun and quiet.down):
            raise Violation("not restored: all events are gone, and the node is not back", ["(from here without faults)", *steps])
        self._ends_well.add(key)

    def key(self, state: State) -> Hashable:
        """States that differ only in times, counts and words are one."""
        node = state.node
        run = node.run and (node.run.kind, node.run.event_id, node.run.stopping)
        records = tuple(
            (
                id,
                record.phase,
                record.event.status,
                record.listed,
                record.prepared_boot and record.prepared_boot == node.boot_id,
                record.approve_intent is None,
                record.approved_at is None,
                record.hook_wanted,
                record.unsure,
                record.posting,
                record.look_first,
                min(record.posts, 1),
                min(record.refusals, 5),
                min(record.tries, 3),
                record.hurry,
            )
            for id, record in sorted(node.events.items())
        )
        known = node.document and (node.document.incarnation, tuple(each.status for each in node.document.events))
        looks = (node.looked, node.sighted, node.rebooted, known if self.play.numbered else None)
        own = (node.disabled, node.restore and node.restore.step, run, node.stopping, tuple(node.app.grants))
        app = (node.app.away, frozenset(node.app.heard), frozenset(node.app.holds), state.sent, state.agreed)
        services = (state.down, state.ours, state.begun, state.ready, state.told, state.asked, app)
        return own, looks, records, services, (state.events, state.moment, state.seen, state.faults)


def _spent(state: State, fault: str) -> State:
    return replace(state, faults=replace(state.faults, **{fault: getattr(state.faults, fault) - 1}))
