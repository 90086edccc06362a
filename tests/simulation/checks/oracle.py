"""The promises made to clients, and the checks that they are kept.

A *story* is one event as its clients know it: what they asked for, what was acknowledged, and every delivery that was started. Payloads
carry the story's number and the version of the body, so that a delivery is recognised whatever its id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from shared.core.clock import Millis
from shared.delivery.channels.ports import OutgoingDelivery

from .invariants import only_owners_start

if TYPE_CHECKING:
    from ..history import World
    from ..world.instance import Instance

FOREVER: Millis = 1 << 60
STATES = frozenset({"scheduled", "firing", "working", "retrying", "delivered", "dead", "cancelled", "lapsed"})
FINAL = frozenset({"delivered", "dead", "cancelled", "lapsed"})


class Step(NamedTuple):
    """Return the receiver's response to one attempt."""

    verdict: str
    """ok, later, retry, final, gone (410), or raise."""
    takes: float = 0.0
    retry_after: float | None = None


@dataclass(slots=True, eq=False)
class Claim:
    """A requested value: `low` to `high`, since a handler's clock may have made it. Sequence numbers are the oracle's."""

    low: int
    high: int
    began: int
    ended: int | None = None
    """Time by which its handler has certainly ended; None: it may still act."""


@dataclass(slots=True, eq=False)
class Register:
    """The values a property may have now, given what was asked for and what was acknowledged."""

    claims: list[Claim] = field(default_factory=list)

    def open(self, low: int, high: int, began: int) -> Claim:
        claim = Claim(low, high, began)
        self.claims.append(claim)
        return claim

    def drop(self, claim: Claim) -> None:
        """It was refused: certainly not in."""
        if claim in self.claims:
            self.claims.remove(claim)

    def settle(self, claim: Claim) -> None:
        """It was acknowledged: what had ended before it began is superseded."""
        if claim not in self.claims:
            self.claims.append(claim)
        self.claims = [each for each in self.claims if each is claim or each.ended is None or each.ended > claim.began]

    def allows(self, value: int) -> bool:
        return any(claim.low <= value <= claim.high for claim in self.claims)

    def __str__(self) -> str:
        return " or ".join(str(claim.low) if claim.low == claim.high else f"{claim.low}..{claim.high}" for claim in self.claims)


class Start(NamedTuple):
    """A delivery that reached the receiver."""

    at: float
    instance: str
    id: str
    attempt: int
    due: Millis
    version: int


@dataclass(slots=True, eq=False)
class Story:
    """One event, as its clients know it."""

    number: int
    tenant: str
    chosen: str | None
    """The id the client chose."""
    script: list[Step]
    due: Millis | None
    """The due time asked for; None when a delay was."""
    delay: Millis | None
    expires: bool = False
    flex: Millis = 0
    """The flexible window: due times are anywhere in it."""
    fast: bool = False
    """Acknowledged from the ingest queue."""
    extra: dict[str, Any] = field(default_factory=dict)
    """The posted fields besides id, time and payload."""
    dues: Register = field(default_factory=Register)
    bodies: Register = field(default_factory=Register)
    versions: int = 2
    """Bodies so far: 0 and 1 are for creations, others for changes."""
    id: str | None = None
    """As acknowledged, or as chosen."""
    acked: bool = False
    version: int | None = None
    """The body whose creation was acknowledged."""
    conflicts: set[int] = field(default_factory=set)
    """Bodies whose creation was refused: the id has other content."""
    news: int = 0
    """Times its creation was acknowledged as new."""
    cancel_asked: bool = False
    cancelled: bool = False
    completed: bool = False
    """Its receiver's completion was acknowledged."""
    redriven: list[float] = field(default_factory=list)
    """Times at which acknowledged redrives were first requested."""
    redrives: list[float] = field(default_factory=list)
    """Start times of redrives that are under way, or whose outcome is unknown: another one may find their work done."""
    seen: str | None = None
    """A final state, other than dead, that a client was shown."""
    ids: set[str] = field(default_factory=set)
    """Ids under which it was delivered."""
    starts: list[Start] = field(default_factory=list)
    taken: int = 0
    """Attempts the receiver answered with success."""
    told_at: float = 0.0
    """Time at which a change of its due time was last requested or acknowledged."""

    def creation(self, version: int) -> tuple[list[Claim], list[Claim]]:
        """The claims of the creation with this body."""
        return self._made.setdefault(version, ([], []))

    _made: dict[int, tuple[list[Claim], list[Claim]]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"event {self.number} ({self.tenant}, id {self.id or self.chosen})"


class Oracle:
    """Holds the stories, and judges what can be judged at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.stories: list[Story] = []
        self.callbacks: dict[tuple[str, str], tuple[str, str]] = {}
        """The event and its state, as told by each callback that was delivered, by tenant and id."""
        self._sequence = 0
        self.late = (0, "")
        self.late_early_birds = (0, "")
        """The greatest lateness of a first attempt, in milliseconds, and whose: at all, and of events noticed ten seconds ahead."""
        self.punctual = True
        """Nothing kept deliveries from being on time: no channel was paused."""

    def tick(self) -> int:
        """A number that grows with everything that clients can tell apart."""
        self._sequence += 1
        return self._sequence

    def created(self, story: Story, version: int, event_id: str, state: str, new: bool) -> None:
        """A creation was acknowledged."""
        fail = self._world.fail
        if story.version is not None and story.version != version:
            fail(f"{story}: creations with bodies {story.version} and {version} were both acknowledged")
        if version in story.conflicts:
            fail(f"{story}: body {version} was refused for other content, and is acknowledged")
        if state not in STATES and not (story.fast and state == "queued"):
            fail(f"{story}: creation answers with the state {state}")
        if event_id != (story.id or story.chosen or event_id):
            fail(f"{story}: answered as {event_id}")
        story.news += new
        if story.news > 1:
            fail(f"{story}: two creations were acknowledged as new")
        story.id, story.version = event_id, version
        if not story.acked:
            story.acked, story.told_at = True, self._world.loop.now
            self._world.counts["created"] += 1
        else:
            self._world.counts["replayed"] += 1
        # The other bodies' creations are out, and this one is in: nothing of it can come any more.
        now = self.tick()
        for other, (dues, bodies) in story._made.items():
            for register, claims in ((story.dues, dues), (story.bodies, bodies)):
                for claim in claims:
                    if other != version:
                        register.drop(claim)
                    elif claim.ended is None:
                        claim.ended = now

    def conflicted(self, story: Story, version: int) -> None:
        """A creation was refused because the id has other content."""
        if story.version == version:
            self._world.fail(f"{story}: body {version} was acknowledged, and is refused for other content")
        story.conflicts.add(version)
        self._world.counts["id conflicts"] += 1

    def started(self, instance: Instance, delivery: OutgoingDelivery) -> Step:
        """A delivery starts; answers what the receiver does with it."""
        world, fail = self._world, self._world.fail
        body = orjson.loads(delivery.body)
        story, version = self.stories[int(body["e"])], int(body["v"])
        start = Start(world.loop.now, instance.name, delivery.id, delivery.attempt, delivery.due, version)
        world.note(instance, "delivers", (str(story), f"attempt {delivery.attempt}, due {delivery.due}, body {version}"), None)
        world.counts["deliveries"] += 1
        if not instance.alive:
            fail(f"{story}: delivered by a dead instance")
        only_owners_start(world, instance, delivery.id, story.tenant)
        world.ward.started(story, instance)
        if story.cancelled:
            fail(f"{story}: its delivery starts after its cancel was acknowledged")
        if story.completed:
            fail(f"{story}: its delivery starts after its completion was acknowledged")
        # A clock that is ahead is corrected once storage's time proves it wrong; until then the instance follows it.
        true = world.start + int(world.loop.now * 1000 + 1e-6)
        if true + max(0, instance.clock.skew) < delivery.due or delivery.fired < delivery.due:
            fail(f"{story}: delivered early, at {true} by true time, {instance.clock.now()} by the instance's clock, due {delivery.due}")
        if not story.dues.allows(delivery.due):
            fail(f"{story}: delivered for {delivery.due}, which is not its due time: {story.dues}")
        if not story.bodies.allows(version):
            fail(f"{story}: delivered with body {version}; it may have {story.bodies}")
        if delivery.attempt == 1 and world.ward.channel(story) == "default":
            self._lateness(story, round(world.loop.now * 1000), delivery.due - world.start)
        story.ids.add(delivery.id)
        if len(story.ids) > 1 or (story.id or story.chosen or delivery.id) != delivery.id:
            fail(f"{story}: delivered as {sorted(story.ids)}")
        if any(earlier.attempt == delivery.attempt and earlier.due == delivery.due for earlier in story.starts):
            world.counts["same attempt twice"] += 1
        step: Step = story.script[min(len(story.starts), len(story.script) - 1)]
        story.starts.append(start)
        return step

    def told(self, instance: Instance, tenant: str, delivery: OutgoingDelivery, body: dict[str, Any]) -> None:
        """A callback is delivered: of an event that has ended so, as one that asked for it."""
        world = self._world
        world.note(instance, "calls back", (body["event"], body["state"]), None)
        world.counts["callbacks delivered"] += 1
        only_owners_start(world, instance, delivery.id, tenant)
        if self.callbacks.setdefault((tenant, delivery.id), (body["event"], body["state"])) != (body["event"], body["state"]):
            world.fail(f"the callback {delivery.id} of {body['event']} says {body['state']} now")
        stories = [story for story in self.stories if (story.tenant, story.id or story.chosen) == (tenant, body["event"])]
        # The callback of a death before a redrive may come after the cancel that followed the redrive.
        if any(story.cancelled and not (body["state"] == "dead" and (story.redriven or story.redrives)) for story in stories):
            world.fail(f"{body['event']} of {tenant}: its cancel was acknowledged, and a callback says that it is {body['state']}")

    def _lateness(self, story: Story, now: Millis, due: Millis) -> None:
        noticed = round(story.told_at * 1000)
        if story.fast:
            # One poll of the ingest queue more.
            noticed += 2_100
        late = now - max(due, noticed), str(story)
        self.late = max(self.late, late)
        if due - noticed >= 10_000:
            self.late_early_birds = max(self.late_early_birds, late)

    def accepted(self, story: Story) -> None:
        """The receiver answered an attempt with success."""
        story.taken += 1
        # A receiver that is late may take an attempt that was given up before.
        if story.taken > 1 and all(step.verdict != "later" for step in story.script):
            self._world.counts["duplicates"] += 1
