"""Known bugs, to be planted one at a time: a simulation that cannot find these proves nothing.

Some leave out a sentence of the protocol, as the model checker's mutants do; the others are mistakes of the loops around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shared.engine.effects import RECEIVING, Write
from shared.engine.validity import ReceivedAt, SentAt
from shared.leases import rules
from shared.leases.node.heartbeat_loop import HeartbeatLoop
from shared.leases.node.notifications import ApplicationNotifier
from shared.leases.node.scan_loop import ScanLoop
from shared.leases.profiles import Profile
from shared.leases.protocol import fencing, membership, takeover
from shared.leases.rows import Server
from shared.leases.rules import ServerSession
from shared.storage.ports import ANY, Delete, Merge
from tests.model.checking.mutants import Patch, patched, relay
from tests.model.leases import mutants

from .delivering_planted import PLANTED as DELIVERIES_PLANTED


def never_expires() -> list[Patch]:
    """`owns` without a deadline: a process that stood still believes what it believed."""
    plain = ApplicationNotifier.publish
    return [(ApplicationNotifier, "publish", lambda self, epochs, until: plain(self, epochs, 1e12))]


def takeover_too_soon() -> list[Patch]:
    """T as long as V: it does not make up for clocks that run at different rates, nor for requests under way."""
    return [(ReceivedAt, "ripens", lambda self, takeover: self.seconds + 0.75 * takeover)]


def claims_without_fencing() -> list[Patch]:
    """A silent server counts as ended, and its row stays as it is."""
    plain_fence, silent = takeover.fence, set()

    def fence(key: str, server: str, sights: Any, takeover_after: float) -> Any:
        inner = plain_fence(key, server, sights, takeover_after)
        answer = yield next(inner)
        try:
            while True:
                effect = inner.send(answer)
                if isinstance(effect, Write):
                    silent.add(sights[server].incarnation)
                    sights.pop(server, None)
                    return "fenced"
                answer = yield effect
        except StopIteration as stop:
            return stop.value

    def ended(incarnation: str, server: Server | None) -> bool:
        return server is None or server.state == "dead" or server.incarnation != incarnation or incarnation in silent

    return [(takeover, "fence", fence), (rules, "has_ended", ended)]


def serves_while_it_hands_off() -> list[Patch]:
    """A partition that is being handed off stays in the view until it is released."""

    def publish(self: HeartbeatLoop, session: ServerSession) -> float:
        epochs = {partition: held.epoch for partition, held in {**session.held, **session.leaving}.items()}
        until = rules.valid_until(session, self._profile)
        self._notifier.publish(epochs, until)
        return until

    return [(HeartbeatLoop, "_publish", publish)]


def view_outlives_fencing() -> list[Patch]:
    """A fenced incarnation goes on until its validity ends: here, a beat is taken for applied although it was refused."""

    def read_back(session: ServerSession, server: Server | None, *row: Any) -> Any:
        found = plain(session, server, *row)
        if found == "told":
            session.valid = SentAt(session.valid.seconds + 1e6) if session.valid is not None else None
        return found

    plain = rules.read_back
    return [(rules, "read_back", read_back)]


def takeover_forgets_the_token() -> list[Patch]:
    """Writes of the application that do not name the token of their epoch."""

    def batch(table: str, pk: str, epoch: int, ops: Any) -> Any:
        return (yield Write(table, pk, tuple(ops)))

    return [(fencing, "batch", batch)]


def token_not_replaced() -> list[Patch]:
    """Tokens are added and never taken away."""
    plain = fencing.take

    def take(table: str, pk: str, epoch: int) -> Any:
        def change(effect: Any) -> Any:
            return (
                effect._replace(ops=tuple(op for op in effect.ops if not isinstance(op, Delete))) if isinstance(effect, Write) else effect
            )

        return relay(plain(table, pk, epoch), change)

    return [(fencing, "take", take)]


def claim_unconditional() -> list[Patch]:
    """Claims that do not look whether the partition's row has changed since."""
    plain = takeover.scout

    def scout(session: ServerSession, partitions: Any, *living: Any) -> Any:
        found = yield from plain(session, partitions)
        return [claim._replace(etag=ANY) for claim in found]

    return [(takeover, "scout", scout)]


def epoch_not_raised() -> list[Patch]:
    """A released partition is claimed under the epoch it had."""
    plain = takeover.scout

    def scout(session: ServerSession, partitions: Any, *living: Any) -> Any:
        found = yield from plain(session, partitions)
        return [claim._replace(epoch=max(1, claim.epoch - 1)) for claim in found]

    return [(takeover, "scout", scout)]


def age_from_request() -> list[Patch]:
    """The rows of a scan are dated by its request, although its pages may have taken long."""
    plain = takeover.observe_servers

    def look(key: str, sights: Any) -> Any:
        asked = yield RECEIVING
        inner = plain(key, sights)
        rows = yield next(inner)
        inner.send(rows)
        return (yield from relay(inner, answer=asked))

    return [(takeover, "observe_servers", look), *mutants.age_from_request()]


def orders_keep_the_dead_alive() -> list[Patch]:
    """Silence is judged by the row's ETag, which others change too."""
    plain, etags = takeover.observe_servers, {}

    def look(key: str, sights: Any) -> Any:
        rows = yield from plain(key, sights)
        for row in rows:
            name = row.rk[2:]
            if name in sights and etags.get((id(sights), name)) != row.etag:
                etags[id(sights), name] = row.etag
                at = yield RECEIVING
                sights[name] = sights[name]._replace(first=at)
        return rows

    return [(takeover, "observe_servers", look)]


def lost_claims_forgotten() -> list[Patch]:
    """A claim whose answer was lost is read back once; when that fails, never again."""

    def collect(session: ServerSession) -> Any:
        won, session.won = dict(session.won), {}
        kept, session.won = session.won, won
        try:
            yield from plain(session)
        finally:
            session.won = kept

    plain = membership.collect
    return [(membership, "collect", collect)]


def planner_is_satisfied() -> list[Patch]:
    """A planner does not check whether its plan was carried out."""

    def plan(self: ScanLoop, *arguments: Any) -> Any:
        yield from plain(self, *arguments)
        self._due, self._next_plan = False, 1e12

    plain = ScanLoop._plan
    return [(ScanLoop, "_plan", plan)]


def unsafe_profile() -> list[Patch]:
    """V longer than T."""
    plain = rules.valid_until
    return [(rules, "valid_until", lambda session, profile: plain(session, Profile(profile.beat, profile.takeover + 1, profile.takeover)))]


def claims_outlive_incarnations() -> list[Patch]:
    """Claims and orders of an incarnation are kept for the next, and rows are written although they were fenced."""
    plain = membership.beat

    def beat(session: ServerSession, *arguments: Any) -> Any:
        inner = plain(session, *arguments)
        sent = yield next(inner)
        effect = inner.send(sent)
        touch = effect.ops[0]
        assert isinstance(touch, Merge)
        props = {**touch.props, "incarnation": session.incarnation}
        answer = yield effect._replace(ops=(touch._replace(etag=ANY, props=props), *effect.ops[1:]))
        return (yield from relay(inner, answer=answer))

    return [(membership, "beat", beat)]


PLANTED: dict[str, Callable[[], list[Patch]]] = {
    "claim without fencing first": claims_without_fencing,
    "validity from the answer instead of the send": mutants.deadline_from_ack,
    "age from the request instead of the receipt": age_from_request,
    "resume without proof": mutants.resume_without_proof,
    "a beat without its ETag": mutants.unconditional_beat,
    "a beat that takes its row back": claims_outlive_incarnations,
    "a lost claim taken for granted": mutants.lost_claim_granted,
    "V above T": unsafe_profile,
    "T too short": takeover_too_soon,
    "owns without a deadline": never_expires,
    "serves while it hands off": serves_while_it_hands_off,
    "refusals prolong validity": view_outlives_fencing,
    "claims without the partition's ETag": claim_unconditional,
    "the epoch is not raised": epoch_not_raised,
    "writes without their token": takeover_forgets_the_token,
    "tokens are never taken away": token_not_replaced,
    "orders keep the dead alive": orders_keep_the_dead_alive,
    "lost claims are read back once": lost_claims_forgotten,
    "plans are not looked after": planner_is_satisfied,
}


ROLLBACK_PLANTED: dict[str, Callable[[], list[Patch]]] = {
    "an own row that went backwards is taken as it is": mutants.rollback_not_noticed,
}
"""Bugs that show when storage loses writes."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run the simulated code with the bug `name`, for as long as the context lasts."""
    with patched((PLANTED | ROLLBACK_PLANTED | DELIVERIES_PLANTED)[name]()):
        yield
