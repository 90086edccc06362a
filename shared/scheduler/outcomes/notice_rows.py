"""Stored notices: what is to be told to a tenant, and how it becomes an event. Protocol steps without I/O.

    TocsinSweeps, notices     {tenant}:{kind}

    (1) what happened is added to the row, before it can be seen by others     (2) its content is fixed: `sending`, and a new `seq`
    (3) an event with this content is stored, under an id that follows from `seq` and its time     (4) `sending` is emptied

A process that ends after (1) or (2) leaves an open row, which the sweep finds. After (3) the sweep stores the same event under the same id.
What happens between (2) and (4) is in the row beside `sending`, and is told next time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import orjson

from ...core.clock import Millis, to_text
from ...delivery.notices import NoticeKind
from ...engine.effects import Steps, get, write
from ...engine.row_codec import Format, RowCodec
from ...storage.names import SWEEPS
from ...storage.ports import Applied, Insert, Merge, Props

PARTITION: Final = "notices"
PERIOD: Final[Millis] = 60_000
"""Shortest time between two notices of one kind to one tenant. What happens meanwhile is told in the next one."""
HOURLY: Final = frozenset[NoticeKind]({"limit.reached"})
"""Kinds of which a subject is noted once in `HOUR`: it goes on for as long as somebody keeps calling."""
HOUR: Final[Millis] = 3_600_000
MOST_SUBJECTS: Final = 20
"""Subjects that a notice names; others are only counted."""
MOST_DETAIL: Final = 300
"""Characters of a subject's detail."""


class Happening(NamedTuple):
    """One or more things of a kind that happened to a subject: the last of them at `at`."""

    subject: str
    detail: str
    at: Millis
    times: int = 1


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """The pending and the last notice of one kind to a tenant.

    count: happenings that are in no notice yet; first, last: when they happened; subjects: the latest of each, by subject.
    sending: the content of the notice that is being stored as an event, '' for none; seq, sent_at: its number, and when it was fixed.
    open: there is something to be told. noted: of kinds in `HOURLY`, when each subject of the last hour was noted.
    """

    count: int = 0
    first: Millis = 0
    last: Millis = 0
    subjects: Mapping[str, tuple[int, Millis, str]] = field(default_factory=dict)
    sending: str = ""
    seq: int = 0
    sent_at: Millis = 0
    open: bool = False
    noted: Mapping[str, Millis] = field(default_factory=dict)

    def props(self) -> Props:
        """Return the row's properties; always all of them."""
        return _ROW.encode(self)


def _read_subjects(text: object) -> dict[str, tuple[int, Millis, str]]:
    return {subject: tuple(entry) for subject, entry in orjson.loads(str(text or "{}")).items()}


def _text(found: Mapping[str, Any]) -> str:
    return orjson.dumps(dict(found)).decode()


_ROW: Final = RowCodec(
    NoticeRow,
    formats={"subjects": Format(_text, _read_subjects), "noted": Format(_text, lambda text: orjson.loads(str(text or "{}")))},
)


def parse_notice(props: Props) -> NoticeRow:
    """Return the row of its properties."""
    return _ROW.decode(props)


class FixedNotice(NamedTuple):
    """A notice whose content no longer changes. source: names it for good."""

    seq: int
    at: Millis
    content: bytes

    def source(self, kind: NoticeKind) -> str:
        """Return the name from which the id of its event follows."""
        return f"notice:{kind}:{self.seq}:{self.at}"


def notice_key(tenant: str, kind: NoticeKind) -> str:
    """Return the row key of a tenant's notices of one kind."""
    return f"{tenant}:{kind}"


def added(row: NoticeRow, happenings: Sequence[Happening]) -> NoticeRow:
    """Return the row with these happenings. The latest `MOST_SUBJECTS` subjects are kept."""
    subjects = dict(row.subjects)
    for each in happenings:
        before = subjects.pop(each.subject, (0, 0, ""))
        subjects[each.subject] = (before[0] + each.times, max(before[1], each.at), each.detail[:MOST_DETAIL] or before[2])
    kept = dict(list(subjects.items())[-MOST_SUBJECTS:])
    times = [each.at for each in happenings]
    first = min(times) if not row.count else min(row.first, *times)
    count = row.count + sum(each.times for each in happenings)
    return replace(row, count=count, first=first, last=max(row.last, *times), subjects=kept, open=True)


def once_an_hour(row: NoticeRow, happenings: Sequence[Happening]) -> tuple[NoticeRow, Sequence[Happening]]:
    """Return those of subjects that were not noted within the hour, and the row that says that they are noted now."""
    fresh: list[Happening] = []
    noted = dict(row.noted)
    for each in happenings:
        if each.at >= noted.get(each.subject, each.at - HOUR) + HOUR:
            noted[each.subject] = each.at
            fresh.append(each)
    latest = max(noted.values(), default=0)
    return replace(row, noted={subject: at for subject, at in noted.items() if at > latest - HOUR}), fresh


def content_of(kind: NoticeKind, row: NoticeRow) -> dict[str, Any]:
    """Return the payload of a notice."""
    subjects = [
        {"subject": subject, "count": count, "last": to_text(last), **({"detail": detail} if detail else {})}
        for subject, (count, last, detail) in row.subjects.items()
    ]
    return {"type": kind, "count": row.count, "first": to_text(row.first), "last": to_text(row.last), "subjects": subjects}


def record(tenant: str, kind: NoticeKind, happenings: Sequence[Happening]) -> Steps[None]:
    """Step 1. After a lost answer the happenings may be counted twice; they are never left out."""
    key = notice_key(tenant, kind)
    while True:
        found = yield from get(SWEEPS, PARTITION, key)
        row, fresh = parse_notice(found.props) if found is not None else NoticeRow(), happenings
        if kind in HOURLY:
            row, fresh = once_an_hour(row, happenings)
            if not fresh:
                return
        props = added(row, fresh).props()
        answer = yield from write(SWEEPS, PARTITION, Insert(key, props) if found is None else Merge(key, props, found.etag))
        if isinstance(answer, Applied):
            return


def fix(tenant: str, kind: NoticeKind, now: Millis) -> Steps[FixedNotice | Millis | None]:
    """Step 2, or what an earlier process has fixed. Return the time of the next notice if it is too early for it; None if there is none."""
    key = notice_key(tenant, kind)
    while True:
        found = yield from get(SWEEPS, PARTITION, key)
        row = parse_notice(found.props) if found is not None else NoticeRow()
        if found is None or not row.open:
            return None
        if row.sending:
            return FixedNotice(row.seq, row.sent_at, row.sending.encode())
        if now < row.sent_at + PERIOD:
            return row.sent_at + PERIOD
        content = orjson.dumps(content_of(kind, row))
        fixed = replace(row, count=0, subjects={}, sending=content.decode(), seq=row.seq + 1, sent_at=now)
        answer = yield from write(SWEEPS, PARTITION, Merge(key, fixed.props(), found.etag))
        if isinstance(answer, Applied):
            return FixedNotice(fixed.seq, now, content)


def close(tenant: str, kind: NoticeKind, seq: int) -> Steps[None]:
    """Step 4: the notice `seq` is stored as an event."""
    key = notice_key(tenant, kind)
    while True:
        found = yield from get(SWEEPS, PARTITION, key)
        row = parse_notice(found.props) if found is not None else NoticeRow()
        if found is None or row.seq != seq or not row.sending:
            return
        answer = yield from write(SWEEPS, PARTITION, Merge(key, replace(row, sending="", open=row.count > 0).props(), found.etag))
        if isinstance(answer, Applied):
            return
