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
"""Characters of a key that lists show: the mark and 40 bits that identify it and reveal nothing of the secret."""
ROTATION: Millis = 24 * 3_600_000
"""Milliseconds for which the previous secret stays valid after a rotation."""
MASK = "***"
"""Replaces the value of a header in answers; a request with it keeps the stored value."""
MAX_HEADER_VALUE = 4096
MAX_HEADERS_TOTAL = 16 * 1024
"""Most characters of all names and values together, so that a channel fits one property of a row."""

type Spec = HttpChannel | QueueChannel | EventGridChannel | KafkaChannel

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_URL = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
"""The characters of RFC 3986. Some parsers read a backslash as the start of another host."""
_USER = re.compile(r"[^/?#]*//[^/?#]*@")


def make_key(entropy: bytes) -> str:
    """Return a key from 25 bytes of entropy: 5 identify it, 20 (160 bits) are the secret."""
    text = base64.b32encode(entropy).decode().lower()
    return f"{KEY_MARK}{text[:8]}{text[8:]}"


def digest_of(key: str) -> str:
    """Return the stored hash of a key. Keys are random, so a plain hash is enough: dictionaries do not help."""
    return hashlib.sha256(key.encode()).hexdigest()


def prefix_of(key: str) -> str:
    """Return the part of a key that identifies it in lists."""
    return key[:PREFIX_LENGTH] if key.startswith(KEY_MARK) else key[:10]


def secret_of(master: str, tenant: str, channel: str, generation: int) -> str:
    """Return the webhook secret of a channel's generation; it is derived, so that no secret is stored."""
    raw = hmac.digest(master.encode(), f"{tenant}/{channel}/{generation}".encode(), "sha256")
    return "whsec_" + base64.b64encode(raw).decode()


class Generations(NamedTuple):
    """The valid secrets of a channel. `current` is 0 without a secret (not an http channel)."""

    current: int = 0
    rotated_at: Millis | None = None
    previous: int | None = None
    previous_until: Millis | None = None


def first_generation(now: Millis) -> Generations:
    """Return the generations of a new channel. The number is the time, so that a reused name never gets an old secret."""
    return Generations(now)


def rotate(old: Generations, now: Millis) -> Generations:
    """Return the generations with a new secret; the previous one stays valid for 24 hours, older ones become invalid."""
    return Generations(max(now, old.current + 1), now, old.current, now + ROTATION)


def in_use(generations: Generations, now: Millis) -> list[int]:
    """Return the generations to sign with, newest first."""
    if not generations.current:
        return []
    if generations.previous is None or generations.previous_until is None or now >= generations.previous_until:
        return [generations.current]
    return [generations.current, generations.previous]


def masked(spec: Spec) -> Spec:
    """Return the channel with its secrets masked."""
    if isinstance(spec, HttpChannel) and spec.headers:
        return spec.model_copy(update={"headers": dict.fromkeys(spec.headers, MASK)})
    if isinstance(spec, KafkaChannel) and spec.password is not None:
        return spec.model_copy(update={"password": MASK})
    return spec


def unmasked(spec: Spec, stored: Spec | None) -> Spec:
    """Return `spec` with masked headers set to their stored values; headers without one stay masked.

    The same applies to a password, if it is sent to the same servers.
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
    """Return the faults of a channel that its model does not find, as (pointer, detail)."""
    if isinstance(spec, HttpChannel):
        return [*_url_faults("/url", spec.url, egress), *_header_faults(spec.headers)]
    if isinstance(spec, EventGridChannel):
        found = list(_url_faults("/endpoint", spec.endpoint, egress))
        if not found and not spec.endpoint.startswith("https://"):
            found = [("/endpoint", "must be an https address, such as https://my-topic.westeurope-1.eventgrid.azure.net/api/events")]
        if not found and (problem := grid_problem(spec.endpoint, egress)):
            found = [("/endpoint", problem)]
        return found
    if isinstance(spec, KafkaChannel):
        if spec.password == MASK:
            return [("/password", "is ***, which keeps the stored password, but none is stored for these servers; send the password")]
        problem_there = problem_of(Login(spec.servers, spec.tls, spec.username, spec.password), egress)
        return [(f"/{problem_there[0]}", problem_there[1])] if problem_there else []
    return []


def _url_faults(pointer: str, text: str, egress: Egress) -> Iterator[tuple[str, str]]:
    if not _URL.fullmatch(text):
        yield pointer, "must hold only the characters of RFC 3986; percent-encode the others"
        return
    try:
        url = URL(text)
        # Reading the port validates it.
        _ = url.port
    except ValueError:
        yield pointer, "must be a URL, such as https://hooks.example.com/tocsin"
        return
    # Checked on the text, because the parser drops an empty user.
    if _USER.match(text):
        yield pointer, "must not hold a user or password; send it in a header"
    if "#" in text:
        yield pointer, "must not hold a fragment (#...)"
    if reason := egress.problem(url):
        yield pointer, reason


def _header_faults(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for name, value in headers.items():
        pointer = "/headers/" + name[:128].replace("~", "~0").replace("/", "~1")
        low = name.lower()
        if not _TOKEN.fullmatch(name):
            yield pointer, "is not a valid name of a header"
        elif is_ours(name):
            yield pointer, "is a header that the service or the connection sets; remove it"
        elif low in seen:
            yield pointer, "is given twice, as names that differ only in case; give it once"
        elif len(value) > MAX_HEADER_VALUE or not _VALUE.fullmatch(value):
            yield pointer, f"must have a value of printable ASCII, at most {MAX_HEADER_VALUE:,} characters"
        elif value == MASK:
            yield pointer, "is ***, which keeps the stored value, but none is stored; send the value"
        seen.add(low)
    if sum(len(name) + len(value) for name, value in headers.items()) > MAX_HEADERS_TOTAL:
        yield "/headers", f"must have at most {MAX_HEADERS_TOTAL:,} characters in all names and values"
