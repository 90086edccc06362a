"""Names that must be unique come from here, so that tests and the simulator can repeat them."""

from __future__ import annotations

import random
import secrets
from typing import Protocol

_ALPHABET = "0123456789abcdefghijklmnopqrstuv"


def spell(number: int, length: int) -> str:
    """`number` in `length` digits of base 32 (0-9, a-v); `int(text, 32)` reads it back."""
    return "".join(_ALPHABET[(number >> (5 * place)) & 31] for place in reversed(range(length)))


class Ids(Protocol):
    """A source of names and of chance."""

    def name(self) -> str:
        """16 letters and digits, unique with 80 bits of chance."""

    def chance(self) -> float:
        """A number in [0, 1), for jitter."""


class SystemIds:
    """Names from the operating system's entropy."""

    def name(self) -> str:
        return spell(secrets.randbits(80), 16)

    def chance(self) -> float:
        return random.random()


class SeededIds:
    """The same names and chances for the same seed."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def name(self) -> str:
        return spell(self._random.getrandbits(80), 16)

    def chance(self) -> float:
        return self._random.random()
