"""Which account is which: a stamp in each of several accounts, written at first use, so that a list that is reordered, shortened or wrong
is refused before anything is read or written in the wrong place.

    TocsinSweeps, storage/place   in every account: its place, the home account's id
                                  in the home account also: all places ever stamped, the mirrored pair's id, pairs that were given up
                                  in the second account of a pair also: the pair's id, and whether it has a copy of everything
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Literal

from ...core.errors import UnsafeSettings
from ..names import HOME, MIRRORED, SHARDS, SWEEPS
from ..ports import Applied, Insert, Merge, Props, Row, Tables

log = logging.getLogger(__name__)

STAMP_PK, STAMP_ROW = "storage", "place"
LONGER = "the list may only grow at its end (docs/storage.md)"
type Detached = Literal["", "yes", "stale"]


async def stamped(tables: Tables, props: Props) -> Row:
    """The account's stamp, which is `props` if there was none. Raises `StorageError`."""
    while True:
        row = await tables.get(SWEEPS, STAMP_PK, STAMP_ROW)
        if row is not None:
            return row
        await tables.write(SWEEPS, STAMP_PK, (Insert(STAMP_ROW, props),))


async def home_stamp(home: Tables) -> Row:
    """The home account's stamp. Raises `UnsafeSettings` when the account has another place, and `StorageError`."""
    row = await stamped(home, {"place": HOME, "home": secrets.token_hex(8), "places": "", "pair": "", "given_up": "", "overtaken": False})
    if row.props["place"] != HOME:
        raise UnsafeSettings(f"TocsinStorage is {_name(str(row.props['place']))} of several: {LONGER}")
    return row


async def check_list(home: Tables, places: Mapping[str, Tables]) -> None:
    """Refuse a list of further accounts that is shorter than it was. places: of those in the list. Raises as `home_stamp`."""
    row = await home_stamp(home)
    if gone := [place for place in str(row.props["places"]) if place not in places]:
        raise UnsafeSettings(f"TOCSIN_ACCOUNTS has no entry {int(gone[0], 16)} any more, and shards of it would never be served: {LONGER}")


async def prove(home: Tables, place: str, tables: Tables) -> None:
    """Make sure that a further account is the one that has had this place before, or stamp it, if it is new and the place is.

    Raises `UnsafeSettings`, and `StorageError` when it cannot be asked.
    """
    row = await home_stamp(home)
    mine: Props = {"place": place, "home": row.props["home"]}
    if place in str(row.props["places"]):
        found = await tables.get(SWEEPS, STAMP_PK, STAMP_ROW)
    else:
        found = await stamped(tables, mine)
    if found is None or found.props != mine:
        known = "a new one" if found is None else _name(str(found.props["place"]))
        if found is not None and found.props["home"] != mine["home"]:
            known = "another app's"
        raise UnsafeSettings(f"TOCSIN_ACCOUNTS: entry {int(place, 16)} is not the account that was there before, but {known}; {LONGER}")
    while place not in str(row.props["places"]):
        await home.write(SWEEPS, STAMP_PK, (Merge(STAMP_ROW, {"places": f"{row.props['places']}{place}"}, row.etag),))
        row = await home_stamp(home)


async def prove_second(home: Tables, second: Tables) -> None:
    """Make sure that the second account of a mirrored pair is the one that has the copies; or begin a pair with it.

    Raises `UnsafeSettings`, and `StorageError` when one cannot be asked.
    """
    row = await home_stamp(home)
    pair = str(row.props["pair"])
    found = await second.get(SWEEPS, STAMP_PK, STAMP_ROW)
    if found is None and not pair:
        fresh: Props = {"place": MIRRORED, "home": row.props["home"], "pair": secrets.token_hex(8), "whole": await nothing_mirrored(home)}
        found = await stamped(second, fresh)
    if found is None:
        raise UnsafeSettings(f"TocsinMirror is not the account that mirrored events were copied to: {GONE}")
    if found.props["place"] != MIRRORED or found.props["home"] != row.props["home"]:
        raise UnsafeSettings("TocsinMirror is in use elsewhere, or as one of TOCSIN_ACCOUNTS; take an account of its own")
    if str(found.props["pair"]) in str(row.props["given_up"]).split():
        raise UnsafeSettings("TocsinMirror is an account that was given up, and its copies are old; empty it, or take another")
    if not pair:
        # As it should be after a crash between the two stamps; refused, somebody else did it.
        await home.write(SWEEPS, STAMP_PK, (Merge(STAMP_ROW, {"pair": found.props["pair"]}, row.etag),))
    elif found.props["pair"] != pair:
        raise UnsafeSettings(f"TocsinMirror is not the account that mirrored events were copied to: {GONE}")


GONE = "bring that one back, or give it up (docs/durability.md, `TOCSIN_MIRROR_DETACHED`)"


async def check_alone(home: Tables, detached: Detached) -> None:
    """There is no second account: refuse if there was one, unless it is given up. Raises as `home_stamp`."""
    while pair := str((row := await home_stamp(home)).props["pair"]):
        if not detached:
            raise UnsafeSettings(f"TocsinMirror is gone from the settings, and nobody would serve the mirrored events: {GONE}")
        if row.props["overtaken"] and detached != "stale":
            raise UnsafeSettings(
                "the second account has taken over, and what it served since then is not in this one: events would fire again, cancelled "
                "ones too. If it is gone for good, say so with TOCSIN_MIRROR_DETACHED=stale"
            )
        given_up: Props = {"pair": "", "overtaken": False, "given_up": f"{row.props['given_up']} {pair}".strip()}
        if isinstance(await home.write(SWEEPS, STAMP_PK, (Merge(STAMP_ROW, given_up, row.etag),)), Applied):
            log.warning("The second account is given up: mirrored events are in one account only", extra={"action": "mirror_detached"})


async def nothing_mirrored(home: Tables) -> bool:
    """Whether the home account has no unfinished mirrored shard."""
    for digit in range(16):
        page = await home.query(SHARDS, f"{MIRRORED}{digit:x}", limit=1)
        if page.rows or page.next is not None:
            return False
    return True


def _name(place: str) -> str:
    return "the second account of a pair" if place == MIRRORED else f"entry {int(place, 16)}" if place != HOME else "TocsinStorage"
