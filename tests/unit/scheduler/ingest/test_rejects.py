"""Messages of producers that are refused: what is kept of them has no key."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from shared.scheduler.ingest.rejects import masked, without_keys
from shared.tenants.rules import make_key


@given(st.binary(min_size=25, max_size=25), st.integers(0, 4), st.sampled_from(["", "x", '"', "\\", "_", " "]))
@example(bytes(25), 0, "")
def test_key_that_lost_a_part_of_its_mark_is_not_kept(entropy: bytes, at: int, instead: str) -> None:
    key = make_key(entropy)
    broken = key[:at] + instead + key[at + 1 :]
    secret = key[5:]
    for message in (f'{{"key": "{broken}", "events": [', f'{{"kez": "{broken}"}}', json.dumps({"keys": [broken]}), f"token={broken}&x=1"):
        assert secret not in without_keys(message) and secret not in masked(message), message


def test_ids_digests_and_words_are_kept() -> None:
    ids = '"id":"order-17","of":"0f8fad5b-d9cb-469f-a165-70867728950e","sha":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"'
    text = f'{{{ids},"word":"internationalization"}}'
    assert without_keys(text) == text
