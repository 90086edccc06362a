"""A stamp in each of several accounts, written at first use. A list of accounts that is reordered, shortened or wrong is refused before
anything is read or written in the wrong account.

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
from ..ports import Applied, Insert, Merge, Props, Row, RowQuery, Tables

log = logging.getLogger(__name__)

STAMP_PK, STAMP_ROW = "storage", "place"
LONGER = "the list may only grow at its end (docs/explain/storage.md)"
PROVE_FOR = 5.0
"""Seconds for which a start waits for an account's stamp."""
type Detached = Literal["", "yes", "stale"]


async def stamped(tables: Tables, props: Props) -> Row:
    """Return the account's stamp. Write `props` if there is none. Raises `StorageError`."""
    while True:
        row = await tables.get(SWEEPS, STAMP_PK, STAMP_ROW)
        if row is not None:
            return row
        await tables.write(SWEEPS, STAMP_PK, (Insert(STAMP_ROW, props),))


async def home_stamp(home: Tables) -> Row:
    """Return the home account's stamp. Raises `StorageError`, and `UnsafeSettings` when the account has another place."""
    row = await stamped(home, {"place": HOME, "home": secrets.token_hex(8), "places": "", "pair": "", "given_up": "", "overtaken": False})
    if row.props["place"] != HOME:
        raise UnsafeSettings(f"TocsinStorage is {_name(str(row.props['place']))} of several: {LONGER}")
    return row


async def check_list(home: Tables, places: Mapping[str, Tables]) -> None:
    """Raise `UnsafeSettings` when the list of further accounts has become shorter. places: those in the list. Raises as `home_stamp`."""
    row = await home_stamp(home)
    if gone := [place for place in str(row.props["places"]) if place not in places]:
        raise UnsafeSettings(f"TOCSIN_ACCOUNTS has lost entry {int(gone[0], 16)}, and its shards would never be served: {LONGER}")


async def prove(home: Tables, place: str, tables: Tables) -> None:
    """Verify that a further account is the one that had this place before. Stamp it when both the account and the place are new.

    Raises `UnsafeSettings`, and `StorageError` when an account does not answer.
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
    """Verify that the second account of a mirrored pair is the one that has the copies, or begin a pair with it.

    Raises `UnsafeSettings`, and `StorageError` when an account does not answer.
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
        raise UnsafeSettings("TocsinMirror is in use elsewhere, or as one of TOCSIN_ACCOUNTS; use a separate account")
    if str(found.props["pair"]) in str(row.props["given_up"]).split():
        raise UnsafeSettings("TocsinMirror names an account that was given up and holds outdated copies; empty it, or name another account")
    if not pair:
        # Completes the pair after a crash between the two stamps. A refusal means that another instance did it.
        await home.write(SWEEPS, STAMP_PK, (Merge(STAMP_ROW, {"pair": found.props["pair"]}, row.etag),))
    elif found.props["pair"] != pair:
        raise UnsafeSettings(f"TocsinMirror is not the account that mirrored events were copied to: {GONE}")


GONE = "bring that one back, or give it up (docs/explain/durability.md, `TOCSIN_MIRROR_DETACHED`)"


async def check_alone(home: Tables, detached: Detached) -> None:
    """Raise `UnsafeSettings` when there was a second account that was not given up. Raises as `home_stamp`."""
    while pair := str((row := await home_stamp(home)).props["pair"]):
        if not detached:
            raise UnsafeSettings(f"TocsinMirror is gone from the settings, and the mirrored events would not be served: {GONE}")
        if row.props["overtaken"] and detached != "stale":
            raise UnsafeSettings(
                "the second account has taken over, and what it served since then is not in this one: events would fire again, cancelled "
                "ones too. If it is gone for good, say so with TOCSIN_MIRROR_DETACHED=stale"
            )
        given_up: Props = {"pair": "", "overtaken": False, "given_up": f"{row.props['given_up']} {pair}".strip()}
        if isinstance(await home.write(SWEEPS, STAMP_PK, (Merge(STAMP_ROW, given_up, row.etag),)), Applied):
            log.warning("The second account is given up: mirrored events are in one account only", extra={"action": "mirror_detached"})


async def nothing_mirrored(home: Tables) -> bool:
    """Return True when the home account has no unfinished mirrored shard."""
    for digit in range(16):
        page = await home.query(RowQuery(SHARDS, f"{MIRRORED}{digit:x}", limit=1))
        if page.rows or page.next is not None:
            return False
    return True


def _name(place: str) -> str:
    return "the second account of a pair" if place == MIRRORED else f"entry {int(place, 16)}" if place != HOME else "TocsinStorage"
