"""The final checks, made when all is quiet: read from the storage itself, and through an instance without faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from shared.core.clock import Millis
from shared.core.durations import parse_time
from shared.core.errors import Problem
from shared.scheduler.facets import CAME
from shared.scheduler.keys import GATE, MIRRORED, NEWS, parse_address, place_of
from shared.scheduler.properties.owed import CALLBACK, CALLBACK_OF, OWED, callback_channel
from shared.scheduler.protocol.moving import REDRIVE, is_redriven, parse_redriven, redrive_purpose, target_shard
from shared.scheduler.rules import FINAL as ROW_FINAL
from shared.scheduler.rules import tally
from shared.scheduler.shard.gate import COUNTS, parse_gate
from shared.storage.names import EVENTS, IDS, LEDGER, SHARDS
from shared.storage.ports import Row

from ..world.api import call
from ..world.instance import Instance
from .oracle import FINAL, Story

if TYPE_CHECKING:
    from ..history import World

DAY: Millis = 86_400_000
MANY_SLOTS = 10
"""Concurrent deliveries below which none waits for a slot: most of them take no time."""


async def judge(world: World, instance: Instance) -> None:
    """Every promise, at the end of a history."""
    events = world.rows(EVENTS)
    _shards(world, events)
    _copies(world, events)
    _callbacks(world, events)
    for story in world.oracle.stories:
        await _story(world, instance, story)
    await _lists(world, instance)
    if world.exact:
        _exactly(world)
    if world.profile.retention:
        await _retention(world, instance)


def _shards(world: World, events: list[Row]) -> None:
    """Gates, rows and ledger say the same; nothing is open; nothing is left in the index."""
    for row in world.rows(SHARDS):
        world.fail(f"left in the index: {row.pk} {row.rk} {row.props}")
    gates = {row.pk: parse_gate(row.props) for row in events if row.rk == GATE}
    states: dict[str, list[str]] = {shard: [] for shard in gates}
    for row in events:
        if row.rk != GATE:
            if row.pk not in gates:
                world.fail(f"no gate in {row.pk}, which has {row.rk}")
            states[row.pk].append(str(row.props["state"]))
            if row.props["state"] not in ROW_FINAL:
                world.fail(f"still open: {row.pk} {row.rk} {row.props}")
    ledger: dict[str, Row] = {}
    for row in world.rows(LEDGER):
        if row.rk.startswith(NEWS):
            continue
        shard = str(row.props["shard"])
        if shard in ledger:
            world.fail(f"{shard} is in the ledger twice: {ledger[shard].rk} and {row.rk}")
        ledger[shard] = row
    for shard, gate in gates.items():
        counts = tally(states[shard])
        if not gate.bucket and not states[shard] and world.shut(shard):
            ledger.pop(shard, None)
            continue
        if gate.state != "done":
            world.fail(f"the gate of {shard} is {gate}")
        if gate.counts != counts:
            world.fail(f"the gate of {shard} counts {gate.counts}; its rows are {counts}")
        if counts.open:
            world.fail(f"{shard}: accepted is not the sum of the final states: {counts}")
        entry = ledger.pop(shard, None)
        if entry is None:
            if counts.accepted:
                world.fail(f"{shard} is not in the ledger")
            continue
        booked = {name: int(entry.props[name]) for name in COUNTS}
        if booked != counts._asdict():
            world.fail(f"the ledger says {booked} of {shard}; its rows are {counts}")
        if not str(entry.rk).startswith(f"{gate.bucket or ''}"):
            world.fail(f"{shard} of bucket {gate.bucket} is booked at {entry.rk}")
    if ledger:
        world.fail(f"in the ledger without a gate: {list(ledger)}")


def _copies(world: World, events: list[Row]) -> None:
    """One row of each id speaks for the event; the others point on."""
    speaking: dict[tuple[str, str], Row] = {}
    by_place = {(row.pk, row.rk): row for row in events}
    for row in events:
        if row.rk == GATE:
            continue
        pointer = row.props.get("target")
        if pointer:
            place = parse_address(str(pointer))
            target = by_place.get((place.shard, place.row))
            if target is None or target.props["id"] != row.props["id"]:
                world.fail(f"{row.pk}/{row.rk} points to {pointer}, where there is {target}")
            continue
        key = tenant_of(row), str(row.props["id"])
        if key not in speaking:
            speaking[key] = row
        elif _half_redriven(row, speaking[key], by_place) or _half_redriven(speaking[key], row, by_place):
            # A redrive without an answer: the next one finds the copy, and points to it.
            world.counts["redrives left half-way"] += 1
        else:
            world.fail(f"two events answer for {key}: {speaking[key]} and {row}")


def _callbacks(world: World, events: list[Row]) -> None:
    """Each end of an event that names a callback for it has exactly one, and each callback that was delivered tells of such an end."""
    rows = [row for row in events if row.rk != GATE]
    made = {(tenant_of(row), str(row.props["id"])): str(row.props[CALLBACK_OF]) for row in rows if CALLBACK_OF in row.props}
    ends: dict[tuple[str, str], tuple[str, str]] = {}
    for row in rows:
        if callback_channel(row.props, str(row.props["state"])) is None:
            if row.props.get(OWED):
                world.fail(f"something is owed to {row.pk}/{row.rk}, which named nothing: {row.props}")
            continue
        key = tenant_of(row), str(row.props.get(CALLBACK))
        if row.props.get(OWED) != "" or made.get(key) != row.props["id"] or key in ends:
            world.fail(f"{row.pk}/{row.rk} has ended without a callback of its own: {row.props}")
        ends[key] = str(row.props["id"]), str(row.props["state"])
    # An account may take over before it has heard of an event's end, of which it has the callback. The event ends once more there.
    forgets = world.sides != 0
    if made.keys() - ends.keys() and not forgets:
        world.fail(f"callbacks of no event's end: {made.keys() - ends.keys()}")
    for key, said in world.oracle.callbacks.items():
        if ends.get(key) != said and not (forgets and made.get(key) == said[0]):
            world.fail(f"the callback {key} said {said}; the event's row says {ends.get(key)}")
    world.counts["callbacks"] += len(ends)


def tenant_of(row: Row) -> str:
    """Return the tenant of an event's row."""
    return row.pk.split("-", 2)[2]


def _half_redriven(dead: Row, copy: Row, by_place: Mapping[tuple[str, str], Row]) -> bool:
    # A mirrored copy names where it was before; it may have moved on since.
    while CAME in copy.props and (before := by_place.get(tuple(parse_address(str(copy.props[CAME]))))) not in (None, dead):
        assert before is not None
        copy = before
    if dead.props["state"] != "dead" or REDRIVE not in dead.props:
        return False
    purpose = redrive_purpose(dead.props)
    return any(copy.pk == target_shard(dead.pk, purpose, attempt) for attempt in range(20))


async def _story(world: World, instance: Instance, story: Story) -> None:
    """The event is in a named final state that fits what was acknowledged and what the receiver saw."""
    event_id = story.id or story.chosen
    if event_id is None:
        return
    try:
        shown = (await call(instance, "events_get", story.tenant, event_id)).body
    except Problem as problem:
        if story.acked or story.cancelled or story.starts:
            world.fail(f"{story}: was acknowledged or delivered, and is lost: {problem}")
        return
    state, fail = str(shown["state"]), world.fail
    world.counts[f"end: {state}"] += 1
    if state not in FINAL or shown["id"] != event_id:
        fail(f"{story}: ends as {shown}")
    if state == "cancelled" and not story.cancel_asked:
        fail(f"{story}: is cancelled, and nobody asked for it")
    if state != "cancelled" and story.cancelled:
        fail(f"{story}: its cancel was acknowledged, and it ends as {state}")
    if state != "delivered" and story.completed:
        fail(f"{story}: its completion was acknowledged, and it ends as {state}")
    if state == "delivered" and not story.taken:
        fail(f"{story}: is delivered, and the receiver never took it")
    if state == "lapsed" and not story.expires:
        fail(f"{story}: lapsed without a limit")
    if story.seen not in (None, state):
        fail(f"{story}: was {story.seen} and ends as {state}")
    if "payload" not in shown:
        world.counts["cancelled while queued"] += 1
        if not (story.fast and state == "cancelled"):
            fail(f"{story}: ends without its payload: {shown}")
    elif not story.bodies.allows(int(shown["payload"]["v"])):
        fail(f"{story}: ends with {shown['payload']}; it may have {story.bodies}")
    if not story.dues.allows(parse_time(shown["due"])):
        fail(f"{story}: ends with due time {shown['due']} = {parse_time(shown['due'])}; it may have {story.dues}")
    if state in ("delivered", "dead") and not any("could not be read" in str(attempt) for attempt in shown["attempts"]):
        for began in story.redriven:
            if not any(start.at >= began for start in story.starts):
                fail(f"{story}: a redrive was acknowledged, and it never started again")


async def _lists(world: World, instance: Instance) -> None:
    """Every event is in the list, and the figures agree."""
    rows = [row for row in world.rows(EVENTS) if row.rk != GATE]
    for number in range(world.profile.tenants):
        tenant = f"t{number}"
        mine = [row for row in rows if row.pk.endswith(f"-{tenant}")]
        shown: Counter[tuple[str, str]] = Counter()
        query = {"limit": "7"}
        while True:
            page = (await call(instance, "events_list", tenant, query=query)).body
            shown.update((item["id"], item["state"]) for item in page["items"])
            if page["next"] is None:
                break
            query["cursor"] = page["next"]
        unnoted = _unnoted(world, tenant, mine)
        mine = [row for row in mine if not is_redriven(row.props)]
        expected = Counter((str(row.props["id"]), str(row.props["state"])) for row in mine if row.props["state"] != "moved")
        if shown != expected:
            world.fail(f"the list of {tenant} differs from the rows: {shown - expected} too much, {expected - shown} missing")
        figures = (await call(instance, "stats", tenant)).body
        ended = Counter(str(row.props["state"]) for row in mine)
        counted = {name: figures[name] for name in ("delivered", "dead", "lapsed", "cancelled", "open", "overdue")}
        if counted != {name: ended[name] + (unnoted if name == "dead" else 0) for name in counted}:
            world.fail(f"the figures of {tenant} are {counted}; its rows are {ended}, and {unnoted} redriven events are not noted")


def _unnoted(world: World, tenant: str, rows: list[Row]) -> int:
    """Return the number of redriven events in mirrored shards that the ledger need not note. Only their redriver does: if it ends before,
    which no call acknowledges, the statistics count the event as dead once more."""
    shards = {row.pk for row in rows if place_of(row.pk) == MIRRORED}
    redriven = sum(is_redriven(row.props) for row in rows if row.pk in shards)
    ledger = [row for row in world.rows(LEDGER) if row.pk == tenant and row.rk.partition(":")[2] in shards and not row.rk.startswith(NEWS)]
    unnoted = redriven - sum(parse_redriven(row.props).total() for row in ledger)
    acknowledged = sum(len(story.redriven) for story in world.oracle.stories if story.tenant == tenant)
    return max(0, min(unnoted, redriven - acknowledged))


def _exactly(world: World) -> None:
    """Without faults: each attempt once, and on time."""
    oracle, profile = world.oracle, world.profile
    for count in ("same attempt twice", "duplicates"):
        if world.counts[count]:
            world.fail(f"without faults: {count}")
    if oracle.punctual and profile.slots > MANY_SLOTS:
        # A poll of the queue takes up to two seconds; an owner that is informed early has done this before.
        for (late, whose), most in ((oracle.late, 2_100), (oracle.late_early_birds, 20)):
            if late > most + 16_000 * profile.latency:
                world.fail(f"without faults, {whose} was {late} ms late")


async def _retention(world: World, instance: Instance) -> None:
    """Check that everything is deleted after its retention, and that ids are free again."""
    app = await instance.app.serving()
    now = instance.clock.now() + 31 * DAY
    tenants = [f"t{number}" for number in range(world.profile.tenants)]
    finished = {tenant: Counter[str]() for tenant in tenants}
    for row in world.rows(LEDGER):
        if row.pk in finished and not row.rk.startswith(NEWS):
            finished[row.pk].update({name: int(row.props[name]) for name in COUNTS})
    for _ in range(40):
        await app.scheduler.sweeps.retain(tenants, now)
        now += 2 * DAY
        if not world.rows(LEDGER):
            break
    # A failback closes shards that only the first account had. If none of its events was acknowledged, the gate stays, and refuses late
    # writes.
    events = [row for row in world.rows(EVENTS) if row.rk != GATE or row.props.get("accepted", True) or not world.shut(row.pk)]
    left = [(row.pk, row.rk) for row in (*world.rows(LEDGER), *events)]
    if left:
        world.fail(f"retention leaves {left[:6]}")
    totals = await app.metrics.totals.all()
    for tenant, counts in finished.items():
        found = totals[tenant].counts if tenant in totals else Counter[str]()
        if +found != +counts:
            world.fail(f"the totals of {tenant} are {found}; its ledger says {counts}")
    for story in world.oracle.stories:
        if story.acked and (story.chosen or story.id or "") in {row.rk for row in world.rows(IDS) if row.pk.startswith(f"{story.tenant}-")}:
            world.fail(f"{story}: its id is still taken after retention")
