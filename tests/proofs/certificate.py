"""Certificates: what a proof has found, and the hash of all that it depends on. They hold no times and no paths of a machine."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.paths import ROOT

from .catalogue import Proof
from .trees import TreeHashes, hash_of

PROVED = ROOT / "tests" / "proved"
FORMAT = 1
"""Raised when certificates say other things than before, or when what they say is found in another way: then all are stale."""
PYTHON: Final = f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"
PINNED = ("requirements.txt", "requirements-dev.txt")
"""The files that pin the packages of a proof's process."""
BY_LINE = ("cases", "files", "modules", "pins")
"""Members with a line for each of their own members, so that a difference names what is different."""

type Content = dict[str, Any]


class CertificateError(Exception):
    """A certificate that is no JSON, or was changed by hand; the message says which."""


def file_of(proof: Proof, proved: Path = PROVED) -> Path:
    return proved / f"{proof.name}.json"


def to_text(content: Content) -> str:
    """Return the certificate's text: a line for each case and each folder, and the hash of the content as the last line."""
    members = [f"{json.dumps(name)}: {_member(name, value)}" for name, value in sorted(content.items())]
    return "{\n" + ",\n".join([*members, f'"sha256": "{_own_hash(content)}"']) + "\n}\n"


def _member(name: str, value: Any) -> str:
    if name not in BY_LINE or not value:
        return _plain(value)
    if name == "modules":
        value = _by_folder(value)
    return "{\n" + ",\n".join(f" {json.dumps(each)}: {_plain(value[each])}" for each in sorted(value)) + "\n}"


def _by_folder(modules: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the hashes by folder and file: a proof of the whole app has some 450 modules, in 90 folders."""
    found: dict[str, dict[str, str]] = {}
    for path, known in modules.items():
        folder, _, name = path.rpartition("/")
        found.setdefault(folder, {})[name] = known
    return found


def _by_path(folders: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Undo `_by_folder`."""
    return {f"{folder}/{name}".removeprefix("/"): known for folder, modules in folders.items() for name, known in modules.items()}


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


def _own_hash(content: Content) -> str:
    return hashlib.sha256(_plain(content).encode()).hexdigest()


def from_text(text: str) -> Content:
    """Return the content of a certificate. Raise CertificateError when its text is not what a proof wrote."""
    try:
        content = json.loads(text)
        claimed = content.pop("sha256")
        content["modules"] = _by_path(content["modules"])
        as_written = to_text(content)
    except (ValueError, TypeError, AttributeError, KeyError) as wrong:
        raise CertificateError("is no certificate") from wrong
    if claimed != _own_hash(content) or text != as_written:
        raise CertificateError("was changed by hand")
    return content


@cache
def pins(root: Path = ROOT) -> dict[str, str]:
    """Return the pinned version of each package, by its normalised name."""
    found = {}
    for name in PINNED:
        for package, version in re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", (root / name).read_text(), re.MULTILINE):
            found[normalised(package)] = version
    return found


def normalised(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def stale_because(proof: Proof, trees: TreeHashes, proved: Path = PROVED, root: Path = ROOT) -> str | None:
    """Return the reason why the proof has to be made anew, None when its certificate is about this code."""
    try:
        content = from_text(file_of(proof, proved).read_text())
    except FileNotFoundError:
        return "has no certificate"
    except CertificateError as wrong:
        return f"its certificate {wrong}"
    changes = list(_changes(content, proof, trees, root))
    return None if not changes else changes[0] + (f", and {len(changes) - 1} more" if len(changes) > 1 else "")


def _changes(content: Content, proof: Proof, trees: TreeHashes, root: Path) -> Iterator[str]:
    about = [content.get(name) for name in ("format", "python", "proof", "parts")]
    if about != [FORMAT, PYTHON, proof.name, proof.parts]:
        yield "its certificate is about another Python, another split into parts, or of another form"
        return
    for path, known in content["modules"].items():
        if (found := _found(root / path, trees)) != known:
            yield f"{path} {'has changed' if found else 'is gone'}"
    for path, known in content["files"].items():
        file = root / path
        if not file.is_file() or hash_of(file.read_bytes()) != known:
            yield f"{path} has changed"
    pinned = pins(root)
    for package, version in content["pins"].items():
        if pinned.get(package) != version:
            yield f"{package} is pinned to {pinned.get(package)}, and was {version}"


def _found(path: Path, trees: TreeHashes) -> str | None:
    try:
        return trees.of(path)
    except FileNotFoundError:
        return None


def differences(stored: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return a line for each fact in which two certificates of one proof differ."""
    lines = []
    for member in sorted({*stored, *found}):
        one, other = stored.get(member), found.get(member)
        if member in BY_LINE and isinstance(one, dict) and isinstance(other, dict):
            names = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
            lines += [f"{member}, {name}: {one.get(name)} in the certificate, {other.get(name)} now" for name in names]
        elif one != other:
            lines.append(f"{member}: {one} in the certificate, {other} now")
    return lines
