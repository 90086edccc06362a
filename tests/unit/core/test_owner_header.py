"""The hash of ordering keys and the header `tocsin-owner`: golden vectors, which other languages reproduce too."""

from __future__ import annotations

import pytest

from shared.core.owner_header import OwnerClaim, sign_owner, verify_owner
from shared.core.partition_hash import hash_of_key, partition_of_key

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
CLAIM = OwnerClaim("search", 3, 17, 42, "order-17")
HEADER = "fleet=search, generation=3, partition=17, epoch=42, id=order-17, v1=Cw5w7yzksjL4czJbrEWvTcgFDlxDPQ7InwZ95aAKApI="


@pytest.mark.parametrize(
    ("key", "number", "of_64", "of_100"),
    [
        ("customer-7", 12442854226069075368, 40, 68),
        ("order/17", 13407867507782315898, 58, 98),
        ("Zoë", 14312763526516556048, 16, 48),
        ("日本語", 8606672379249086371, 35, 71),
        ("a" * 128, 7509417112331616489, 41, 89),
    ],
)
def test_the_hash_of_a_key_never_changes(key: str, number: int, of_64: int, of_100: int) -> None:
    assert hash_of_key(key) == number
    assert (partition_of_key(key, 64), partition_of_key(key, 100)) == (of_64, of_100)


def test_a_fleet_has_at_least_one_partition() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        partition_of_key("customer-7", 0)


def test_the_header_is_as_documented() -> None:
    assert sign_owner(CLAIM, [SECRET]) == HEADER
    assert verify_owner(HEADER, "order-17", [SECRET]) == CLAIM


def test_during_a_rotation_each_secret_verifies() -> None:
    both = sign_owner(CLAIM, [OTHER, SECRET])
    assert verify_owner(both, "order-17", [SECRET]) == verify_owner(both, "order-17", [OTHER]) == CLAIM
    assert verify_owner(HEADER, "order-17", [OTHER, SECRET]) == CLAIM


@pytest.mark.parametrize(
    "value",
    [
        "",
        HEADER.replace("epoch=42", "epoch=43"),
        HEADER.replace("partition=17", "partition=18"),
        HEADER.replace("generation=3", "generation=4"),
        HEADER.replace("fleet=search", "fleet=other"),
        HEADER.replace("epoch=42", "epoch=042"),
        HEADER.replace("v1=Cw", "v1=Dw"),
        HEADER.partition(", v1=")[0],
        HEADER + " ",
        HEADER.replace("epoch=42", "epoch=" + "9" * 30),
        HEADER + ", v1=" + "A" * 43 + "=" * 9,
        "x" * 100_000,
    ],
)
def test_anything_else_is_refused(value: str) -> None:
    assert verify_owner(value, "order-17", [SECRET]) is None


def test_the_header_belongs_to_one_event_and_one_secret() -> None:
    assert verify_owner(HEADER, "order-18", [SECRET]) is None
    assert verify_owner(HEADER, "order-17", [OTHER]) is None
    assert verify_owner(HEADER, "order-17", []) is None
    with pytest.raises(ValueError, match="not a webhook secret"):
        verify_owner(HEADER, "order-17", ["whsec_%"])
