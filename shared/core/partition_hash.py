"""The partition of an ordering key: a hash that every language can compute.

    hash(key) = the first 8 bytes of SHA-256 of the key in UTF-8, as an unsigned big-endian integer
    partition = hash(key) modulo the fleet's partition count

The hash never changes; the count changes with a resize, and the count of the fleet's newest generation is in force.
"""

from __future__ import annotations

import hashlib


def hash_of_key(key: str) -> int:
    """Return the hash of a key, 0 to 2^64 - 1, for `LeaseKeeper.find`. Raises UnicodeEncodeError for a lone surrogate."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8])


def partition_of_key(key: str, partitions: int) -> int:
    """Return the partition of a key among `partitions`. Raises ValueError unless that is at least 1."""
    if partitions < 1:
        raise ValueError(f"partitions must be at least 1, not {partitions}")
    return hash_of_key(key) % partitions
