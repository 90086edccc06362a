r"""Masks the secrets of a channel in texts that its receiver sent back. Pure.

Receivers write what they were sent in the escapes of JSON, HTML and URLs, and in more than one of them: a JSON text inside a JSON text.
So escapes are undone, layer by layer, and each layer is searched. Maps of positions lead from there to the bytes as they were received.
Layers and tries are limited, so that the work grows no faster than the text, whatever it holds.
"""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from html.entities import html5
from typing import NamedTuple

from .model import MASK, HttpChannel

_MASK = MASK.encode()
_SHORT = 4
"""Characters below which a value is masked only where it stands alone: a header `x-version: 2` must not mask each digit 2."""
_LEAST_PREFIX = 4
_LAYERS = 5
"""Layers of escapes that are undone in a text. `%252525252F` has as many."""
_LAYERS_OF_SECRETS = 2
"""The same in a secret, which may hold what looks like an escape, and then appears without it in a layer of the text."""
_MOST_PREFIXES = 64
"""Places at the end of a text that was cut which are compared with the beginning of one secret. All is masked from the next one on."""
_MOST_FOUND = 256
"""Places that are masked one by one in a layer. All is masked from the next one on."""
_WORD = rb"(?<![0-9A-Za-z_])%b(?![0-9A-Za-z_])"
_ESCAPES = (
    rb"\\(?:u[dD][89abAB]H{2}\\u[dD][c-fC-F]H{2}|uH{4}|u\{H{1,6}\}|UH{8}|xH{2}|[0-3][0-7]{2}|[\s\S])"
    rb"|%(?:H{2}|uH{4})"
    rb"|&(?:#[0-9]{1,8};?|#[xX]H{1,8};?|[A-Za-z][0-9A-Za-z]{1,31};)"
)
"""H stands for a hexadecimal digit."""
_BEGUN = (
    rb"(?:\\(?:u[dD][89abAB]H{2}(?:\\(?:uH{0,3})?)?|uH{0,3}|u\{H{0,6}|UH{0,7}|xH?|[0-3][0-7]?)?|%(?:uH{0,3}|H?)|&#?[0-9A-Za-z]{0,32})\Z"
)
"""An escape at the end of a text that was cut."""


def _pattern(text: bytes) -> re.Pattern[bytes]:
    return re.compile(text.replace(b"H", b"[0-9A-Fa-f]"))


_ESCAPE = _pattern(_ESCAPES)
_ESCAPE_OR_BEGUN = _pattern(rb"(?P<begun>%b)|%b" % (_BEGUN, _ESCAPES))
_WORDS = re.compile(r"[a-z]{1,15}(?:[-_.][a-z]{1,15})*")
_CONTROLS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


type FindPlaces = Callable[[bytes], Iterable[tuple[int, int | None]]]
"""Returns the places to mask in one layer, as beginning and end; the end is None if all that follows is masked."""


class Masks(NamedTuple):
    """The values to mask in answers to one channel."""

    long: tuple[bytes, ...] = ()
    short: re.Pattern[bytes] | None = None
    """Values of few characters, where they stand alone."""


def masks_of(spec: HttpChannel, secrets: Sequence[str] = ()) -> Masks:
    """Return the masks of a channel. secrets: its signing secrets."""
    values = {form for value in {*_values(spec), *_secret_values(secrets)} if value for form in _forms(value)}
    long = sorted((value for value in values if len(value) >= _SHORT), key=lambda value: (-len(value), value))
    short = sorted((value for value in values if len(value) < _SHORT), key=lambda value: (-len(value), value))
    return Masks(tuple(long), re.compile(_WORD % (b"(?:%b)" % b"|".join(map(re.escape, short)))) if short else None)


def with_values(masks: Masks, values: Iterable[str]) -> Masks:
    """Return the masks with further values of at least four characters, which hold no escapes: tokens and signatures of one attempt."""
    return masks._replace(long=(*(value.encode() for value in values), *masks.long))


def with_jwt(masks: Masks, token: str) -> Masks:
    """Return the masks with a signed token, and with its signature: without that, the rest of it proves nothing to anybody."""
    return with_values(masks, (token, token.rpartition(".")[2]))


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
    yield from _path_values(url.raw_path.rstrip("/"))
    yield from url.query.values()
    yield from (part.partition("=")[2] for part in url.raw_query_string.split("&"))
    if url.user is not None:
        yield from (url.user, url.password or "", base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode())


def _path_values(path: str) -> Iterator[str]:
    """Yield a path, and its segments that are no plain words: many services keep a secret there, and frameworks show a part of the path."""
    yield path
    yield from (segment for segment in path.split("/") if len(segment) >= _SHORT and not _WORDS.fullmatch(segment))


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


def _forms(value: str) -> Iterator[bytes]:
    """Yield a value as layers of an answer may show it: as it is, with + for its spaces, and without what looks like an escape."""
    for form in (value, value.replace(" ", "+")):
        text = form.encode()
        yield text
        for _ in range(_LAYERS_OF_SECRETS):
            text = _undo(text).text
            if text:
                yield text


def mask(data: bytes, masks: Masks, *, whole: bool = True) -> bytes:
    """Return the data with the values masked. whole: False if it was cut, so that a value may have been cut at its end."""
    return mask_places(data, lambda text: _places(text, masks, whole=whole), whole=whole)


def mask_places(data: bytes, find: FindPlaces, *, whole: bool = True) -> bytes:
    """Return the data with the places masked that are found in any layer of it. whole: see `mask`."""
    found: list[tuple[int, int]] = []
    layers: list[_Layer] = []
    text = data
    while True:
        for begin, end in find(text):
            # A value that was cut, and one place too many, reach to the end of what was received, which later layers may not show.
            to_end = end is None
            first, last = begin, (end or len(text)) - 1
            for layer in reversed(layers):
                first, last = layer.begin_of(first), layer.end_of(last) - 1
            found.append((first, len(data) if to_end else last + 1))
        if len(layers) == _LAYERS or (b"\\" not in text and b"%" not in text and b"&" not in text):
            break
        layer = _undo(text, whole=whole)
        if layer.text == text:
            break
        layers.append(layer)
        text = layer.text
    return _replaced(data, found) if found else data


def _replaced(data: bytes, found: list[tuple[int, int]]) -> bytes:
    """Return the data with one mask for each place; places that overlap are one."""
    parts, done = list[bytes](), 0
    found.sort()
    for begin, end in found:
        if begin >= done:
            parts += (data[done:begin], _MASK)
        done = max(done, end)
    return b"".join((*parts, data[done:]))


def _places(text: bytes, masks: Masks, *, whole: bool) -> Iterator[tuple[int, int | None]]:
    """Yield the places of values in one layer, as beginning and end; the end is None if all that follows is masked."""
    count = 0
    for value in masks.long:
        at = text.find(value)
        while at >= 0:
            count += 1
            if count > _MOST_FOUND:
                yield at, None
                break
            yield at, at + len(value)
            at = text.find(value, at + len(value))
        if not whole and (begin := _cut_value(text, value)) is not None:
            yield begin, None
    if masks.short is not None:
        for number, match in enumerate(masks.short.finditer(text)):
            if number == _MOST_FOUND:
                yield match.start(), None
                break
            yield match.span()


def _cut_value(text: bytes, value: bytes) -> int | None:
    """Return the place at the end of a text at which a value begins that was cut, or None."""
    at = text.find(value[:_LEAST_PREFIX], max(0, len(text) - len(value)))
    for _ in range(_MOST_PREFIXES):
        if at < 0 or value.startswith(text[at:]):
            break
        at = text.find(value[:_LEAST_PREFIX], at + 1)
    return at if at >= 0 else None


class _Layer(NamedTuple):
    """A text without one layer of its escapes, and the way back."""

    text: bytes
    at: list[int]
    """The place of each character in `text` that was an escape."""
    ends: list[int]
    """The end of that character there."""
    begun: list[int]
    """The beginning of each escape before it was undone."""
    ended: list[int]
    """The end of each escape there."""

    def begin_of(self, place: int) -> int:
        """Return the place before escapes were undone; of a byte that was an escape, its beginning."""
        number = bisect_right(self.at, place) - 1
        if number < 0:
            return place
        return self.begun[number] if place < self.ends[number] else self.ended[number] + place - self.ends[number]

    def end_of(self, place: int) -> int:
        """Return the place behind that of a byte before escapes were undone."""
        number = bisect_right(self.at, place) - 1
        if number < 0:
            return place + 1
        return self.ended[number] if place < self.ends[number] else self.ended[number] + place - self.ends[number] + 1


def _undo(text: bytes, *, whole: bool = True) -> _Layer:
    """Undo one layer of escapes. whole: False to leave out one that has begun at the end."""
    parts, at, ends, begun, ended = list[bytes](), list[int](), list[int](), list[int](), list[int]()
    size = done = 0
    for match in (_ESCAPE if whole else _ESCAPE_OR_BEGUN).finditer(text):
        begin, end = match.span()
        plain = b"" if match.lastgroup else _plain(match[0])
        parts += (text[done:begin], plain)
        size += begin - done
        at.append(size)
        size += len(plain)
        ends.append(size)
        begun.append(begin)
        ended.append(end)
        done = end
    return _Layer(b"".join((*parts, text[done:])), at, ends, begun, ended)


@lru_cache(maxsize=1024)
def _plain(escape: bytes) -> bytes:
    """Return what an escape stands for; itself if that is nothing."""
    kind, rest = escape[:1], escape[1:]
    if kind == b"%":
        return _character(rest[1:]) if rest[:1] == b"u" else bytes.fromhex(rest.decode())
    if kind == b"&":
        name = rest.rstrip(b";")
        if name[:1] != b"#":
            return html5.get(f"{name.decode()};", escape.decode()).encode()
        return _character(name[2:]) if name[1:2] in (b"x", b"X") else _character(b"%x" % int(name[1:]))
    if len(rest) == 1:
        return _CONTROLS.get(rest, rest)
    if rest[:1] == b"x":
        return bytes.fromhex(rest[1:].decode())
    if rest[:1] not in (b"u", b"U"):
        return bytes((int(rest, 8),))
    if len(rest) == 11:
        return (bytes.fromhex(rest[1:5].decode()) + bytes.fromhex(rest[7:].decode())).decode("utf-16-be").encode()
    return _character(rest[1:].strip(b"{}"))


def _character(digits: bytes) -> bytes:
    """Return a character in UTF-8; ? for what is none."""
    number = int(digits, 16)
    return chr(number).encode(errors="replace") if number <= 0x10FFFF else b"?"
