"""Entity tags of representations, and the conditions `If-Match` and `If-None-Match` (RFC 9110, sections 13.1.1 and 13.1.2), and the
JSON that answers consist of."""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson
from pydantic import BaseModel

from ..core.errors import Problem
from .problem import invalid


def encode(body: Any) -> bytes:
    """Return the JSON of a model, or of data with models inside, and a newline, so that a terminal's next prompt stands in its own line.
    Bytes are returned unchanged."""
    if isinstance(body, bytes):
        return body
    # A dict is recognized first, because pydantic's own check takes longer.
    if not isinstance(body, dict) and isinstance(body, BaseModel):
        # The model's own serializer: half the time of model_dump and orjson.
        return body.__pydantic_serializer__.to_json(body, by_alias=True) + b"\n"
    return orjson.dumps(body, default=_plain, option=orjson.OPT_APPEND_NEWLINE)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return orjson.Fragment(value.__pydantic_serializer__.to_json(value, by_alias=True))
    raise TypeError(f"{type(value).__name__} is not JSON")


_LIST = re.compile(r'\s*(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"\s*(?:,\s*(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"\s*)*')
_CHANGED = "The resource has changed since you read it: its ETag is another. Read it again and repeat the change."
_THERE = "If-None-Match is *, but something exists at this path. Choose another id, or replace it with If-Match."
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_ONE = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')


def etag_of(*material: str | bytes) -> str:
    """Return a strong entity tag of the material that changes with the representation: a stored row's ETag, or the body.

    The store's own tags are not shown: they are weak and contain a time.
    """
    found = blake2b(digest_size=12)
    for part in material:
        raw = part.encode() if isinstance(part, str) else part
        # The length keeps ("ab", "c") and ("a", "bc") apart.
        found.update(len(raw).to_bytes(4) + raw)
    return f'"{b2a_base64(found.digest(), newline=False).translate(_URL_SAFE).decode()}"'


def check_if_match(headers: Mapping[str, str], etag: str | None) -> None:
    """Raise 412 unless `If-Match` is absent, `*`, or names `etag` (None: there is no representation); 422 if it is malformed."""
    wanted = headers.get("if-match")
    if wanted is None:
        return
    wanted = wanted.strip()
    if wanted == "*":
        if etag is None:
            raise Problem(412, "precondition-failed", "If-Match is *, but nothing exists at this path.")
        return
    if not _LIST.fullmatch(wanted):
        raise invalid("@if-match", 'must be * or a list of quoted entity tags, such as "abc"')
    # Strong comparison: a weak tag matches nothing.
    if etag is None or not any(not weak and tag == etag for weak, tag in _ONE.findall(wanted)):
        raise Problem(412, "precondition-failed", _CHANGED)


def check_absent(headers: Mapping[str, str], *, exists: bool) -> None:
    """Raise 412 if `If-None-Match` is `*` and something exists at the path; 422 for entity tags, which no call that writes takes."""
    wanted = headers.get("if-none-match")
    if wanted is None:
        return
    if wanted.strip() != "*":
        raise invalid("@if-none-match", "must be *, which creates and never replaces; to replace what you have read, send If-Match")
    if exists:
        raise Problem(
            412,
            "precondition-failed",
            "If-None-Match is *, but something exists at this path. Choose another id, or replace it with If-Match.",
        )


def matches_none(headers: Mapping[str, str], etag: str) -> bool:
    """Return True if `If-None-Match` names the current representation, so that 304 is enough (RFC 9110, section 13.1.2).

    A malformed header matches nothing; the answer is then complete.
    """
    wanted = headers.get("if-none-match", "").strip()
    # Weak comparison: proxies that compress make strong tags weak.
    return wanted == "*" or any(tag == etag for _, tag in _ONE.findall(wanted))
