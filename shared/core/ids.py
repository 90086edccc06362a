"""Sources of unique names and random numbers. Tests and the simulator use a seeded source, whose values repeat."""

from __future__ import annotations

import random
import secrets
from typing import Protocol

_ALPHABET = "0123456789abcdefghijklmnopqrstuv"


def spell(number: int, length: int) -> str:
    """Return `number` in `length` digits of base 32 (0-9, a-v); `int(text, 32)` is the inverse."""
    return "".join(_ALPHABET[(number >> (5 * place)) & 31] for place in reversed(range(length)))


class Ids(Protocol):
    """A source of unique names and of random numbers."""

    def name(self) -> str:
        """Return a unique name of 16 letters and digits with 80 random bits."""

    def chance(self) -> float:
        """Return a random number in [0, 1), for jitter."""


class SystemIds:
    """Names from the operating system's entropy."""

    def name(self) -> str:
        return spell(secrets.randbits(80), 16)

    def chance(self) -> float:
        return random.random()


class SeededIds:
    """Names and random numbers that are the same for the same seed."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def name(self) -> str:
        return spell(self._random.getrandbits(80), 16)

    def chance(self) -> float:
        return self._random.random()
