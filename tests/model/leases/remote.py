"""A server that speaks HTTP, in the world of the lease protocol: its requests and their answers take any time, come twice, or never.

Three moments of a request are kept apart: the server sends it, an instance of the app handles it (read by read and write by write, and two
instances at once), the answer arrives. The server follows docs/reference/fleets.md, and does nothing more: its validity counts from
its SEND of the first try of a number, it has what the answer to its latest beat says and what it claimed since, and it never takes back
what it has begun to release.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shared.engine.effects import Get, Write
from shared.leases.profiles import Profile
from shared.leases.protocol import http_servers
from shared.leases.protocol.http_servers import ClaimResult, HeartbeatAccepted, ServerHeartbeat, ServerRejected
from shared.leases.rows import FLEET, Fleet, Intent, MoveLimits, Partition, server_key
from shared.storage.names import FLEETS
from shared.storage.ports import ANY, Applied, Insert, Merge, Row, WriteRefused
from tests.model.checking.checker import Violation

from .world import KEY, PARTITION, ROW, Actor, Doing, Life, Play, State, World, freeze_props

NAME = "a"
MINE = "a1"
OVER = ServerRejected("fenced"), ServerRejected("evicted")


class Request(NamedTuple):
    """One copy of a request on its way. number: the beat's, or the epoch that is released."""

    what: str
    incarnation: str
    number: int
    copy: int


class Sending(NamedTuple):
    """The requests that the server may still send: beats, repeated beats, claims, releases (each of them twice), claims after a release,
    the last beat, which keeps its partitions (twice)."""

    beat: int = 0
    again: int = 0
    claim: int = 0
    release: int = 0
    keep: int = 0


class Client(NamedTuple):
    """The state of the server. sent: when it first sent each beat. valid: the SEND that its validity counts from, -1 for none. latest: the
    highest beat answered. has: the epoch that it holds the partition under, 0 for none. left: the highest epoch it began to release."""

    sent: tuple[int, ...]
    valid: int = -1
    latest: int = 0
    has: int = 0
    left: int = 0
    over: bool = False
    may: Sending = Sending()
    copies: int = 0


@dataclass(frozen=True)
class Remote(Play):
    """may: what the server sends. strays: requests of other incarnations that are on their way from the beginning. owns: it has the
    partition at the start. aged: the ages of rows matter. unwanted: it has been told at 0 to release the partition for an
    operator's word, and at 1 its time to is over."""

    may: Sending = field(default_factory=Sending)
    strays: tuple[Request, ...] = ()
    owns: bool = True
    aged: bool = False
    unwanted: bool = False
    rules: ClientRules = field(default_factory=lambda: ClientRules())


@dataclass(frozen=True)
class ClientRules:
    """The rules that an HTTP server must keep; a mutant leaves out one."""

    first_try: bool = True
    """Validity counts from the first try's SEND."""
    gives_up: bool = True
    """The server does not take back a partition that it has begun to release."""
    stops: bool = True
    """The server has stopped serving before it sends the beat that keeps its partitions."""


class Scene(NamedTuple):
    """`world.State`, with the server and the network."""

    now: int
    store: frozenset[tuple[str, int, Hashable]]
    actors: frozenset[Actor]
    late: frozenset[int]
    crashed: frozenset[str]
    lost: int
    crashes: int
    client: Client
    under_way: frozenset[Request]
    times: frozenset[tuple[str, int]]


class RemoteWorld(World):
    """The model that the checker explores."""

    play: Remote

    def __init__(self, play: Remote) -> None:
        super().__init__(play)
        self._requests: dict[str, Request] = {}

    def _acts(self, generator: Any) -> Any:
        return super()._acts(generator) if "session" in generator.gi_frame.f_locals else None

    def initial(self) -> State:
        # With T it has a second to release in. Safety must not rest on how long that is.
        fleet = Fleet(1, self.play.profile, MoveLimits(drain=1 - self.play.profile.takeover))
        rows = {(ROW, 1, freeze_props(Partition(PARTITION).props())), (FLEET, 1, freeze_props(fleet.props()))}
        client = Client((), may=self.play.may)
        scene: Any = Scene(
            0, frozenset(rows), frozenset(), frozenset(), frozenset(), self.play.lost, self.play.crashes, client, frozenset(), frozenset()
        )
        for what in ("beat", "claim")[: 2 if self.play.owns else 1]:
            scene = self._through(self._send(scene, what, 1))
        if self.play.unwanted:
            word = Intent("prohibit", PARTITION, NAME)
            orders = Write(FLEETS, KEY, (Insert(word.key, word.props()), Merge(server_key(NAME), {"drop": str(PARTITION)}, ANY)))
            scene = self._through(self._send(self._apply(scene, orders)[0], "beat", 2))
        return self._prepared(scene._replace(under_way=frozenset(self.play.strays)))

    def _through(self, scene: Any) -> Any:
        """The one request under way is handled, and answered, alone."""
        [request] = scene.under_way
        scene = self._handle(scene, request)
        while True:
            [actor] = scene.actors
            snapshot = self.machines[actor.machine]
            if snapshot.ended:
                return self._answer(scene, actor, request)
            scene = self._write(scene, actor) if isinstance(snapshot.effect, Write) else self._read(scene, actor)

    def key(self, state: State) -> Hashable:
        """Copies of a request are alike."""
        scene: Any = state
        actors = Counter((actor.name.partition("#")[0], actor.machine, actor.answer, actor.doing) for actor in scene.actors)
        under_way = Counter(request[:3] for request in scene.under_way)
        client = scene.client._replace(copies=0)
        return scene._replace(actors=frozenset(actors.items()), under_way=frozenset(under_way.items()), client=client)

    def check(self, state: State) -> None:
        super().check(state)
        scene: Any = state
        client = scene.client
        if client.over or not client.has or client.valid < 0 or scene.now >= client.valid + self.play.profile.validity:
            return
        for actor in scene.actors:
            view = self.machines[actor.machine].view
            if view is not None and view[0] is not None and scene.now < view[1]:
                raise Violation(f"two owners: {NAME} under {client.has}, {actor.name} under {view[0]}, at {scene.now}")
        stored = next(dict(props)["epoch"] for rk, _, props in scene.store if rk == ROW)
        if client.has != stored:
            raise Violation(f"stale epoch: {NAME} acts under {client.has}, the store says {stored}")

    # -- steps

    def successors(self, state: State) -> Iterator[tuple[str, Callable[[], State]]]:
        yield from super().successors(state)
        scene: Any = state
        client = scene.client
        may = client.may
        if not client.over:
            number = len(client.sent)
            if may.beat:
                yield f"{NAME} sends beat {number + 1}", lambda: self._send(self._spend(scene, "beat"), "beat", number + 1)
            if may.again and number:
                yield f"{NAME} sends beat {number} again", lambda: self._send(self._spend(scene, "again"), "beat", number)
            if may.claim and not client.has:
                yield f"{NAME} sends a claim", lambda: self._send(self._spend(scene, "claim"), "claim", 0)
            if may.release and client.has:
                yield f"{NAME} sends a release, twice", lambda: self._let_go(scene)
            if may.keep and client.has:
                yield f"{NAME} keeps the partition, twice", lambda: self._keep(scene)
        for request in sorted(scene.under_way):
            yield f"the app takes {request.what} {request.number} of {request.incarnation}", lambda r=request: self._handle(scene, r)
        for actor in sorted(scene.actors):
            if actor.name.startswith("app ") and self.machines[actor.machine].ended:
                request = self._requests[actor.name]
                yield f"the answer to {request.what} {request.number} arrives", lambda a=actor, r=request: self._answer(scene, a, r)

    def _spend(self, scene: Any, what: str) -> Any:
        may = scene.client.may
        return scene._replace(client=scene.client._replace(may=may._replace(**{what: getattr(may, what) - 1})))

    def _send(self, scene: Any, what: str, number: int) -> Any:
        client = scene.client
        if what in ("beat", "keep") and number > len(client.sent):
            client = client._replace(sent=(*client.sent, scene.now))
        elif what == "beat" and not self.play.rules.first_try:
            client = client._replace(sent=(*client.sent[:-1], scene.now))
        request = Request(what, MINE, number, client.copies)
        return scene._replace(client=client._replace(copies=client.copies + 1), under_way=scene.under_way | {request})

    def _let_go(self, scene: Any) -> Any:
        epoch = scene.client.has
        scene = self._spend(scene, "release")
        scene = scene._replace(client=scene.client._replace(has=0, left=epoch))
        return self._send(self._send(scene, "release", epoch), "release", epoch)

    def _keep(self, scene: Any) -> Any:
        """The server's last beat: from now on it sends nothing, and no answer makes it act again."""
        client = scene.client._replace(may=Sending())
        if self.play.rules.stops:
            client = client._replace(has=0, left=client.has)
        number = len(client.sent) + 1
        return self._send(self._send(scene._replace(client=client), "keep", number), "keep", number)

    def _handle(self, scene: Any, request: Request) -> Any:
        def handler() -> Any:
            match request.what:
                case "beat":
                    return http_servers.beat(KEY, NAME, ServerHeartbeat(request.incarnation, request.number), 0, 0.0)
                case "keep":
                    return http_servers.beat(KEY, NAME, ServerHeartbeat(request.incarnation, request.number, keep=True), 0, 0.0)
                case "claim":
                    return http_servers.claim(KEY, NAME, request.incarnation, [PARTITION], 0)
                case _:
                    return http_servers.release(KEY, NAME, request.incarnation, PARTITION, request.number, 0)

        number = self.machines.spawn((request.what, request.incarnation, request.number), handler)
        name = f"app {request.what} {request.incarnation} {request.number} #{request.copy}"
        self._requests[name] = request
        # Nothing happens between its coming in and its first read.
        return self._read(scene._replace(under_way=scene.under_way - {request}), Actor(name, number, None, Doing()))

    def _answered(self, state: State, actor: Actor, answer: Any, known: Hashable = None) -> State:
        if not actor.name.startswith("app "):
            return super()._answered(state, actor, answer, known)
        # An instance of the app reads no clock: when it learns what the store did makes no difference.
        return self._resume(state, actor, answer, known)

    def _settled(self, state: State, actor: Actor) -> State:
        if actor.name.startswith("app ") and self.machines[actor.machine].ended:
            scene: Any = state
            result, request = self.machines[actor.machine].result, self._requests[actor.name]
            accepted = isinstance(result, HeartbeatAccepted | ClaimResult) or result in OVER
            if request.incarnation != MINE or scene.client.over or not accepted:
                # No sender awaits its answer.
                return state
        return super()._settled(state, actor)

    def _answer(self, scene: Any, actor: Actor, request: Request) -> Any:
        scene = scene._replace(actors=scene.actors - {actor})
        result = self.machines[actor.machine].result
        client = scene.client
        if request.incarnation != MINE:
            return scene
        match result:
            case HeartbeatAccepted(server):
                sent = client.sent[request.number - 1]
                client = client._replace(valid=max(client.valid, sent))
                if request.number >= client.latest:
                    client = self._has(client._replace(latest=request.number), dict(server.http.held).get(PARTITION, 0))
            case ClaimResult(claimed):
                for _, epoch in claimed:
                    client = self._has(client, epoch)
            case ServerRejected("fenced" | "evicted"):
                over = [each for each in scene.actors if each.name.startswith("app ") and self.machines[each.machine].ended]
                scene = scene._replace(actors=scene.actors - set(over))
                client = client._replace(over=True, has=0)
        return scene._replace(client=client)

    def _has(self, client: Client, epoch: int) -> Client:
        return client._replace(has=epoch if epoch > client.left or not self.play.rules.gives_up else 0)

    # -- the store's own time

    def _apply(self, state: State, write: Any) -> tuple[State, Applied | WriteRefused]:
        after, answer = super()._apply(state, write)
        scene: Any = after
        if self.play.aged and isinstance(answer, Applied):
            written = {op.rk: scene.now for op in write.ops if op.rk.startswith("s:")}
            scene = scene._replace(times=frozenset({**dict(scene.times), **written}.items()))
        return scene, answer

    def _read(self, state: State, actor: Actor) -> State:
        effect = self.machines[actor.machine].effect
        scene: Any = state
        if not (self.play.aged and isinstance(effect, Get)):
            return super()._read(state, actor)
        found = next(((version, props) for rk, version, props in scene.store if rk == effect.rk), None)
        at = dict(scene.times).get(effect.rk, 0)
        # Storage's time is never 0.
        row = None if found is None else Row(KEY, effect.rk, dict(found[1]), str(found[0]), 1 + at * 1000, 1 + scene.now * 1000)
        return self._answered(state, actor, row)


PROFILE = Profile(0, 1, 2)
LONGER = Profile(0, 2, 3)
"""Some validity is left one tick after a beat."""
WATCHES = ("register", "fence")


def take_over(level: int) -> Remote:
    """The keeper fences the HTTP server, whose heartbeats arrive late, and twice."""
    lives = {"b1": Life("b", NAME, Doing(fence=1 + level, claim=1), WATCHES)}
    return Remote("remote take over", PROFILE, lives, until=3, lost=level, may=Sending(beat=1 + level, again=1))


def hand_over(level: int) -> Remote:
    """The HTTP server releases, and claims again; the keeper claims what is free."""
    lives = {"b1": Life("b", NAME, Doing(claim=1 + level), WATCHES)}
    return Remote("remote hand-over", PROFILE, lives, until=level, lost=level, may=Sending(beat=1, claim=1, release=1))


def contest(level: int) -> Remote:
    """Both claim what is free, and the HTTP server may be taken for dead."""
    lives = {"b1": Life("b", NAME, Doing(fence=1, claim=1), WATCHES)}
    return Remote("remote contest", PROFILE, lives, until=2 + level, lost=level, owns=False, may=Sending(beat=1, claim=1 + level))


def successor(level: int) -> Remote:
    """A registration of another process of the name is on its way, and comes twice."""
    lives = {"b1": Life("b", NAME, Doing(fence=level, claim=1), WATCHES)}
    strays = tuple(Request("beat", "a2", 1, copy) for copy in range(-1 - level, 0))
    return Remote("remote successor", PROFILE, lives, until=3, may=Sending(beat=1), strays=strays, aged=True)


def ignores(level: int) -> Remote:
    """The HTTP server never obeys an order to release. The keeper takes over T after the eviction, or after a late heartbeat."""
    lives = {"b1": Life("b", NAME, Doing(fence=1 + level, claim=1), WATCHES)}
    return Remote("remote ignores", LONGER, lives, until=3 + level, may=Sending(beat=1 + level), aged=True, unwanted=True)


def keeps(level: int) -> Remote:
    """The HTTP server keeps its partition and ends; its next incarnation registers; the keeper claims what is free. Another incarnation's
    last beat is on its way from the beginning."""
    lives = {"b1": Life("b", NAME, Doing(fence=level, claim=1), WATCHES)}
    strays = Request("beat", "a2", 1, -1), Request("keep", "a0", 3, -2)
    return Remote("remote keeps", PROFILE, lives, until=2 + level, may=Sending(beat=level, keep=1), strays=strays)


PLAYS: dict[str, Callable[[int], Remote]] = {
    "remote take over": take_over,
    "remote hand-over": hand_over,
    "remote contest": contest,
    "remote successor": successor,
    "remote ignores": ignores,
    "remote keeps": keeps,
}
