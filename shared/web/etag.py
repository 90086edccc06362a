"""Entity tags of representations, and the `If-Match` condition (RFC 9110, section 13.1.1)."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import blake2b

from ..core.errors import Problem
from .problem import invalid

_LIST = re.compile(r'\s*(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"\s*(?:,\s*(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"\s*)*')
_ONE = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')


def etag_of(*material: str | bytes) -> str:
    """A strong entity tag made from what changes with the representation: a stored row's ETag, or the body itself.

    The store's own tags are not shown as they are: they are weak ones, and hold a time.
    """
    digest = blake2b(digest_size=12)
    for part in material:
        raw = part.encode() if isinstance(part, str) else part
        # The length keeps ("ab", "c") and ("a", "bc") apart.
        digest.update(len(raw).to_bytes(4))
        digest.update(raw)
    return f'"{urlsafe_b64encode(digest.digest()).decode()}"'


def check_if_match(headers: Mapping[str, str], etag: str | None) -> None:
    """Raise 412 unless `If-Match` is absent, `*`, or names `etag` (None: there is no representation); 422 if it is malformed."""
    wanted = headers.get("if-match")
    if wanted is None:
        return
    wanted = wanted.strip()
    if wanted == "*":
        if etag is None:
            raise Problem(412, "precondition-failed", "If-Match is * and there is nothing here")
        return
    if not _LIST.fullmatch(wanted):
        raise invalid("@if-match", 'not * and not a list of quoted entity tags like "abc"')
    # Strong comparison: a weak tag matches nothing.
    if etag is None or not any(not weak and tag == etag for weak, tag in _ONE.findall(wanted)):
        raise Problem(412, "precondition-failed", "it has changed since the representation that If-Match names")


def matches_none(headers: Mapping[str, str], etag: str) -> bool:
    """Whether `If-None-Match` names the representation that is there, so that 304 says it all (RFC 9110, section 13.1.2).

    What is not a list of entity tags matches nothing: the answer is then the whole of it.
    """
    wanted = headers.get("if-none-match", "").strip()
    # Weak comparison: proxies that compress make strong tags weak.
    return wanted == "*" or any(tag == etag for _, tag in _ONE.findall(wanted))
