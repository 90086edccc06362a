"""References in the texts of a file: `${env:NAME}` stands for the value of an environment variable, so that the file holds no secret.

If the variable is not set, the stored value stays. `$${env:NAME}` stands for the text `${env:NAME}` itself. Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

MASK: Final = "***"
"""The text that the API shows instead of a secret. In a request it means that the stored secret stays."""
_REFERENCE = re.compile(r"\$?\$\{env:([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Missing(NamedTuple):
    """A variable that is not set, and that has no stored value either. path: position of the text that names it, such as headers.x-key."""

    path: str
    name: str


class Resolved(NamedTuple):
    """A document with values instead of references. references: paths of the texts that had references."""

    document: Any
    missing: tuple[Missing, ...]
    references: frozenset[str]


def names_in(text: str) -> list[str]:
    """Return the names of the variables that a text refers to. Raises ValueError for a malformed reference."""
    names = [found[1] for found in _REFERENCE.finditer(text) if not found[0].startswith("$$")]
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"${{env:{name}}} does not name a variable; write ${{env:NAME}} with letters, digits and underscores")
    return names


def resolve(document: Any, environment: Mapping[str, str], stored: Any) -> Resolved:
    """Return the document with values instead of references: those of the environment, else those of the stored document.

    Raises ValueError for a malformed reference.
    """
    missing: list[Missing] = []
    references: set[str] = set()

    def of_text(path: str, text: str, there: Any) -> str:
        names = names_in(text)
        if names:
            references.add(path)
        absent = [name for name in names if name not in environment]
        if not absent:
            return _REFERENCE.sub(lambda found: _value(found, environment), text)
        if isinstance(there, str) and (there == MASK or _fits(text, there)):
            return there
        missing.extend(Missing(path, name) for name in absent)
        return text

    resolved = _map_texts("", document, stored, of_text)
    return Resolved(resolved, tuple(missing), frozenset(references))


def _value(found: re.Match[str], environment: Mapping[str, str]) -> str:
    return found[0][1:] if found[0].startswith("$$") else environment[found[1]]


def _fits(text: str, stored: str) -> bool:
    """Return True if the stored text is this one with some values for the references."""
    pattern, end = "", 0
    for found in _REFERENCE.finditer(text):
        pattern += re.escape(text[end : found.start()]) + (re.escape(found[0][1:]) if found[0].startswith("$$") else ".+")
        end = found.end()
    return re.fullmatch(pattern + re.escape(text[end:]), stored, re.DOTALL) is not None


def _map_texts(path: str, value: Any, stored: Any, of_text: Callable[[str, str, Any], str]) -> Any:
    if isinstance(value, str):
        return of_text(path, value, stored)
    if isinstance(value, dict):
        there = stored if isinstance(stored, dict) else {}
        return {name: _map_texts(f"{path}.{name}" if path else name, part, _part(there, name), of_text) for name, part in value.items()}
    if isinstance(value, list):
        items = stored if isinstance(stored, list) and len(stored) == len(value) else [None] * len(value)
        return [_map_texts(f"{path}[{n}]", part, item, of_text) for n, (part, item) in enumerate(zip(value, items, strict=True))]
    return value


def _part(there: Mapping[str, Any], name: str) -> Any:
    """Return the stored member of this name. Case does not matter: the API may show names of headers in another case."""
    return there.get(name) if name in there else next((value for key, value in there.items() if key.lower() == name.lower()), None)


def leaves(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the paths and values of a document's members that are no objects. Members that are null or empty objects are left out."""
    if isinstance(document, dict):
        for name, part in document.items():
            yield from leaves(part, f"{path}.{name}" if path else name)
    elif document is not None:
        yield path, document


def reference_name(*parts: str) -> str:
    """Return the name of a variable for a secret: SHOP_DEFAULT_X_KEY for shop, default, x-key."""
    name = re.sub(r"[^A-Z0-9]+", "_", "_".join(parts).upper()).strip("_")
    return name if _NAME.fullmatch(name) else f"TOCSIN_{name}"


def escaped(document: Any) -> Any:
    """Return a stored document for a file: a text that looks like a reference stays that text."""
    return _map_texts("", document, None, lambda _, text, __: re.sub(r"\$\{env:", "$${env:", text))
