"""Decisions about keys, secrets and channels: pure, no I/O, no clock."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..core.clock import Millis

KEY_MARK = "tsn_"
PREFIX_LENGTH = 12
"""Characters of a key that lists show: the mark and 40 bits that identify it and reveal nothing of the secret."""
ROTATION: Millis = 24 * 3_600_000
"""Milliseconds for which the previous secret stays valid after a rotation."""


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


def declared(before: str, searchable: Iterable[str], now: Millis) -> str:
    """Return the stored text with the time at which each searchable label was declared; labels of `before` that stay keep theirs."""
    known = parse_declared(before)
    return ",".join(f"{name}={known.get(name, now)}" for name in searchable)


def parse_declared(text: str) -> Mapping[str, Millis]:
    """Return when each label was declared searchable."""
    return {name: int(at) for name, _, at in (each.partition("=") for each in text.split(",") if each)}


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
    rotation: str = ""
    """The name of the last rotation; empty without one."""


def first_generation(now: Millis) -> Generations:
    """Return the generations of a new channel. The number is the time, so that a reused name never gets an old secret."""
    return Generations(now)


def rotate(old: Generations, now: Millis, name: str = "") -> Generations:
    """Return the generations with a new secret; the previous one stays valid for 24 hours, older ones become invalid.

    If the last rotation has this name, the call repeats it, and the generations stay as they are.
    """
    if name and name == old.rotation:
        return old
    return Generations(max(now, old.current + 1), now, old.current, now + ROTATION, name)


def in_use(generations: Generations, now: Millis) -> list[int]:
    """Return the generations to sign with, newest first."""
    if not generations.current:
        return []
    if generations.previous is None or generations.previous_until is None or now >= generations.previous_until:
        return [generations.current]
    return [generations.current, generations.previous]
