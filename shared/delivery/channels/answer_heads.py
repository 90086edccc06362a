"""The head of a receiver's answer, as it is kept with its attempt: without the secrets of the channel. Pure.

A receiver may send back what it was sent, for example in a page for debugging. So the values of the channel's headers and of its URL's
query, and its signing secrets, are masked before anything is stored, also where they are escaped as in a URL, in JSON or in HTML.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, quote_plus

import orjson

from ...core.http1.answer import AnswerReader
from .model import MASK, HttpChannel

KEPT_BODY = 4096
"""Bytes of a body that are kept."""
KEPT_FIELDS = 2048
"""Characters of an answer's header fields that are kept, names and values together."""
MOST_FIELDS = 100
"""Header fields of an answer that are kept."""
_MASKED_FIELDS = 4 * KEPT_FIELDS
"""Bytes of header fields after which no other field is kept: some of these are masked, so that fewer characters are left of them."""
_KEPT_TYPE = 200
READ_BODY = KEPT_BODY + 4096
"""Bytes of a body that are read: a secret that begins in the kept part, and is no longer than a header's value may be, is seen whole."""
_SHORT = 4
"""Characters below which a value is masked only where it stands alone: a header `x-version: 2` must not mask each digit 2."""
_LEAST_PREFIX = 4
_SECRET_FIELDS = frozenset(("set-cookie", "set-cookie2", "authorization", "proxy-authorization", "authentication-info"))
_MASK = MASK.encode()
_BETWEEN, _UNKNOWN = b"\xff", "\ufffd".encode()
"""A byte that is in no UTF-8, and so in no value to mask; and what is shown for such a byte."""
_FIELD = re.compile(rb"^([^:\r\n]++):([^\r\n]*+)\r?\n", re.MULTILINE)
"""A header field. Its value is stripped afterwards: a pattern that leaves out spaces at the end is quadratic in a run of spaces."""
_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_WORD = rb"(?<![0-9A-Za-z_])%b(?![0-9A-Za-z_])"


class AnswerHead(NamedTuple):
    """The head of an answer. Texts hold no control characters except tabs and line ends."""

    content_type: str | None = None
    body: str | None = None
    """The beginning of the body, at most `KEPT_BODY` bytes before it was masked; None for an encoded (compressed) one."""
    cut: bool = False
    """True if the body goes on."""
    headers: dict[str, str] | None = None
    """The header fields, names in lower case; None unless the channel asks for them."""


class Masks(NamedTuple):
    """The values to mask in answers to one channel."""

    long: tuple[bytes, ...] = ()
    """The longest is first: it may contain another."""
    short: re.Pattern[bytes] | None = None
    """Values of few characters, where they stand alone."""


def masks_of(spec: HttpChannel, secrets: Sequence[str] = ()) -> Masks:
    """Return the masks of a channel. secrets: its signing secrets."""
    values = {form.encode() for value in {*_values(spec), *_secret_values(secrets)} if value for form in _forms(value)}
    long = sorted((value for value in values if len(value) >= _SHORT), key=lambda value: (-len(value), value))
    short = sorted((value for value in values if len(value) < _SHORT), key=lambda value: (-len(value), value))
    return Masks(tuple(long), re.compile(_WORD % (b"(?:%b)" % b"|".join(map(re.escape, short)))) if short else None)


def with_token(masks: Masks, token: str) -> Masks:
    """Return the masks with the token of one attempt, of whose characters none needs an escape. It contains no other value."""
    return masks._replace(long=(token.encode(), *masks.long))


def with_jwt(masks: Masks, token: str) -> Masks:
    """Return the masks with a signed token, and with its signature: without that, the rest of it proves nothing to anybody."""
    return masks._replace(long=(token.encode(), token.rpartition(".")[2].encode(), *masks.long))


def _values(spec: HttpChannel) -> Iterator[str]:
    for value in spec.headers.values():
        yield value
        scheme, _, credentials = value.partition(" ")
        if credentials:
            # `Bearer ...`: receivers show the token without its scheme.
            yield credentials.strip()
            if scheme.lower() == "basic":
                yield from _login(credentials.strip())
    # Nodes read rows of shards (`tocsin verify-trace`) without the libraries of the app.
    from yarl import URL

    try:
        url = URL(spec.url, encoded=True)
    except ValueError:
        return
    yield from url.query.values()
    yield from (part.partition("=")[2] for part in url.raw_query_string.split("&"))
    if url.user is not None:
        yield from (url.user, url.password or "", base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode())


def _login(credentials: str) -> Iterator[str]:
    try:
        user, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return
    yield from (user, password)


def _secret_values(secrets: Sequence[str]) -> Iterator[str]:
    for secret in secrets:
        yield secret
        yield secret.removeprefix("whsec_")


def _forms(value: str) -> set[str]:
    """Return the value as it may stand in an answer: as it is, and escaped in a URL, in JSON, in HTML."""
    return {
        *(value, quote(value, safe=""), quote(value), quote_plus(value)),
        *(orjson.dumps(value).decode()[1:-1], html.escape(value), html.escape(value, quote=False)),
    }


def head_of(answer: AnswerReader, masks: Masks, *, fields: bool = False) -> AnswerHead | None:
    """Return the head of an answer of which `READ_BODY` bytes were kept, or None if nothing of it was. fields: with its header fields."""
    if not answer.fields and not answer.kept:
        return None
    given: list[tuple[bytes, bytes]] = _FIELD.findall(answer.fields)
    types = (value.strip(b" \t") for name, value in given if name.lower() == b"content-type")
    content_type = next((_text(mask(value, masks))[:_KEPT_TYPE] for value in types), None)
    shown = _shown_fields(given, masks) if fields else None
    if any(name.lower() == b"content-encoding" and value.strip(b" \t").lower() not in (b"", b"identity") for name, value in given):
        # What is compressed cannot be masked.
        return AnswerHead(content_type, None, bool(answer.kept), shown)
    whole = answer.complete and not answer.cut
    body = mask(bytes(answer.kept), masks, whole=whole)
    return AnswerHead(
        content_type, _text(body[:KEPT_BODY], whole=whole and len(body) <= KEPT_BODY), not whole or len(body) > KEPT_BODY, shown
    )


def mask(data: bytes, masks: Masks, *, whole: bool = True) -> bytes:
    """Return the data with the values masked. whole: False if it was cut, so that a value may have been cut at its end."""
    for value in masks.long:
        if value in data:
            data = data.replace(value, _MASK)
    if masks.short is not None:
        data = masks.short.sub(_MASK, data)
    if not whole:
        for value in masks.long:
            at = data.find(value[:_LEAST_PREFIX], max(0, len(data) - len(value)))
            while at >= 0 and not value.startswith(data[at:]):
                at = data.find(value[:_LEAST_PREFIX], at + 1)
            if at >= 0:
                data = data[:at] + _MASK
    return data


def _shown_fields(given: Sequence[tuple[bytes, bytes]], masks: Masks) -> dict[str, str]:
    """Return the header fields, as many as fit, `MOST_FIELDS` at most; the values of one name are joined as RFC 9110 5.3 says."""
    shown: dict[str, str] = {}
    room, names, values, size = KEPT_FIELDS, list[str](), list[bytes](), 0
    for raw, value in given[:MOST_FIELDS]:
        names.append(raw.decode("latin-1").lower())
        values.append(_MASK if names[-1] in _SECRET_FIELDS else value.strip(b" \t").replace(_BETWEEN, _UNKNOWN))
        size += len(value)
        if size > _MASKED_FIELDS:
            break
    # All at once, because there may be a thousand values to mask.
    for name, masked in zip(names, mask(_BETWEEN.join(values), masks).split(_BETWEEN), strict=bool(names)):
        text = _text(masked)
        room -= len(name) + len(text)
        if room < 0:
            break
        shown[name] = f"{shown[name]}, {text}" if name in shown else text
    return shown


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
