"""Signatures against the public verifier, and our verifier against tampering."""

from __future__ import annotations

import base64
import hmac
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from shared.core.signing import secret_bytes, sign, verify

from .conftest import OTHER_SECRET, SECRET

BODY = b'{"text": "\xc3\xa9", "n": 1.0}'


def headers_for(body: bytes, seconds: int, *secrets: str, id: str = "ev-1") -> dict[str, str]:
    return {"webhook-id": id, "webhook-timestamp": str(seconds), "webhook-signature": sign(id, seconds, body, secrets)}


def test_the_public_library_accepts_what_we_sign() -> None:
    headers = headers_for(BODY, int(time.time()), SECRET)
    assert Webhook(SECRET).verify(BODY, headers) == {"text": "é", "n": 1.0}


@given(st.binary(min_size=1, max_size=140), st.binary(max_size=140))
def test_signatures_are_hmacs_with_keys_of_any_length(key: bytes, body: bytes) -> None:
    expected = base64.b64encode(hmac.digest(key, b"ev-1.1800000000." + body, "sha256")).decode()
    assert sign("ev-1", 1_800_000_000, body, ["whsec_" + base64.b64encode(key).decode()]) == f"v1,{expected}"


def test_while_keys_rotate_either_secret_verifies() -> None:
    headers = headers_for(BODY, int(time.time()), OTHER_SECRET, SECRET)
    assert headers["webhook-signature"].count("v1,") == 2
    for secret in (SECRET, OTHER_SECRET):
        Webhook(secret).verify(BODY, headers)
        assert verify(headers, BODY, [secret], int(time.time() * 1000))


def test_the_public_library_refuses_what_another_secret_signed() -> None:
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER_SECRET).verify(BODY, headers_for(BODY, int(time.time()), SECRET))


def test_we_accept_what_the_public_library_signs() -> None:
    from datetime import UTC, datetime

    stamp = datetime.fromtimestamp(1_800_000_000, UTC)
    headers = {
        "Webhook-Id": "ev-1",
        "Webhook-Timestamp": "1800000000",
        "Webhook-Signature": Webhook(SECRET).sign("ev-1", stamp, BODY.decode()),
    }
    assert verify(headers, BODY, [SECRET], 1_800_000_000_000)


@pytest.mark.parametrize("change", ["body", "id", "timestamp", "version", "missing", "garbage"])
def test_verify_refuses_anything_that_was_changed(change: str) -> None:
    headers, body = headers_for(BODY, 1_800_000_000, SECRET), BODY
    match change:
        case "body":
            body += b" "
        case "id":
            headers["webhook-id"] = "ev-2"
        case "timestamp":
            headers["webhook-timestamp"] = "1800000001"
        case "version":
            headers["webhook-signature"] = headers["webhook-signature"].replace("v1,", "v2,")
        case "missing":
            del headers["webhook-signature"]
        case "garbage":
            headers["webhook-signature"] = "v1,é v1 , ,,"
    assert not verify(headers, body, [SECRET], 1_800_000_000_000)


def test_verify_holds_to_its_tolerance_both_ways() -> None:
    headers = headers_for(BODY, 1_800_000_000, SECRET)
    for offset, good in ((0, True), (300_000, True), (-300_000, True), (300_001, False), (-300_001, False)):
        assert verify(headers, BODY, [SECRET], 1_800_000_000_000 + offset) is good
    assert verify(headers, BODY, [SECRET], 1_800_000_000_000 + 9_000, tolerance=10)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_!!!", "", "whsec_Zé"])
def test_a_malformed_secret_is_an_error_that_does_not_show_it(secret: str) -> None:
    with pytest.raises(ValueError, match="not a webhook secret") as caught:
        sign("ev-1", 1, b"", [secret])
    assert len(secret) < 8 or secret not in str(caught.value)


def test_padding_of_a_secret_is_optional() -> None:
    assert secret_bytes("whsec_QUI=") == secret_bytes("whsec_QUI") == b"AB"


@given(st.dictionaries(st.sampled_from(["webhook-id", "Webhook-Timestamp", "webhook-signature"]), st.text()), st.binary())
def test_verify_never_raises_for_what_a_stranger_sends(headers: dict[str, str], body: bytes) -> None:
    assert verify(headers, body, [SECRET], 0) is False


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1), st.integers(0, 4_000_000_000), st.binary())
def test_what_is_signed_verifies(id: str, seconds: int, body: bytes) -> None:
    assert verify(headers_for(body, seconds, OTHER_SECRET, SECRET, id=id), body, [SECRET], seconds * 1000)
