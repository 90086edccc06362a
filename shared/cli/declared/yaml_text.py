"""YAML as JSON writes it: only true, false, null and JSON's numbers are not texts, so that `on`, `12:30` and dates stay texts."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final

import yaml

from ..terminal.documents import AnswerDocument, ExactNumber

MAX_BYTES: Final = 16 * 1024 * 1024
"""Largest file, in bytes."""
MAX_VALUES: Final = 1_000_000
"""Most values in a file, with aliases followed."""

_RESOLVERS: Final = (
    ("null", re.compile(r"null|~|"), ["n", "~", ""]),
    ("bool", re.compile(r"true|false"), ["t", "f"]),
    ("int", re.compile(r"-?(?:0|[1-9][0-9]*)"), list("-0123456789")),
    ("float", re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"), list("-0123456789")),
)


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        self.flatten_mapping(node)
        found: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise ValueError(f"line {line}: the name {key!r} is not a text; put it in quotes")
            if key in found:
                raise ValueError(f"line {line}: {key} is named twice")
            found[key] = self.construct_object(value_node, deep=True)
        return found


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _exact(loader: _Loader, node: yaml.ScalarNode) -> Any:
    return ExactNumber(str(node.value))


def _plain_number(dumper: _Dumper, number: ExactNumber) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:float", number.text)


# Those of YAML 1.1 do not apply: they take `on` for true and 12:30 for a number.
_Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in _RESOLVERS:
    _whole = re.compile(rf"^(?:{_pattern.pattern})$")
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", _whole, _first)
    # In addition to those of YAML 1.1: a text that any reader would take for something else is written in quotes.
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", _whole, _first)
_Loader.add_constructor("tag:yaml.org,2002:float", _exact)
_Dumper.add_representer(ExactNumber, _plain_number)
_Dumper.add_representer(AnswerDocument, yaml.SafeDumper.represent_dict)


def parse_yaml(raw: bytes) -> Any:
    """Return the document of a YAML or JSON text. Raises ValueError that names the line."""
    if len(raw) > MAX_BYTES:
        raise ValueError(f"the file has {len(raw):,} bytes, and may have {MAX_BYTES:,}")
    try:
        # The loader makes only JSON's types, as SafeLoader does.
        found = yaml.load(raw.decode("utf-8-sig"), _Loader)
    except yaml.YAMLError as wrong:
        mark = getattr(wrong, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark is not None else ""
        raise ValueError(f"{place}{getattr(wrong, 'problem', None) or wrong}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _refuse_too_many(found)
    return found


def _refuse_too_many(found: Any) -> None:
    """Raise ValueError for more than `MAX_VALUES` values: aliases of aliases multiply."""
    waiting, seen = [found], 0
    while waiting:
        seen += 1
        if seen > MAX_VALUES:
            raise ValueError(f"it has more than {MAX_VALUES:,} values")
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting.extend(value.values() if isinstance(value, dict) else value)


def to_yaml(document: Any) -> str:
    """Return the document as YAML, names in the order given."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text
