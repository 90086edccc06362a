"""Bicep files as trees: what they declare, what they name, what their expressions say. No compiler and no cloud is needed."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

import tree_sitter_bicep
from tree_sitter import Language, Node, Parser

LANGUAGE = Language(tree_sitter_bicep.language())


def text_of(node: Node | None) -> str:
    """The source of a node; '' for none."""
    return "" if node is None or node.text is None else node.text.decode()


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    yield node
    for child in node.children:
        yield from walk(child)


def literal(node: Node | None) -> str | None:
    """Return the text of a string without interpolation; None for anything else."""
    if node is None or node.type != "string" or any(child.type == "interpolation" for child in node.children):
        return None
    return "".join(text_of(child) for child in node.named_children)


def properties(node: Node | None) -> dict[str, Node]:
    """The properties of an object: name -> value, nested resources left out."""
    found: dict[str, Node] = {}
    for each in node.named_children if node is not None and node.type == "object" else ():
        if each.type == "object_property" and len(each.named_children) == 2:
            key, value = each.named_children
            found[literal(key) if key.type == "string" and literal(key) is not None else text_of(key)] = value  # type: ignore[index]
    return found


def at(node: Node | None, path: str) -> Node | None:
    """Return the value at a dotted path in an object; None when it is not there."""
    for name in path.split("."):
        node = properties(node).get(name)
    return node


def body_of(node: Node) -> Node | None:
    """The object of a declaration, whether it stands alone, in a loop or behind a condition."""
    found = [child for child in node.named_children if child.type in ("object", "for_statement", "if_statement")]
    inner = found[-1] if found else None
    while inner is not None and inner.type != "object":
        last = [child for child in inner.named_children if child.type in ("object", "for_statement", "if_statement")]
        inner = last[-1] if last else None
    return inner


def type_of(declaration: Node) -> str:
    """The type that a parameter or an output declares."""
    return next((text_of(child) for child in declaration.named_children if child.type == "type"), "")


@dataclass
class Param:
    """A parameter of a file."""

    name: str
    node: Node
    type: str
    required: bool
    secure: bool


@dataclass
class Resource:
    """A resource that a file declares, or only names (`existing`)."""

    symbol: str
    type: str
    version: str
    existing: bool
    node: Node
    body: Node | None


@dataclass
class Module:
    """A file that another one deploys."""

    symbol: str
    path: str
    node: Node
    params: Mapping[str, Node]


@dataclass
class File:
    """One Bicep file. path: relative to infra/, with slashes."""

    path: str
    source: str
    params: dict[str, Param] = field(default_factory=dict)
    variables: dict[str, Node] = field(default_factory=dict)
    """Name -> value."""
    resources: dict[str, Resource] = field(default_factory=dict)
    modules: dict[str, Module] = field(default_factory=dict)
    outputs: dict[str, Node] = field(default_factory=dict)
    """Name -> value."""
    output_types: dict[str, str] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)

    @cached_property
    def root(self) -> Node:
        """The tree."""
        return Parser(LANGUAGE).parse(self.source.encode()).root_node

    @cached_property
    def nodes(self) -> list[Node]:
        """Every node of the tree."""
        return list(walk(self.root))

    def line(self, node: Node) -> str:
        """Return the place of a node, for a message."""
        return f"{self.path}:{node.start_point.row + 1}"

    @property
    def symbols(self) -> set[str]:
        """Every name that an expression of the file may use."""
        return {*self.params, *self.variables, *self.resources, *self.modules}

    def value(self, node: Node | None) -> Node | None:
        """A node, or what it stands for if it is the name of a variable."""
        while node is not None and node.type == "identifier" and text_of(node) in self.variables:
            node = self.variables[text_of(node)]
        return node


@cache
def parse(path: str, source: str) -> File:
    """Read one file, each text once. Syntax errors are left to the checks."""
    made = File(path, source)
    decorators: list[Node] = []
    for node in made.root.named_children:
        if node.type == "decorators":
            decorators = [node]
            continue
        named = [child for child in node.named_children if child.type == "identifier"]
        name = text_of(named[0]) if named else ""
        # Outputs have names of their own.
        if node.type in _DECLARES and name in (made.outputs if node.type == "output_declaration" else made.symbols):
            made.twice.append(name)
        match node.type:
            case "parameter_declaration":
                plain = [child for child in node.named_children if child.type not in ("type", "identifier")]
                # A default that is a name is a second identifier.
                required = not plain and len(named) < 2
                secure = any(text_of(each) == "@secure()" for block in decorators for each in block.named_children)
                made.params[name] = Param(name, node, type_of(node), required, secure)
            case "variable_declaration":
                made.variables[name] = node.named_children[-1]
            case "output_declaration":
                made.outputs[name] = node.named_children[-1]
                made.output_types[name] = type_of(node)
            case "resource_declaration":
                kind, _, version = (literal(next(child for child in node.named_children if child.type == "string")) or "").partition("@")
                existing = any(child.type == "existing" for child in node.children)
                made.resources[name] = Resource(name, kind, version, existing, node, body_of(node))
            case "module_declaration":
                target = literal(next(child for child in node.named_children if child.type == "string")) or ""
                full = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
                made.modules[name] = Module(name, full, node, properties(at(body_of(node), "params")))
        decorators = []
    return made


_DECLARES = frozenset({"parameter_declaration", "variable_declaration", "resource_declaration", "module_declaration", "output_declaration"})


def strings(file: File, node: Node | None) -> list[str]:
    """The strings of an array, or of the variable that holds it."""
    found = file.value(node)
    return [text for child in found.named_children if (text := literal(child)) is not None] if found is not None else []
