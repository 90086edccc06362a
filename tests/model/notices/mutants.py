"""Broken notices: each mutant leaves out one sentence of `shared/scheduler/outcomes/notices.py` or `owed.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from shared.engine.effects import Write, get, write
from shared.scheduler.outcomes import notices
from shared.scheduler.outcomes.notices import PK_NOTICES, FixedNotice, content_of, notice_key, parse_notice
from shared.scheduler.properties.owed import NOTICE, owed_after
from shared.storage.names import SWEEPS
from shared.storage.ports import ANY, Applied, Insert, Merge, Upsert
from tests.model.checking.checker import Report, explore
from tests.model.checking.mutants import Mutant, Patch, relay
from tests.model.notices import plays

from .plays import PLAYS, NoticeWorld


def recorded_without_etag() -> list[Patch]:
    plain = notices.record

    def record(*given: Any) -> Any:
        def loose(effect: Any) -> Any:
            if not isinstance(effect, Write):
                return effect
            ops = [Upsert(op.rk, op.props) if isinstance(op, Insert) else op._replace(etag=ANY) for op in effect.ops]
            return Write(effect.table, effect.pk, tuple(ops))

        return relay(plain(*given), loose)

    return [(plays, "record", record)]


def content_fixed_anew() -> list[Patch]:
    """A process that finds a notice while it is stored fixes its content once more, with later happenings."""

    def fix(tenant: str, kind: Any, now: int) -> Any:
        key = notice_key(tenant, kind)
        while True:
            found = yield from get(SWEEPS, PK_NOTICES, key)
            row = parse_notice(found.props) if found is not None else notices.NoticeRow()
            if found is None or not row.open:
                return None
            if not row.count:
                return FixedNotice(row.seq, row.sent_at, row.sending.encode())
            if not row.sending and now < row.sent_at + notices.PERIOD:
                return row.sent_at + notices.PERIOD
            content = orjson.dumps(content_of(kind, row))
            fixed = replace(row, count=0, subjects={}, sending=content.decode(), seq=row.seq + 1, sent_at=now)
            if isinstance((yield from write(SWEEPS, PK_NOTICES, Merge(key, fixed.props(), found.etag))), Applied):
                return FixedNotice(fixed.seq, now, content)

    return [(plays, "fix", fix)]


def any_notice_closed() -> list[Patch]:
    def close(tenant: str, kind: Any, seq: int) -> Any:
        key = notice_key(tenant, kind)
        while True:
            found = yield from get(SWEEPS, PK_NOTICES, key)
            row = parse_notice(found.props)
            change = replace(row, sending="", open=row.count > 0).props()
            if isinstance((yield from write(SWEEPS, PK_NOTICES, Merge(key, change, found.etag))), Applied):
                return

    return [(plays, "close", close)]


def closed_for_good() -> list[Patch]:
    plain = notices.close

    def close(*given: Any) -> Any:
        def shut(effect: Any) -> Any:
            if not isinstance(effect, Write):
                return effect
            return Write(effect.table, effect.pk, tuple(op._replace(props={**op.props, "open": False}) for op in effect.ops))

        return relay(plain(*given), shut)

    return [(plays, "close", close)]


def told_of_a_notice() -> list[Patch]:
    def owed(props: Any, state: str, notices: bool = False) -> Any:
        return owed_after({name: value for name, value in props.items() if name != NOTICE}, state, notices)

    return [(plays, "owed_after", owed)]


MUTANTS = [
    Mutant("an end noted after its mark is removed", "crash", lambda: [(plays, "NOTED_FIRST", False)]),
    Mutant("an end noted without the ETag", "two", recorded_without_etag),
    Mutant("a notice closed before it is stored", "crash", lambda: [(plays, "STORED_FIRST", False)]),
    Mutant("a content fixed anew", "period", content_fixed_anew),
    Mutant("any notice closed", "period", any_notice_closed),
    Mutant("a row closed in spite of what happened since", "period", closed_for_good, strands=True),
    Mutant("a notice under an id of its process", "crash", lambda: [(plays, "source_of", lambda fixed, name: f"{fixed.seq} {name}")]),
    Mutant("no pause between notices", "period", lambda: [(notices, "PERIOD", 0)]),
    Mutant("the end of a notice told", "refused", told_of_a_notice),
]


def hunt(mutant: Mutant, level: int = 0) -> Report:
    """Hunt the mutant: first for a broken safety property, then for a state from which no end can be reached."""
    with mutant.applied():
        for recover in (True,) if mutant.strands else (False, True):
            world = NoticeWorld(PLAYS[mutant.play](level))
            world.recover = recover
            report = explore(world)
            if report.violation is not None:
                break
    return report
