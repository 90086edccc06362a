"""Decisions about keys, secrets and channels: pure, no I/O, no clock."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from yarl import URL

from ..core.clock import Millis
from ..delivery.channels.http import is_ours
from ..delivery.channels.model import EventGridChannel, HttpChannel, KafkaChannel, QueueChannel
from ..delivery.egress_guard import Egress, grid_problem
from ..delivery.kafka.connection import Login, problem_of

KEY_MARK = "tsn_"
PREFIX_LENGTH = 12
"""Characters of a key that listings show: the mark and 40 bits that name it, of which nothing of the secret follows."""
ROTATION: Millis = 24 * 3_600_000
"""How long the secret before is still used after a rotation."""
MASK = "***"
"""What a header's value looks like in an answer; sent back, it keeps the stored value."""
MAX_HEADER_VALUE = 4096
MAX_HEADERS_TOTAL = 16 * 1024
"""Characters of all names and values together, so that a channel fits one property of a row."""

type Spec = HttpChannel | QueueChannel | EventGridChannel | KafkaChannel

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_URL = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
"""What RFC 3986 lets a URL hold. A backslash, for one, means another host to some parsers."""
_USER = re.compile(r"[^/?#]*//[^/?#]*@")


def make_key(entropy: bytes) -> str:
    """A key of 25 bytes of entropy: 5 name it, 20 (160 bits) are the secret."""
    text = base64.b32encode(entropy).decode().lower()
    return f"{KEY_MARK}{text[:8]}{text[8:]}"


def digest_of(key: str) -> str:
    """What is stored of a key. Keys are random, so a plain hash is enough: there is nothing to guess from a dictionary."""
    return hashlib.sha256(key.encode()).hexdigest()


def prefix_of(key: str) -> str:
    """The part of a key that names it in listings."""
    return key[:PREFIX_LENGTH] if key.startswith(KEY_MARK) else key[:10]


def secret_of(master: str, tenant: str, channel: str, generation: int) -> str:
    """The webhook secret of a channel's generation; derived, so that none is stored."""
    raw = hmac.digest(master.encode(), f"{tenant}/{channel}/{generation}".encode(), "sha256")
    return "whsec_" + base64.b64encode(raw).decode()


class Generations(NamedTuple):
    """Which secrets of a channel are in use. `current` 0: none (not an http channel)."""

    current: int = 0
    rotated_at: Millis | None = None
    previous: int | None = None
    previous_until: Millis | None = None


def first_generation(now: Millis) -> Generations:
    """For a channel made now. The number is the time, so that a name used again never gets the secret it had before."""
    return Generations(now)


def rotate(old: Generations, now: Millis) -> Generations:
    """A new secret; the one before it counts for 24 h more. One before that counts no longer."""
    return Generations(max(now, old.current + 1), now, old.current, now + ROTATION)


def in_use(generations: Generations, now: Millis) -> list[int]:
    """Generations to sign with, newest first."""
    if not generations.current:
        return []
    if generations.previous is None or generations.previous_until is None or now >= generations.previous_until:
        return [generations.current]
    return [generations.current, generations.previous]


def masked(spec: Spec) -> Spec:
    """The channel as it may be shown."""
    if isinstance(spec, HttpChannel) and spec.headers:
        return spec.model_copy(update={"headers": dict.fromkeys(spec.headers, MASK)})
    if isinstance(spec, KafkaChannel) and spec.password is not None:
        return spec.model_copy(update={"password": MASK})
    return spec


def unmasked(spec: Spec, stored: Spec | None) -> Spec:
    """`spec` with each header that was sent back masked set to its stored value; those with none stay masked.

    Likewise a password, as long as it goes to the same servers.
    """
    if isinstance(spec, KafkaChannel) and spec.password == MASK:
        same = isinstance(stored, KafkaChannel) and (stored.servers, stored.tls) == (spec.servers, spec.tls)
        return spec.model_copy(update={"password": stored.password}) if same and isinstance(stored, KafkaChannel) else spec
    if not isinstance(spec, HttpChannel) or MASK not in spec.headers.values():
        return spec
    known: Mapping[str, str] = {name.lower(): value for name, value in stored.headers.items()} if isinstance(stored, HttpChannel) else {}
    headers = {name: known.get(name.lower(), MASK) if value == MASK else value for name, value in spec.headers.items()}
    return spec.model_copy(update={"headers": headers})


def faults(spec: Spec, egress: Egress) -> list[tuple[str, str]]:
    """What is wrong with a channel beyond its shape, as (pointer, detail)."""
    if isinstance(spec, HttpChannel):
        return [*_url_faults("/url", spec.url, egress), *_header_faults(spec.headers)]
    if isinstance(spec, EventGridChannel):
        found = list(_url_faults("/endpoint", spec.endpoint, egress))
        if not found and not spec.endpoint.startswith("https://"):
            found = [("/endpoint", "must be an https address")]
        if not found and (problem := grid_problem(spec.endpoint, egress)):
            found = [("/endpoint", problem)]
        return found
    if isinstance(spec, KafkaChannel):
        if spec.password == MASK:
            return [("/password", "the mask stands for a stored value, and there is none for these servers")]
        problem_there = problem_of(Login(spec.servers, spec.tls, spec.username, spec.password), egress)
        return [(f"/{problem_there[0]}", problem_there[1])] if problem_there else []
    return []


def _url_faults(pointer: str, text: str, egress: Egress) -> Iterator[tuple[str, str]]:
    if not _URL.fullmatch(text):
        yield pointer, "may hold only the characters of RFC 3986; percent-encode the rest"
        return
    try:
        url = URL(text)
        # Asking for the port checks it.
        _ = url.port
    except ValueError:
        yield pointer, "not a URL"
        return
    # On the text: the parser drops an empty user.
    if _USER.match(text):
        yield pointer, "may hold no user or password; use a header"
    if "#" in text:
        yield pointer, "may hold no fragment"
    if reason := egress.problem(url):
        yield pointer, reason


def _header_faults(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for name, value in headers.items():
        pointer = "/headers/" + name[:128].replace("~", "~0").replace("/", "~1")
        low = name.lower()
        if not _TOKEN.fullmatch(name):
            yield pointer, "not a header's name"
        elif is_ours(name):
            yield pointer, "this header is set by the service or belongs to the connection"
        elif low in seen:
            yield pointer, "given twice: names differ only in case"
        elif len(value) > MAX_HEADER_VALUE or not _VALUE.fullmatch(value):
            yield pointer, f"the value must be printable ASCII of at most {MAX_HEADER_VALUE} characters"
        elif value == MASK:
            yield pointer, "the mask stands for a stored value, and there is none"
        seen.add(low)
    if sum(len(name) + len(value) for name, value in headers.items()) > MAX_HEADERS_TOTAL:
        yield "/headers", f"more than {MAX_HEADERS_TOTAL} characters in all"
