"""The workload of one history: which events, and what clients do to them, drawn from the seed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import TYPE_CHECKING

from shared.core.durations import format_duration

from .checks.oracle import Story
from .workload import UNKNOWN, Clients, script

if TYPE_CHECKING:
    from .history import World

SCRIPTS = {"ok": 60, "once": 12, "twice": 5, "never": 6, "final": 8, "slow": 6, "raise": 2}
CALLBACKS = ("on_delivered", "on_dead")
VERBS = {"cancel": 30, "move": 18, "fire": 10, "edit": 10, "get": 8, "replay": 14, "redrive": 10}


class Plan:
    """All that the clients of one history do."""

    def __init__(self, world: World) -> None:
        self._world, self._random, self._clients = world, world.random, Clients(world)
        self._numbers: dict[str, int] = {}
        # A chance of its own: histories without such events are what they were before there were any.
        self._fast = Random(f"{world.seed}/fast")
        self._flex = Random(f"{world.seed}/flex")
        self._share = self._fast.choice((0.0, 0.0, 0.0, 0.5, 1.0))
        self._calls = Random(f"{world.seed}/callbacks")
        self._called = self._calls.choice((0.0, 0.0, 0.5))
        """Share of the events that name callbacks."""
        self._soon = Random(f"{world.seed}/soon")
        self._due_soon = self._soon.choice((0.0, 0.0, 0.8)) if world.settings.express_events else 0.0
        """Share of the events that are due when they are posted, and have no id of the client: those of express delivery."""

    async def run(self) -> None:
        """Wait until every client has done its part."""
        random, profile = self._random, self._world.profile
        stories = [self._story(number) for number in range(profile.events)]
        self._world.oracle.stories.extend(stories)
        jobs: list[Awaitable[None]] = []
        left = list(stories)
        while left:
            size = random.randint(2, 12) if random.random() < 0.25 else 1
            group = [story for story in left[:size] if story.tenant == left[0].tenant]
            left = [story for story in left if story not in group]
            jobs.append(self._live(group, random.uniform(0.0, profile.window)))
        if random.random() < 0.25:
            for _ in range(random.randint(1, 3)):
                jobs.append(self._redrive_all(random.uniform(0.0, profile.window + 60.0)))
        if random.random() < 0.05:
            jobs.append(self._pause(random.uniform(0.0, profile.window)))
        jobs += [self._pause(when) for when in self._world.ward.pauses]
        await asyncio.gather(*jobs)

    def _story(self, number: int) -> Story:
        random, profile = self._random, self._world.profile
        kind = random.choices(list(SCRIPTS), list(SCRIPTS.values()))[0]
        takes = random.choice((0.0, 0.0, 0.02, 0.5, 5.0)) if kind != "slow" else random.uniform(0.0, 15.0)
        after = random.choice((None, None, 3.0, 30.0, 150.0))
        tenant = f"t{random.randrange(profile.tenants)}"
        # The same ids in all tenants.
        self._numbers[tenant] = self._numbers.get(tenant, 0) + 1
        chosen = f"id-{self._numbers[tenant]}" if random.random() < 0.6 else None
        story = Story(number, tenant, chosen, script(kind, takes, after), None, None)
        self._world.ward.assign(story)
        ahead = round(1000 * self._ahead())
        if random.random() < 0.4:
            story.delay = max(0, ahead)
        else:
            story.due = self._world.start + round(1000 * random.uniform(0.0, profile.window)) + ahead
            if random.random() < 0.2:
                # Many at the same instant, at a whole minute.
                story.due -= story.due % 60_000
        if self._soon.random() < self._due_soon:
            story.chosen, story.due, story.delay = None, None, self._soon.choice((0, 0, 0, 500, 2_000))
            chosen = None
        if random.random() < 0.08:
            story.extra["expires"] = random.choice(("PT0S", "PT2S", "PT30S"))
            story.expires = True
        if random.random() < 0.4:
            story.extra["retry"] = {"attempts": random.randint(1, 4), "first": random.choice(("PT0.5S", "PT4S", "PT20S")), "max": "PT20S"}
        if not story.expires and self._flex.random() < 0.15:
            story.flex = self._flex.choice((1, 900, 20_000, 90_000))
            story.extra["flex"] = format_duration(story.flex)
        if chosen is None and self._fast.random() < self._share:
            story.extra["durability"] = "fast"
            story.fast = True
        elif self._world.asked is not None:
            story.extra["durability"] = self._world.asked
        if self._calls.random() < self._called:
            story.extra |= self._calls.choice(({"on_dead": "default"}, {"on_delivered": "default"}, dict.fromkeys(CALLBACKS, "default")))
        self._world.works.assign(story)
        return story

    def _ahead(self) -> float:
        """Seconds from now to the due time."""
        random, horizon = self._random, self._world.profile.horizon
        return random.choice(
            (random.uniform(-5.0, 0.5), random.uniform(0.0, 8.0), random.uniform(0.0, horizon), random.uniform(0.0, horizon))
        )

    async def _live(self, group: list[Story], start: float) -> None:
        """The life of events that are posted together."""
        random, clients = self._random, self._clients
        await asyncio.sleep(start)
        if len(group) == 1:
            await self._one(group[0])
            return
        posted = [(story, 0) for story in group]
        named = [story for story in group if story.chosen is not None]
        if named and random.random() < 0.2:
            posted.append((random.choice(named), random.choice((0, 1))))
        await clients.batch(posted)
        await asyncio.gather(*(self._follow(story) for story in group))

    async def _one(self, story: Story) -> None:
        random, clients = self._random, self._clients
        if story.chosen is None:
            await clients.create(story)
        elif random.random() < 0.25:
            # Several creators at once; perhaps not of the same mind.
            versions = [random.choice((0, 0, 1)) for _ in range(random.randint(2, 3))]
            await asyncio.gather(*(self._create(story, version, random.choice((0.0, 0.01, 1.0))) for version in versions))
        else:
            await self._create(story, 0, 0.0)
        await self._follow(story)

    async def _create(self, story: Story, version: int, wait: float) -> None:
        """Create, and repeat the request while its outcome is unknown."""
        random = self._random
        await asyncio.sleep(wait)
        for _ in range(random.randint(1, 4)):
            answer = await self._clients.create(story, version)
            if answer.kind not in UNKNOWN and answer.code != "too-many-requests":
                return
            await asyncio.sleep(random.choice((0.0, 0.2, 3.0, 15.0)))

    async def _follow(self, story: Story) -> None:
        random, profile = self._random, self._world.profile
        count = 0
        while count < 5 and random.random() < 0.45 * profile.busy:
            count += 1
        await asyncio.gather(*(self._act(story) for _ in range(count)))

    async def _act(self, story: Story) -> None:
        """One thing that a client does to its event, at some time."""
        random, clients, world = self._random, self._clients, self._world
        verbs = {**VERBS, "redrive": 40} if story.script[0].verdict != "ok" else VERBS
        verb = random.choices(list(verbs), list(verbs.values()))[0]
        now = world.start + world.loop.now * 1000
        due = max(0.0, (story.due - now) / 1000 if story.due is not None else (story.delay or 0) / 1000)
        wait = random.choice(
            (random.uniform(0.0, 3.0), due + random.uniform(-5.0, 1.0), random.uniform(0.0, due), due + random.uniform(0.0, 25.0))
        )
        if verb == "redrive":
            wait = due + random.choice((random.uniform(0.0, 15.0), random.uniform(0.0, 60.0)))
        await asyncio.sleep(max(0.0, wait))
        for _ in range(random.choice((1, 2, 4))):
            event_id = story.id or story.chosen
            if event_id is None:
                return
            if (await self._do(clients, verb, story, event_id)) not in UNKNOWN:
                return
            await asyncio.sleep(random.choice((0.0, 1.0, 10.0)))

    async def _do(self, clients: Clients, verb: str, story: Story, event_id: str) -> str:
        random, world = self._random, self._world
        match verb:
            case "cancel":
                answer = await clients.cancel(story, event_id)
            case "move":
                ahead = round(1000 * self._ahead())
                now = world.start + round(world.loop.now * 1000)
                due, delay = (now + ahead, None) if random.random() < 0.6 else (None, max(0, ahead))
                answer = await clients.move(story, event_id, due, delay, body=random.random() < 0.2, strict=random.random() < 0.2)
            case "fire":
                answer = await clients.fire(story, event_id)
            case "edit":
                answer = await clients.edit(story, event_id)
            case "redrive":
                answer = await clients.redrive(story, event_id)
            case "replay" if story.chosen is not None:
                answer = await clients.create(story, random.choice((0, 0, 1)))
            case _:
                answer = await clients.get(story, event_id)
        return answer.kind

    async def _redrive_all(self, when: float) -> None:
        await asyncio.sleep(when)
        await self._clients.redrive_all("t0")

    async def _pause(self, when: float) -> None:
        await asyncio.sleep(when)
        await self._clients.pause("t0", True)
        await asyncio.sleep(self._random.uniform(1.0, 40.0))
        while (await self._clients.pause("t0", False)).kind != "ok":  # noqa: ASYNC110
            await asyncio.sleep(1.0)


def upkeep(random: Random, world: World) -> list[tuple[float, str]]:
    """Kills, freezes and deployments at times of their own, whatever the instances are doing: (when, what)."""
    profile, found = world.profile, []
    span = profile.window + profile.trouble
    if profile.crashes and not (profile.only and "crash" not in profile.only) and profile.style != "single":
        found += [(random.uniform(0.0, span), "kill") for _ in range(random.choice((0, 0, 1, 2)))]
    if profile.style not in ("none", "single") and (not profile.only or "pause" in profile.only):
        found += [(random.uniform(0.0, span), "freeze") for _ in range(random.choice((0, 0, 1, 2)))]
    if random.random() < profile.deploys:
        found += [(random.uniform(0.0, span), "deploy") for _ in range(random.choice((1, 2)))]
    return sorted(found)
