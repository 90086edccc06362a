"""A log record as a line, as a journald datagram and as a message of RFC 5424."""

from __future__ import annotations

import logging
import re
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.core.node_logs.datagrams import journald_datagram, syslog_datagram
from shared.core.node_logs.lines import MAX_FIELDS, MAX_TEXT, MAX_VALUE, LogLine, line_of

SECRET = "the-agents-own-key"
ABOUT = {"node": "n1", "fleet": "db"}


def record(text: str = "prepared", level: int = logging.INFO, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("tocsin.agent", level, "", 0, "%s", (text,), None)
    made.__dict__ |= extra
    return made


def parsed(datagram: bytes) -> dict[str, bytes]:
    """The fields of a journald datagram, read as journald reads them."""
    found: dict[str, bytes] = {}
    while datagram:
        head, _, rest = datagram.partition(b"\n")
        name, separator, value = head.partition(b"=")
        if separator:
            found[name.decode()], datagram = value, rest
        else:
            [size] = struct.unpack("<Q", rest[:8])
            found[name.decode()], datagram = rest[8 : 8 + size], rest[9 + size :]
    return found


def test_line_has_action_event_node_and_the_fields_of_the_record() -> None:
    line = line_of(record(action="agent_prepared", event_id="e1", fields={"ms": 7, "phase": "PREPARED"}), ABOUT)
    assert line.text == "prepared" and line.level == logging.INFO
    assert line.fields == {"action": "agent_prepared", "event_id": "e1", "node": "n1", "fleet": "db", "ms": 7, "phase": "PREPARED"}
    assert list(line.fields)[:2] == ["action", "event_id"]
    assert line_of(record(node="n2"), ABOUT).fields["node"] == "n2" and "event_id" not in line_of(record(), ABOUT).fields


def test_line_is_bounded_and_carries_no_secret() -> None:
    extra: dict[str, Any] = {f"f{number}": "x" for number in range(100)}
    made = record(f"{SECRET} " + "é" * 100_000, fields={"output": f"key={SECRET}" + "y" * 100_000}, **extra)
    line = line_of(made, ABOUT, (SECRET,))
    assert len(line.text) == MAX_TEXT and len(line.fields) == MAX_FIELDS
    assert len(str(line.fields["output"])) == MAX_VALUE and SECRET not in line.text + str(line.fields)


def test_trace_of_an_exception_is_a_field_without_secrets() -> None:
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        made = record("broken")
        made.exc_info = (ValueError, error, error.__traceback__)
    fields = line_of(made, {}, (SECRET,)).fields
    assert fields["exception.type"] == "ValueError" and SECRET not in str(fields) and "in test_trace" in str(fields["exception.stacktrace"])


@given(st.text(max_size=60), st.dictionaries(st.text(max_size=40), st.text(max_size=40), max_size=5))
def test_journald_gets_back_what_was_logged_and_no_field_more(text: str, fields: dict[str, str]) -> None:
    line = line_of(record(text, logging.WARNING, action="agent_event_late", event_id="e1", fields=fields), ABOUT)
    found = parsed(journald_datagram(line, "tocsin-agent"))
    assert found["MESSAGE"] == line.text.encode() and found["PRIORITY"] == b"4" and found["SYSLOG_IDENTIFIER"] == b"tocsin-agent"
    assert found["TOCSIN_ACTION"] == b"agent_event_late" and found["TOCSIN_EVENT_ID"] == b"e1" and found["TOCSIN_NODE"] == b"n1"
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]{0,63}", name) for name in found)
    assert set(found) - {"MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "LOGGER"} <= {
        "TOCSIN_" + re.sub("[^A-Z0-9_]", "_", name.upper())[:57] for name in line.fields
    }


def test_syslog_message_is_of_rfc_5424() -> None:
    fields = {"event_id": "e1", "why": 'a "quoted" ] \\ text\nin two lines', "a b=": 1}
    line = LogLine(1_800_000_000_123_000_000, logging.ERROR, "x", "it\nfailed", {"action": "agent_failed", **fields})
    text = syslog_datagram(line, "tocsin-agent", "vm 1").decode()
    assert re.fullmatch(
        r"<27>1 2027-01-15T08:00:00\.123Z vm_1 tocsin-agent \d+ agent_failed "
        r'\[tocsin@32473 action="agent_failed" event_id="e1" why="a \\"quoted\\" \\\] \\\\ text in two lines" a_b_="1"\] \ufeffit failed',
        text,
    ), text


@given(st.text(), st.dictionaries(st.text(), st.text(), max_size=4))
def test_syslog_message_stays_one_line_of_bounded_size(text: str, fields: dict[str, str]) -> None:
    datagram = syslog_datagram(line_of(record(text, fields=fields), ABOUT), "tocsin-agent", "")
    assert b"\n" not in datagram and datagram.startswith(b"<30>1 ") and len(datagram) < 60_000
