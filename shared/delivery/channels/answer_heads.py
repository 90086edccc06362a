"""The head of a receiver's answer, as it is kept with its attempt: without the secrets of the channel. Pure.

A receiver may send back what it was sent, for example in a page for debugging. So the channel's secrets are masked before anything is
stored (`masks`, imported with the first answer), and a body in which they could not be found is not kept.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import orjson

from ...core.http1.answer import AnswerReader
from .model import MASK

if TYPE_CHECKING:
    from .masks import Masks

KEPT_BODY = 4096
"""Bytes of a body that are kept."""
KEPT_FIELDS = 2048
"""Characters of an answer's header fields that are kept, names and values together."""
MOST_FIELDS = 100
"""Header fields of an answer that are kept."""
_KEPT_TYPE = 200
_READ_FIELDS = 2 * KEPT_FIELDS
"""Bytes of the values of header fields that are searched for secrets. The rest is left out."""
READ_BODY = KEPT_BODY + 4096
"""Bytes of a body that are read: a secret that begins in the kept part, and is no longer than a header's value may be, is seen whole."""
_SECRET_FIELDS = frozenset(("set-cookie", "set-cookie2", "authorization", "proxy-authorization", "authentication-info"))
_FIELD = re.compile(rb"^([^:\r\n]++):([^\r\n]*+)\r?\n", re.MULTILINE)
"""A header field. Its value is stripped afterwards: a pattern that leaves out spaces at the end is quadratic in a run of spaces."""
_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CHARSET = re.compile(rb"charset[ \t]*=[ \t\"']*([^ \t\"';,]+)")
_LIKE_ASCII = re.compile(
    rb"utf-?8(?:mb4)?|(?:us-)?ascii|iso[_-]?8859-?\d+(?:-[ei])?|l(?:atin-?)?\d|(?:windows-|cp-?)125\d|windows-(?:874|949|31j)"
    rb"|koi8-[ru]|gbk|gb2312|gb18030|big5(?:-hkscs)?|shift[_-]jis|sjis|euc-(?:jp|kr|tw)|tis-620|macintosh"
)
"""Encodings that write ASCII as it is. Masks find nothing in the others."""
_WIDE = re.compile(rb"\x00\x00\x00[^\x00]|(?:[^\x00]\x00){4}|(?:\x00[^\x00]){4}")
"""Characters of ASCII in UTF-16 or UTF-32."""


class AnswerHead(NamedTuple):
    """The head of an answer. Texts hold no control characters except tabs and line ends."""

    content_type: str | None = None
    body: str | None = None
    """The beginning of the body, at most `KEPT_BODY` bytes before it was masked; None for one that is compressed or in UTF-16 or UTF-32."""
    cut: bool = False
    """True if the body goes on."""
    headers: dict[str, str] | None = None
    """The header fields, names in lower case; None unless the channel asks for them."""


def head_of(answer: AnswerReader, masks: Masks, *, fields: bool = False) -> AnswerHead | None:
    """Return the head of an answer of which `READ_BODY` bytes were kept, or None if nothing of it was. fields: with its header fields."""
    if not answer.fields and not answer.kept:
        return None
    from .masks import mask

    given = [(name.decode("latin-1").lower(), value.strip(b" \t")) for name, value in _FIELD.findall(answer.fields)]
    content_type = next((_first(value, 2 * _KEPT_TYPE, masks)[:_KEPT_TYPE] for name, value in given if name == "content-type"), None)
    shown = _shown_fields(given, masks) if fields else None
    if any(name == "content-encoding" and value.lower() not in (b"", b"identity") for name, value in given) or _is_wide(given, answer.kept):
        # What is compressed, or is not written like ASCII, cannot be masked.
        return AnswerHead(content_type, None, bool(answer.kept), shown)
    whole = answer.complete and not answer.cut
    body = mask(bytes(answer.kept), masks, whole=whole)
    return AnswerHead(
        content_type, _text(body[:KEPT_BODY], whole=whole and len(body) <= KEPT_BODY), not whole or len(body) > KEPT_BODY, shown
    )


def _is_wide(given: Sequence[tuple[str, bytes]], body: bytes | bytearray) -> bool:
    """Return True for a body in which characters of ASCII are not written as in ASCII."""
    for name, value in given:
        if name == "content-type" and (found := _CHARSET.search(value.lower())) and not _LIKE_ASCII.fullmatch(found[1]):
            return True
    return body.startswith((b"\xff\xfe", b"\xfe\xff")) or _WIDE.search(body) is not None


def _shown_fields(given: Sequence[tuple[str, bytes]], masks: Masks) -> dict[str, str]:
    """Return the header fields, as many as fit, `MOST_FIELDS` at most; the values of one name are joined as RFC 9110 5.3 says."""
    shown: dict[str, str] = {}
    room, unread = KEPT_FIELDS, _READ_FIELDS
    for name, value in given[:MOST_FIELDS]:
        text = MASK if name in _SECRET_FIELDS else _first(value, unread, masks)
        room, unread = room - len(name) - len(text), unread - len(value)
        if room < 0:
            break
        shown[name] = f"{shown[name]}, {text}" if name in shown else text
    return shown


def _first(value: bytes, most: int, masks: Masks) -> str:
    """Return the first bytes of a field's value, masked."""
    from .masks import mask

    return _text(mask(value[: max(0, most)], masks, whole=len(value) <= most))


def _text(data: bytes, *, whole: bool = True) -> str:
    """Return the data as text. whole: False if it was cut, so that its last character may be incomplete."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, whole)
    return _UNSAFE.sub("\ufffd", text)


def to_json(head: AnswerHead) -> str:
    """Return the head as it is stored."""
    return orjson.dumps([head.content_type, head.body, head.cut, head.headers]).decode()


def of_json(text: str) -> AnswerHead:
    """Return a stored head."""
    content_type, body, cut, headers = orjson.loads(text)[:4]
    return AnswerHead(content_type, body, cut, headers)


def shown(head: AnswerHead) -> Mapping[str, object]:
    """Return the head as the API shows it."""
    given = {"content_type": head.content_type, "body": head.body, "truncated": head.cut or None, "headers": head.headers}
    return {name: value for name, value in given.items() if value is not None}
