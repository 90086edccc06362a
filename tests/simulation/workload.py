"""Clients: what they ask for, when, and what they do when the answer does not come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from shared.core.clock import Millis, to_text
from shared.core.durations import format_duration
from shared.core.errors import Problem, StorageError

from .checks.oracle import FINAL, FOREVER, STATES, Claim, Register, Step, Story
from .world.api import JSON, LINES, Reply, call
from .world.instance import Instance

if TYPE_CHECKING:
    from .history import World

PATIENCE = 20.0
UNKNOWN = frozenset({"error", "lost", "gave up"})
"""Answers that leave open whether anything was done."""


class Answer(NamedTuple):
    """The result of a client's request: ok, problem, error (503), lost (the instance died), or gave up (it stopped waiting)."""

    kind: str
    value: Any = None

    @property
    def code(self) -> str:
        return str(self.value.code) if self.kind == "problem" else self.kind

    @property
    def reply(self) -> Reply:
        assert isinstance(self.value, Reply)
        return self.value


class Wish(NamedTuple):
    """A value that a request asks a register for. `relative`: it is counted from the handler's clock. `room`: it may be so much more."""

    register: Register
    claim: Claim
    relative: Millis | None = None
    room: Millis = 0


class Clients:
    """All clients of one history."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def request(
        self,
        name: str,
        act: Callable[[Instance], Awaitable[Any]],
        wishes: list[Wish],
        concerned: Sequence[Story] = (),
        *,
        patient: bool = False,
    ) -> Answer:
        """One request to some instance, and its answer. Wishes are dropped when it was certainly refused."""
        world = self._world
        while (instance := world.host.any()) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        world.note(instance, f"request {name}", None)
        for story in concerned:
            story.told_at = world.loop.now
        for wish in wishes:
            claim = wish.claim
            if wish.relative is not None:
                # A clock that is ahead may be corrected, to at most two seconds behind storage's time.
                corrected = 2 * world.profile.skew + 2_000 if world.profile.skew else 0
                claim.low = instance.clock.now() + wish.relative - corrected
            elif wish.register in [story.dues for story in concerned]:
                # A move into the past is a move to the time the event came in.
                claim.high = max(claim.high, instance.clock.now() + 2 * world.profile.skew + wish.room)
        answered: asyncio.Future[Answer] = world.loop.create_future()

        async def run() -> Any:
            await instance.ready()
            return await act(instance)

        task = instance.spawn(run())
        task.add_done_callback(partial(self._ended, instance, name, wishes, answered))
        if world.troubled and not patient and world.random.random() < world.profile.impatient:
            world.loop.call_later(PATIENCE, self._gave_up, answered)
        return await answered

    @staticmethod
    def _gave_up(answered: asyncio.Future[Answer]) -> None:
        if not answered.done():
            answered.set_result(Answer("gave up"))

    def _ended(self, instance: Instance, name: str, wishes: list[Wish], answered: asyncio.Future[Answer], task: asyncio.Task[Any]) -> None:
        world = self._world
        answer = Answer("lost")
        if not task.cancelled() and instance.alive:
            error = task.exception()
            match error:
                case None:
                    answer = Answer("ok", task.result())
                case Problem(status=status) if status < 500:
                    answer = Answer("problem", error)
                case StorageError() | Problem():
                    answer = Answer("error", error)
                case _:
                    world.host.expected(error)
        world.note(instance, f"answers {name}", answer.code)
        now = world.oracle.tick()
        for register, claim, relative, room in wishes:
            if claim.ended is None:
                claim.ended = now
            if relative is not None and claim.high == FOREVER:
                # A due time is never before the event came in, which may have been by a clock that is ahead.
                claim.high = instance.clock.now() + relative + 2 * world.profile.skew + 1 + room
            if answer.kind == "problem":
                register.drop(claim)
        if not answered.done():
            answered.set_result(answer)

    def wish(self, register: Register, low: int, high: int, relative: Millis | None = None, room: Millis = 0) -> Wish:
        return Wish(register, register.open(low, high, self._world.oracle.tick()), relative, room)

    def due_wish(self, story: Story, due: Millis | None, delay: Millis | None) -> Wish:
        """A wish for a due time, absolute or counted from the handler's clock."""
        if due is not None:
            return self.wish(story.dues, due, due + story.flex, room=story.flex)
        return self.wish(story.dues, 0, FOREVER, delay or 0, story.flex)

    def document(self, story: Story, version: int) -> dict[str, Any]:
        """The event as it is posted."""
        return {**story_fields(story), "payload": {"e": story.number, "v": version}}

    def creation_wishes(self, story: Story, version: int) -> list[Wish]:
        if story.acked:
            # It exists; nothing of this request can be stored any more.
            return []
        wishes = [self.due_wish(story, story.due, story.delay), self.wish(story.bodies, version, version)]
        dues, bodies = story.creation(version)
        dues.append(wishes[0].claim)
        bodies.append(wishes[1].claim)
        return wishes

    async def create(self, story: Story, version: int = 0) -> Answer:
        """Post one event."""
        raw = orjson.dumps(self.document(story, version))
        answer = await self.request(
            f"create {story.number}.{version}",
            lambda instance: call(instance, "events_create", story.tenant, body=raw),
            self.creation_wishes(story, version),
            [story],
        )
        if answer.kind == "ok":
            body, new = answer.reply.body, answer.reply.status in (201, 202)
            self._world.oracle.created(story, version, body["id"], body["state"], new)
        elif answer.code == "id-conflict":
            self._world.oracle.conflicted(story, version)
        return answer

    async def batch(self, posted: list[tuple[Story, int]]) -> None:
        """Post several events at once."""
        lines = self._world.random.random() < 0.5
        documents = [self.document(story, version) for story, version in posted]
        raw = b"\n".join(orjson.dumps(each) for each in documents) if lines else orjson.dumps(documents)
        tenant = posted[0][0].tenant
        wishes = [self.creation_wishes(story, version) for story, version in posted]
        answer = await self.request(
            f"batch {[story.number for story, _ in posted]}",
            lambda instance: call(instance, "events_batch", tenant, body=raw, media=LINES if lines else JSON),
            [wish for each in wishes for wish in each],
            [story for story, _ in posted],
        )
        if answer.kind != "ok":
            return
        for (story, version), mine, line in zip(posted, wishes, answer.reply.body["results"], strict=True):
            if line["status"] in (200, 201, 202):
                self._world.oracle.created(story, version, line["id"], "scheduled", line["status"] in (201, 202))
                continue
            if line["status"] == 500:
                self._world.fail(f"{story}: an incident in a batch: {line}")
            if line["status"] < 500:
                for wish in mine:
                    wish.register.drop(wish.claim)
            if line["problem"]["type"].endswith("/id-conflict"):
                self._world.oracle.conflicted(story, version)

    async def cancel(self, story: Story, event_id: str) -> Answer:
        story.cancel_asked = True
        answer = await self.request(f"cancel {story.number}", lambda instance: call(instance, "events_delete", story.tenant, event_id), [])
        if answer.kind == "ok":
            story.cancelled = True
            if story.completed:
                self._world.fail(f"{story}: its completion was acknowledged, and then its cancel")
            self._world.counts["cancelled"] += 1
        return self._noted(story, answer)

    async def move(self, story: Story, event_id: str, due: Millis | None, delay: Millis | None, *, body: bool, strict: bool) -> Answer:
        """Reschedule, with a new payload too if `body`, and only if unchanged since it was looked at if `strict`."""
        headers = await self._tag(story, event_id) if strict else {}
        wishes = [self.due_wish(story, due, delay)]
        document: dict[str, Any] = {"due": to_text(due)} if due is not None else {"delay": format_duration(delay or 0)}
        if body:
            version = self._next_version(story)
            wishes.append(self.wish(story.bodies, version, version))
            document["payload"] = {"e": story.number, "v": version}
        raw = orjson.dumps(document)
        answer = await self.request(
            f"move {story.number} to {due if due is not None else f'in {delay}'}",
            lambda instance: call(instance, "events_patch", story.tenant, event_id, raw, headers=headers),
            wishes,
            [story],
        )
        return self._settled(story, answer, wishes, "moved")

    async def fire(self, story: Story, event_id: str) -> Answer:
        """Deliver now."""
        wishes = [self.due_wish(story, None, None)]
        answer = await self.request(
            f"fire {story.number}", lambda instance: call(instance, "events_fire", story.tenant, event_id), wishes, [story]
        )
        return self._settled(story, answer, wishes, "fired now")

    async def edit(self, story: Story, event_id: str) -> Answer:
        """Change the payload only."""
        version = self._next_version(story)
        wishes = [self.wish(story.bodies, version, version)]
        # Each version is larger than those before, so that most edits move the event.
        raw = orjson.dumps({"payload": {"e": story.number, "v": version, "pad": "." * 50 * version}})
        answer = await self.request(
            f"edit {story.number}", lambda instance: call(instance, "events_patch", story.tenant, event_id, raw), wishes
        )
        return self._settled(story, answer, wishes, "edited")

    def _settled(self, story: Story, answer: Answer, wishes: list[Wish], count: str) -> Answer:
        if answer.kind == "ok":
            for wish in wishes:
                wish.register.settle(wish.claim)
            self._world.counts[count] += 1
            story.told_at = self._world.loop.now
            if answer.reply.body["state"] not in STATES:
                self._world.fail(f"{story}: {count}, and shows the state {answer.reply.body['state']}")
        return self._noted(story, answer)

    @staticmethod
    def _next_version(story: Story) -> int:
        story.versions += 1
        return story.versions - 1

    async def get(self, story: Story, event_id: str) -> Answer:
        """Look the event up; what is shown must make sense."""
        acked, cancelled, seen, sides = story.acked, story.cancelled, story.seen, self._world.sides
        answer = await self.request(f"get {story.number}", lambda instance: call(instance, "events_get", story.tenant, event_id), [])
        fail = self._world.fail
        if answer.code == "not-found" and acked:
            fail(f"{story}: was acknowledged and is not found")
        if answer.kind != "ok":
            return answer
        state = answer.reply.body["state"]
        if state == "queued" and story.fast:
            self._world.counts["seen queued"] += 1
        elif state not in STATES:
            fail(f"{story}: shows the state {state}")
        if cancelled and state != "cancelled":
            fail(f"{story}: its cancel was acknowledged, and it shows as {state}")
        if sides is None or sides != self._world.sides:
            return answer
        if seen is not None and state != seen:
            fail(f"{story}: was {seen} and is {state}")
        if state in FINAL - {"dead"}:
            story.seen = state
        return answer

    async def _tag(self, story: Story, event_id: str) -> dict[str, str]:
        answer = await self.get(story, event_id)
        return {"if-match": str(answer.reply.etag)} if answer.kind == "ok" else {}

    async def redrive(self, story: Story, event_id: str) -> Answer:
        """Bring a dead event back."""
        began = self._world.loop.now
        story.redrives.append(began)
        wishes = [self.due_wish(story, None, None)]
        answer = await self.request(
            f"redrive {story.number}", lambda instance: call(instance, "events_redrive", story.tenant, event_id), wishes, [story]
        )
        if answer.kind == "ok":
            story.redriven.append(min(story.redrives))
            story.told_at = self._world.loop.now
            self._world.counts["redriven"] += 1
        if answer.kind not in UNKNOWN:
            story.redrives.remove(began)
        return self._noted(story, answer)

    async def redrive_all(self, tenant: str) -> Answer:
        """Bring all dead events back."""
        stories = [story for story in self._world.oracle.stories if story.tenant == tenant]
        for story in stories:
            story.redrives.append(self._world.loop.now)
        wishes = [self.due_wish(story, None, None) for story in stories]
        answer = await self.request(
            f"redrive all of {tenant}", lambda instance: call(instance, "dead_letters_redrive", tenant, body=b"{}"), wishes, stories
        )
        for story in stories:
            story.told_at = self._world.loop.now
        if answer.kind == "ok":
            self._world.counts["redriven in bulk"] += answer.reply.body["redriven"]
        return answer

    async def pause(self, tenant: str, paused: bool) -> Answer:
        """Pause or resume the tenant's channel."""
        self._world.oracle.punctual = False
        if not paused:
            self._world.ward.note_pause(tenant, False, self._world.loop.now)

        async def act(instance: Instance) -> Any:
            return await (await instance.app.serving()).directory.channels.pause(tenant, "default", paused)

        answer = await self.request(f"pause {paused}", act, [], patient=True)
        if paused and answer.kind == "ok":
            self._world.ward.note_pause(tenant, True, self._world.loop.now)
        return answer

    def _noted(self, story: Story, answer: Answer) -> Answer:
        if answer.kind == "problem":
            self._world.counts[f"refused: {answer.code}"] += 1
        return answer


def story_fields(story: Story) -> dict[str, Any]:
    """The posted fields besides the payload; the same for every body."""
    fields: dict[str, Any] = dict(story.extra)
    if story.chosen is not None:
        fields["id"] = story.chosen
    if story.due is not None:
        fields["due"] = to_text(story.due)
    else:
        fields["delay"] = format_duration(story.delay or 0)
    return fields


def script(kind: str, takes: float, after: float | None) -> list[Step]:
    """The receiver's answers to one event's attempts; the last one stays."""
    good = Step("ok", takes)
    match kind:
        case "ok":
            return [good]
        case "once":
            return [Step("retry", takes, after), good]
        case "twice":
            return [Step("retry"), Step("retry", takes, after), good]
        case "never":
            return [Step("retry", takes)] * 6 + [good]
        case "final":
            return [Step("final", takes), good]
        case "slow":
            return [Step("ok", takes + 25.0), good]
        case _:
            return [Step("raise"), good]
