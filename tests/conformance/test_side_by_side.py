"""One random history runs on both twins and on the service: every outcome and every state must be the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from shared.core.errors import Rejected
from shared.storage.ports import ANY, Applied, Delete, Insert, Merge, Op, Page, Replace, RowQuery, Upsert, Where, WriteRefused

from .conftest import Store

KEYS = ["a", "b'", "ç", "d e", "😀", "f%", "\ue000", "h"]
VALUES: dict[str, list[Any]] = {"s": ["", "x", "é'", "😀"], "i": [0, -1, 7, 2**40], "f": [0.0, 1.0, -2.5], "b": [True, False]}


def transaction(chance: random.Random) -> list[tuple[str, str, dict[str, Any], int | None]]:
    """Verbs, keys, properties, and how many versions ago the ETag was seen (None: any)."""
    keys = chance.sample(KEYS, chance.choice([1, 1, 2, 3, 5]))
    return [
        (
            chance.choice(["insert", "merge", "replace", "upsert", "delete"]),
            key,
            {name: chance.choice(VALUES[name]) for name in chance.sample(list(VALUES), chance.randint(0, 3))},
            chance.choice([None, 0, 0, 1]),
        )
        for key in keys
    ]


def build(drawn: list[tuple[str, str, dict[str, Any], int | None]], seen: dict[str, list[str]]) -> list[Op]:
    """The operations for one store, with that store's ETags."""
    ops: list[Op] = []
    for verb, key, props, ago in drawn:
        known = seen.get(key, [])
        etag = ANY if ago is None or len(known) <= ago else known[-1 - ago]
        match verb:
            case "insert":
                ops.append(Insert(key, props))
            case "merge":
                ops.append(Merge(key, props, etag))
            case "replace":
                ops.append(Replace(key, props, etag))
            case "upsert":
                ops.append(Upsert(key, props))
            case _:
                ops.append(Delete(key, etag))
    return ops


async def do(store: Store, ops: list[Op], seen: dict[str, list[str]]) -> object:
    """The outcome without the ETags, which go to `seen`."""
    try:
        outcome = await store.tables.write(store.table, "p", ops)
    except Rejected as error:
        return str(error).partition(":")[0].partition(" ")[0]
    if isinstance(outcome, WriteRefused):
        return outcome
    assert isinstance(outcome, Applied)
    for op, etag in zip(ops, outcome.etags, strict=True):
        if etag:
            seen.setdefault(op.rk, []).append(etag)
    return [bool(etag) for etag in outcome.etags]


def plain(page: Page) -> list[tuple[str, dict[str, Any]]]:
    return [(row.rk, row.props) for row in page.rows]


@pytest.mark.parametrize("seed", range(8))
async def test_a_random_history_goes_the_same_way(twin: Store, folder: Store, service: Store, seed: int) -> None:
    chance = random.Random(seed)
    stores = (twin, folder, service)
    seen: list[dict[str, list[str]]] = [{}, {}, {}]
    kinds = set()
    for _ in range(100):
        drawn = transaction(chance)
        outcomes = [await do(store, build(drawn, etags), etags) for store, etags in zip(stores, seen, strict=True)]
        assert outcomes[0] == outcomes[1] == outcomes[2], drawn
        kinds.add(outcomes[0].reason if isinstance(outcomes[0], WriteRefused) else "applied")
        first, end = sorted(chance.sample(KEYS, 2), key=lambda key: key.encode("utf-16-be"))
        whole = [await store.tables.query(RowQuery(store.table, "p")) for store in stores]
        part = [await store.tables.query(RowQuery(store.table, "p", first=first, end=end, limit=3, select=["s"])) for store in stores]
        prop = chance.choice(list(VALUES))
        where = Where(
            prop, chance.choice(["eq", "ne"] if prop == "b" else ["eq", "ne", "lt", "le", "gt", "ge"]), chance.choice(VALUES[prop])
        )
        found = [await store.tables.query(RowQuery(store.table, "p", where=[where])) for store in stores]
        for pages in (whole, part, found):
            assert plain(pages[0]) == plain(pages[1]) == plain(pages[2])
            assert len({page.next is None for page in pages}) == 1
    assert kinds == {"applied", "exists", "missing", "changed"}
