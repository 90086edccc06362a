"""Hosts with letters beyond ASCII, which URLs write in Punycode (RFC 3492, UTS #46)."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote

import idna

_HOST = re.compile(r"[^/?#]*//(?:[^/?#@]*@)?([^/?#:@]+)")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_ACE = "xn--"
_EXAMPLE = "such as xn--mnchen-3ya.example for m\u00fcnchen.example"


def find_fault(url: str) -> str | None:
    """Return the fault of a URL whose host is not written in ASCII, or in Punycode that stands for nothing; None if there is none."""
    found = _HOST.match(url)
    if found is None:
        return None
    host = found[1]
    plain = unquote(host)
    if not plain.isascii():
        return f"has a host with letters that URLs do not hold; write it in Punycode, {_in_ascii(plain) or _EXAMPLE}"
    if plain != host:
        return f"must not percent-encode its host{f'; write {plain}' if _NAME.fullmatch(plain) else ''}"
    for label in host.split("."):
        if label.lower().startswith(_ACE) and not _stands_for_a_name(label.lower()):
            return f"has the host part {label}, which is no valid Punycode, {_EXAMPLE}"
    return None


def _in_ascii(host: str) -> str | None:
    """Return the host in Punycode as browsers write it, or None if it is no name."""
    try:
        labels = idna.uts46_remap(host, std3_rules=False).split(".")
        return ".".join(label if label.isascii() else f"{_ACE}{label.encode('punycode').decode()}" for label in labels)
    except UnicodeError:
        return None


def _stands_for_a_name(label: str) -> bool:
    """Return True if a label that begins with `xn--` is the Punycode of a name, as browsers check it."""
    given = label.removeprefix(_ACE)
    try:
        name = given.encode().decode("punycode")
        same = name.encode("punycode").decode() == given
        return same and not name.isascii() and unicodedata.is_normalized("NFC", name) and idna.uts46_remap(name, std3_rules=False) == name
    except UnicodeError:
        # Also raised for characters that no name has.
        return False
