"""The protocol trace: one log line for each transaction that changes a gate, a lease or a turn, so that it can be verified afterwards.

`TracedTables` and `TracedBlockingTables` stand before the tables of a process. They record what was written, the ETags before and after,
and the rows that the process had read for it, which `extras.verification` replays through the rules of the protocols. A partition (a
shard, or a fleet with its turns) is traced whole or not at all, by every process alike. Refused writes change nothing and are left out.

A line is `tocsin-trace ` and a JSON object:

    v    version of the form: 1
    by   name of the recording process; n: number of its line, from 1, without gaps; at: its wall clock in milliseconds
    k    gate, lease or turn; p: partition key
    a    absent: applied. lost: the answer was lost, so the transaction may be applied, now, later or never
    o    operations: [kind, row key, properties, ETag required, ETag given]
    b    rows as this process had read them: {row key: [properties, ETag, age in milliseconds]}

Kinds are i (insert), m (merge), r (replace), u (upsert), d (delete). An ETag `=` stands for the one at the same place before it. Only
properties that decide are recorded, never a payload, an address or a note.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from ..core.clock import Millis
from ..core.errors import OutcomeUnknown
from .names import EVENTS, FLEETS, MIRRORED, TURNS
from .ports import (
    Applied,
    Delete,
    Get,
    Insert,
    Merge,
    Op,
    Page,
    Replace,
    Row,
    RowQuery,
    TableRequest,
    Tables,
    Upsert,
    WrappedTables,
    Write,
    WriteRefused,
)

if TYPE_CHECKING:
    from .blocking import BlockingTables

log = logging.getLogger(__name__)

MARK: Final = "tocsin-trace "
"""The beginning of each line; the rest is JSON."""
VERSION: Final = 1
MOST_ROWS: Final = 20_000
"""Rows whose last reading a process remembers."""
LONGEST: Final = 30_000
"""Characters of a line. Back ends cut longer messages, so rows of events are left out of a longer line (`cut`)."""

GATE: Final = "gate"
_KINDS: Final = {EVENTS: "gate", FLEETS: "lease", TURNS: "turn"}
_LETTERS: Final[Mapping[type, str]] = {Insert: "i", Merge: "m", Replace: "r", Upsert: "u", Delete: "d"}
_EVENT: Final = ("state", "epoch")
_LEFT_OUT: Final = frozenset(
    {"note", "author", "held_row", "load", "loads", "domain", "capacity", "location", "size", "expect", "holds", "avoid", "endpoint"}
)
"""Properties of the other rows that decide nothing about who owns what, that are long, or that are addresses."""
_DEFINITION: Final = "rest"
"""The property with the parts of a fleet's definition. Turns depend on the part `checkpoints`; others name addresses and commands."""
_UNTRACED: Final = ("i:", "x:")
"""Prefixes of a fleet's row keys with the requests of operators, which give no server a partition."""
_SETTING: Final = re.compile(r"off|all|sampled:(0(\.\d{1,9})?|1(\.0*)?|\.\d{1,9})")


def parse_share(text: str) -> float:
    """Return the share of partitions that TOCSIN_TRACE asks for: `off` is 0, `all` 1, `sampled:0.01` one in a hundred.

    Raises ValueError for another text.
    """
    if not _SETTING.fullmatch(text):
        raise ValueError(
            f"TOCSIN_TRACE must be off, all or sampled:SHARE with a share from 0 to 1, such as sampled:0.01, not {text[:40]!r}"
        )
    return {"off": 0.0, "all": 1.0}[text] if text in ("off", "all") else float(text.partition(":")[2])


def is_sampled(partition: str, share: float) -> bool:
    """Return True if a partition belongs to the sample. It is the same in every process, and a larger share contains a smaller one."""
    return zlib.crc32(partition.encode()) < share * 2**32


def traced_props(kind: str, rk: str, props: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a row that a trace keeps."""
    if kind == "gate" and rk != GATE:
        found = {name: props[name] for name in _EVENT if name in props}
        return {**found, "work": True} if props.get("work") else found
    found = {name: value for name, value in props.items() if name not in _LEFT_OUT}
    if _DEFINITION in found:
        found[_DEFINITION] = _without_others(str(found[_DEFINITION]))
    return found


def _without_others(definition: str) -> str:
    """Return the part `checkpoints` of a fleet's definition alone."""
    try:
        parts = orjson.loads(definition)
        return orjson.dumps({name: parts[name] for name in ("checkpoints",) if name in parts}).decode()
    except (ValueError, TypeError):
        return "{}"


def open_trace(setting: str, now: Callable[[], Millis], watch: Callable[[str], object] | None = None) -> TransitionTrace | None:
    """Return a trace with a new process name, or None if TOCSIN_TRACE is off. Raises ValueError for a wrong setting.

    watch: is called with each line after it was logged.
    """
    share = parse_share(setting)
    if not share:
        return None

    def put(line: str) -> None:
        _log_line(line)
        if watch is not None:
            watch(line)

    return TransitionTrace(f"{os.getpid()}-{secrets.token_hex(4)}", share, now, put)


def traced_blocking(tables: BlockingTables, setting: str, now: Callable[[], Millis]) -> BlockingTables:
    """Return the tables with a trace before them, or as they are if TOCSIN_TRACE is off. Raises ValueError for a wrong setting."""
    trace = open_trace(setting, now)
    return TracedBlockingTables(tables, trace) if trace is not None else tables


class SeenRow(NamedTuple):
    """A row as its reader last read it. age: milliseconds since it was written, by the service's own times."""

    props: dict[str, Any]
    etag: str
    age: int


def _log_line(line: str) -> None:
    log.info("%s", line, extra={"action": "protocol_step"})


class TransitionTrace:
    """Records the transactions of one process. Threads may share it.

    by: name of this process, which no other one uses. share: of the partitions, 0 to 1. now: wall clock in milliseconds. put: takes a line.
    """

    def __init__(self, by: str, share: float, now: Callable[[], Millis], put: Callable[[str], object] | None = None) -> None:
        self.by, self.share, self._now, self._put = by, share, now, put or _log_line
        self._number = 0
        self._rows: OrderedDict[tuple[str, str, str], SeenRow] = OrderedDict()
        self._lock = threading.Lock()
        self._known: tuple[str, bool] = ("", False)

    def kind(self, table: str, pk: str) -> str | None:
        """Return the kind of a partition that is traced; None for another one. Locks are not traced, nor mirrored shards: two accounts
        keep such a shard, and each has ETags of its own."""
        kind = _KINDS.get(table)
        if kind is None or pk.startswith(":") or (kind == "gate" and pk[3:4] == MIRRORED):
            return None
        known, sampled = self._known
        if known != pk:
            # Calls about one partition come one after the other; this saves most hashes of its name.
            sampled = is_sampled(pk, self.share)
            self._known = pk, sampled
        return kind if sampled else None

    def record(self, request: TableRequest, answer: Any) -> None:
        """Record a request that was answered; None for the lost answer of a write."""
        kind = self.kind(request.table, request.pk)
        if kind is None:
            return
        match request:
            case Write():
                self.record_write(kind, request.pk, request.ops, answer)
            case Get() if answer is not None:
                self.record_read(kind, request.pk, (answer,))
            case RowQuery() if request.select is None and kind != "gate":
                self.record_read(kind, request.pk, answer.rows)

    def record_read(self, kind: str, pk: str, rows: Sequence[Row]) -> None:
        """Remember rows that were read; of a shard, the gate alone."""
        with self._lock:
            for row in rows:
                if kind != "gate" or row.rk == GATE:
                    key = kind, pk, row.rk
                    self._rows[key] = SeenRow(traced_props(kind, row.rk, row.props), row.etag, row.read_at - row.timestamp)
                    self._rows.move_to_end(key)
            while len(self._rows) > MOST_ROWS:
                self._rows.popitem(last=False)

    def record_write(self, kind: str, pk: str, ops: Sequence[Op], answer: Applied | WriteRefused | None) -> None:
        """Log one transaction. answer: None if it was lost. Never raises: a trace must not disturb the process."""
        if isinstance(answer, WriteRefused):
            return
        try:
            ops = [op for op in ops if kind != "lease" or not op.rk.startswith(_UNTRACED)] if answer is None else ops
            if line := self._line(kind, pk, ops, answer.etags if answer is not None else None):
                self._put(MARK + line)
        except Exception as error:
            log.debug("a transaction could not be traced: %r", error, extra={"action": "protocol_step_untraced"})

    def _line(self, kind: str, pk: str, ops: Sequence[Op], etags: Sequence[str] | None) -> str:
        found: list[list[Any]] = []
        before = after = ""
        for at, op in enumerate(ops):
            if kind == "lease" and op.rk.startswith(_UNTRACED):
                continue
            required = short_etag(op.etag) if isinstance(op, Merge | Replace | Delete) else ""
            given = short_etag(etags[at]) if etags is not None else ""
            props = {} if isinstance(op, Delete) else traced_props(kind, op.rk, op.props)
            found.append([_LETTERS[type(op)], op.rk, props, "=" if required and required == before else required])
            found[-1].append("=" if given and given == after else given)
            before, after = required, given
        if not found:
            return ""
        with self._lock:
            self._number += 1
            seen = self._seen_rows(kind, pk, ops)
            document: dict[str, Any] = {"v": VERSION, "by": self.by, "n": self._number, "at": self._now(), "k": kind, "p": pk}
        if etags is None:
            document["a"] = "lost"
        document["o"] = found
        if seen:
            document["b"] = seen
        text = orjson.dumps(document).decode()
        if len(text) > LONGEST:
            document["o"] = [op for op in found if kind != "gate" or op[1] == GATE]
            text = orjson.dumps(document | {"cut": len(found) - len(document["o"])}).decode()
        return text

    def _seen_rows(self, kind: str, pk: str, ops: Sequence[Op]) -> dict[str, Any]:
        """Return the rows on which the decision is based: those that the transaction is conditional on, and the rows that these name."""
        seen: dict[str, Any] = {}

        def add(rk: str, etag: str | None = None) -> SeenRow | None:
            row = self._rows.get((kind, pk, rk))
            if row is None or (etag is not None and row.etag != etag):
                return None
            seen[rk] = [row.props, short_etag(row.etag), row.age]
            return row

        for op in ops:
            if isinstance(op, Merge | Replace | Delete) and (kind != "gate" or op.rk == GATE):
                row = add(op.rk, op.etag)
                if row is not None and kind == "lease" and op.rk.startswith("p:") and row.props.get("owner"):
                    add(f"s:{row.props['owner']}")
                if row is not None and kind == "turn" and op.rk == "turn" and row.props.get("holder"):
                    add(f"replica:{row.props['holder']}")
        if kind == "lease" and any(isinstance(op, Merge) and op.props.get("state") == "dead" for op in ops):
            add("fleet")
        if kind == "turn" and any(op.rk == "turn" for op in ops) and (fleet := self._rows.get(("lease", pk, "fleet"))) is not None:
            seen["fleet"] = [fleet.props, short_etag(fleet.etag), fleet.age]
        return seen


_DIGITS: Final = str.maketrans("", "", "-:.TZ%'\"")


def short_etag(etag: str) -> str:
    """Return a shorter text that differs whenever the ETags of one row differ. The service's ETags contain a time, exact to 100 ns."""
    if etag.startswith("W/\"datetime'"):
        return etag[12:].replace("%3A", "").translate(_DIGITS)
    return etag


class TracedTables(WrappedTables):
    """`ports.Tables` whose transactions are traced."""

    def __init__(self, tables: Tables, trace: TransitionTrace) -> None:
        super().__init__(tables)
        self.trace = trace

    def __getattr__(self, name: str) -> Any:
        # Counters and the like that only some adapters have.
        return getattr(self.inner, name)

    async def perform(self, request: TableRequest) -> Any:
        """See `ports.Tables`."""
        try:
            answer = await self.inner.perform(request)
        except OutcomeUnknown:
            self.trace.record(request, None)
            raise
        self.trace.record(request, answer)
        return answer


class TracedBlockingTables:
    """`BlockingTables` whose transactions are traced."""

    def __init__(self, tables: BlockingTables, trace: TransitionTrace) -> None:
        self.inner, self.trace = tables, trace

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def get(self, table: str, pk: str, rk: str, *, timeout: float) -> Row | None:
        """See `BlockingTables.get`."""
        row = self.inner.get(table, pk, rk, timeout=timeout)
        self.trace.record(Get(table, pk, rk), row)
        return row

    def query(self, query: RowQuery, *, timeout: float) -> Page:
        """See `BlockingTables.query`."""
        page = self.inner.query(query, timeout=timeout)
        self.trace.record(query, page)
        return page

    def write(self, table: str, pk: str, ops: Sequence[Op], *, timeout: float) -> Applied | WriteRefused:
        """See `BlockingTables.write`."""
        request = Write(table, pk, ops)
        try:
            answer = self.inner.write(table, pk, ops, timeout=timeout)
        except OutcomeUnknown:
            self.trace.record(request, None)
            raise
        self.trace.record(request, answer)
        return answer

    def ensure(self, table: str, *, timeout: float) -> None:
        """See `BlockingTables.ensure`."""
        self.inner.ensure(table, timeout=timeout)

    def close(self) -> None:
        """See `BlockingTables.close`."""
        self.inner.close()
