"""The checks of infra/: each is given the whole project and yields one sentence per fault, with the place."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tree_sitter import Node

from . import facts
from .bicep import File, Module, Resource, at, literal, parse, properties, text_of, walk

MAIN, AGENT = "main.bicep", "agent/agent.bicep"


@dataclass
class Project:
    """All of infra/. sources: path -> text, paths relative to infra/."""

    sources: Mapping[str, str]

    def __post_init__(self) -> None:
        self.files = {path: parse(path, text) for path, text in self.sources.items() if path.endswith(".bicep")}

    @property
    def main(self) -> File:
        """The file that everything begins with."""
        return self.files[MAIN]

    def resources(self) -> Iterator[tuple[File, Resource]]:
        """Every resource, with its file."""
        for file in self.files.values():
            for resource in file.resources.values():
                yield file, resource

    def modules(self) -> Iterator[tuple[File, Module]]:
        """Every module, with the file that deploys it."""
        for file in self.files.values():
            for module in file.modules.values():
                yield file, module


type Check = Callable[[Project], Iterable[str]]

CHECKS: dict[str, Check] = {}


def check(fault: Check) -> Check:
    """Have a check run."""
    CHECKS[fault.__name__] = fault
    return fault


def faults(project: Project) -> dict[str, list[str]]:
    """Return the faults, by the name of the check that found them."""
    return {name: found for name, each in CHECKS.items() if (found := list(each(project)))}


# --- The language ---------------------------------------------------------------------------------------------------


@check
def syntax(project: Project) -> Iterator[str]:
    """Every file parses."""
    for file in project.files.values():
        for node in file.nodes:
            if node.is_error or node.is_missing:
                yield f"{file.line(node)}: not Bicep: {text_of(node)[:40]!r}"


def bound_above(node: Node) -> set[str]:
    """Names that loops and lambdas around a node bind."""
    found: set[str] = set()
    above = node.parent
    while above is not None:
        if above.type == "for_statement":
            for child in above.children:
                if child.type == "for_loop_parameters":
                    found |= {text_of(each) for each in child.named_children}
            first = above.child_by_field_name("initializer")
            found |= {text_of(first)} if first is not None else set()
        if above.type == "lambda_expression":
            found |= {text_of(each) for each in above.named_children[:-1] for each in walk(each) if each.type == "identifier"}
        above = above.parent
    return found


def is_name(node: Node) -> bool:
    """Return whether an identifier stands for a value: not a property's key, not a function's name, not what is declared by it."""
    parent = node.parent
    if parent is None or node.type != "identifier":
        return False
    if parent.type == "object_property" and parent.named_children[0] == node:
        return False
    if parent.type == "call_expression" and parent.child_by_field_name("function") == node:
        return False
    if parent.type == "for_statement" and parent.child_by_field_name("initializer") == node:
        return False
    declares = parent.type.endswith("_declaration") or parent.type in ("assert_statement", "lambda_expression")
    return not (declares and next(child for child in parent.named_children if child.type == "identifier") == node)


@check
def names(project: Project) -> Iterator[str]:
    """Check that every used name is declared and every declared name is used, once each; only known functions are called."""
    for file in project.files.values():
        yield from (f"{file.path}: {name} is declared twice" for name in file.twice)
        used: set[str] = set()
        for node in file.nodes:
            if is_name(node):
                used.add(text_of(node))
                if text_of(node) not in file.symbols | bound_above(node):
                    yield f"{file.line(node)}: {text_of(node)} is not declared"
            called = text_of(node.child_by_field_name("function")) if node.type == "call_expression" else ""
            if called and called not in facts.FUNCTIONS and not in_decorator(node):
                yield f"{file.line(node)}: the function {called} is not among those that may be called"
        for name in sorted({*file.params, *file.variables} - used):
            yield f"{file.path}: {name} is declared and not used"


def in_decorator(node: Node) -> bool:
    """Return whether a node belongs to a decorator."""
    above: Node | None = node
    while above is not None and above.type != "decorator":
        above = above.parent
    return above is not None


@check
def versions(project: Project) -> Iterator[str]:
    """Each type is used in the one version that was looked up."""
    for file, resource in project.resources():
        if facts.VERSIONS.get(resource.type) != resource.version:
            yield f"{file.line(resource.node)}: {resource.type}@{resource.version} is not on the list"


@check
def modules(project: Project) -> Iterator[str]:
    """A module's file exists, takes the parameters it is given, and is given those it needs; no file is left over."""
    for file, module in project.modules():
        target = project.files.get(module.path)
        if target is None:
            yield f"{file.line(module.node)}: there is no {module.path}"
            continue
        for name in sorted(set(module.params) - set(target.params)):
            yield f"{file.line(module.node)}: {module.path} has no parameter {name}"
        for name, param in target.params.items():
            if param.required and name not in module.params:
                yield f"{file.line(module.node)}: {module.path} is not given {name}"
            given = module.params.get(name)
            if param.secure and given is not None and not (text_of(given) in file.params and file.params[text_of(given)].secure):
                yield f"{file.line(given)}: {name} is secret, and what it is given is not marked so"
    used = {module.path for _, module in project.modules()}
    roots = {MAIN, AGENT}
    yield from (f"{path}: nothing deploys it" for path in sorted(set(project.files) - used - roots))


def outputs_used(file: File) -> Iterator[tuple[Node, Module, str]]:
    """Each `module.outputs.name` of a file."""
    for node in file.nodes:
        if node.type != "member_expression":
            continue
        inner = node.child_by_field_name("object")
        if inner is None or inner.type != "member_expression" or text_of(inner.child_by_field_name("property")) != "outputs":
            continue
        base = inner.child_by_field_name("object")
        while base is not None and base.type == "subscript_expression":
            base = base.child_by_field_name("object")
        if text_of(base) in file.modules:
            yield node, file.modules[text_of(base)], text_of(node.child_by_field_name("property"))


@check
def outputs(project: Project) -> Iterator[str]:
    """Outputs that are asked for exist, and are asked of a conditional module behind a condition only."""
    for file in project.files.values():
        for node, module, name in outputs_used(file):
            target = project.files.get(module.path)
            if target is not None and name not in target.outputs:
                yield f"{file.line(node)}: {module.path} has no output {name}"
            conditional = any(child.type == "if_statement" for child in module.node.named_children)
            above: Node | None = node
            while above is not None and above.type != "ternary_expression":
                above = above.parent
            if conditional and above is None:
                yield f"{file.line(node)}: {module.symbol} may not be there"


RETURNS = {"concat": "array", "empty": "bool", "length": "int", "range": "array", "union": "object"} | dict.fromkeys(
    ("base64", "format", "guid", "loadTextContent", "replace", "string", "subscriptionResourceId", "toLower", "uniqueString"), "string"
)
KINDS = {"string": "string", "number": "int", "boolean": "bool", "array": "array", "for_statement": "array", "object": "object"}


def kind(project: Project, file: File, node: Node | None) -> str | None:
    """The type of an expression, as far as it is known without Azure's own definitions; None where it cannot."""
    if node is None or node.type in KINDS:
        return KINDS[node.type] if node is not None else None
    match node.type:
        case "identifier" if text_of(node) in file.params:
            return file.params[text_of(node)].type
        case "identifier" if text_of(node) in file.variables:
            return kind(project, file, file.variables[text_of(node)])
        case "parenthesized_expression":
            return kind(project, file, node.named_children[0])
        case "ternary_expression":
            ways = (kind(project, file, node.child_by_field_name(way)) for way in ("consequence", "alternative"))
            return next((way for way in ways if way), None)
        case "call_expression":
            return RETURNS.get(text_of(node.child_by_field_name("function")))
        case "binary_expression" | "unary_expression" if re.search(r"==|!=|<|>|&&|\|\||!", text_of(node)):
            return "bool"
        case "member_expression":
            for each, module, name in outputs_used(file):
                if each == node and module.path in project.files:
                    return project.files[module.path].output_types.get(name)
            base = text_of(node.child_by_field_name("object"))
            return "string" if base in file.resources and text_of(node.child_by_field_name("property")) in ("id", "name") else None
    return None


@check
def types(project: Project) -> Iterator[str]:
    """Check that values of modules, outputs and defaults have the declared type, where both are known."""
    for file, module in project.modules():
        target = project.files.get(module.path)
        for name, value in module.params.items():
            wanted, found = target.params[name].type if target and name in target.params else None, kind(project, file, value)
            if wanted and found and wanted != found:
                yield f"{file.line(value)}: {name} of {module.path} is {wanted}, and is given {found}"
    for file in project.files.values():
        for name, value in file.outputs.items():
            if (found := kind(project, file, value)) and found != file.output_types[name]:
                yield f"{file.line(value)}: the output {name} is {file.output_types[name]}, and its value {found}"
        for param in file.params.values():
            default = param.node.named_children[-1]
            if not param.required and (found := kind(project, file, default)) and found != param.type:
                yield f"{file.line(default)}: {param.name} is {param.type}, and its default {found}"


@check
def texts(project: Project) -> Iterator[str]:
    """Files that are loaded exist."""
    for file in project.files.values():
        for node in file.nodes:
            if node.type == "call_expression" and text_of(node.child_by_field_name("function")) == "loadTextContent":
                named = next(literal(child) for child in walk(node) if child.type == "string")
                path = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), named or ""))
                if path not in project.sources:
                    yield f"{file.line(node)}: there is no {path}"


@check
def parameters(project: Project) -> Iterator[str]:
    """The parameters file names parameters of main.bicep, all those without a default among them, and gives no secret away."""
    given = json.loads(project.sources["main.parameters.json"])["parameters"]
    for name in sorted(set(given) - set(project.main.params)):
        yield f"main.parameters.json: main.bicep has no parameter {name}"
    for name, param in project.main.params.items():
        if param.required and name not in given:
            yield f"main.parameters.json: {name} is missing"
        if param.secure and not re.fullmatch(r"\$\{[A-Z_]+=\}", str(given.get(name, {}).get("value", ""))):
            yield f"main.parameters.json: {name} has to come from the environment"
        # azd puts a value's text into the file as it is: the quotation marks of an array or object would end the string around them.
        if "${" in str(given.get(name, {}).get("value", "")) and param.type != "string":
            yield f"main.parameters.json: {name} is {param.type}, which no variable of the environment can hold"


# --- What is deployed -----------------------------------------------------------------------------------------------


@check
def demands(project: Project) -> Iterator[str]:
    """No shared keys, no old TLS, no public blobs, and the like."""
    for file, resource in project.resources():
        if resource.existing:
            continue
        for path, wanted in facts.DEMANDED.get(resource.type, {}).items():
            if text_of(at(at(resource.body, "properties"), path)) != wanted:
                yield f"{file.line(resource.node)}: {resource.symbol} must have {path} {wanted}"


@check
def spelling(project: Project) -> Iterator[str]:
    """Properties have the names that Azure gives them: it passes over others, or refuses them hours later."""
    for file, resource in project.resources():
        body = at(resource.body, "properties")
        if resource.existing or resource.type == "Microsoft.Web/sites/config" or body is None:
            continue
        for node in walk(body):
            if node.type == "object":
                for name in sorted(set(properties(node)) - set(facts.SPELLED.get(resource.type, "").split())):
                    yield f"{file.line(node)}: {resource.type} has no property {name} that was looked up"


@check
def tags(project: Project) -> Iterator[str]:
    """Check that every resource that takes tags has them."""
    for file, resource in project.resources():
        if resource.type in facts.TAGGED and not resource.existing and not at(resource.body, "tags"):
            yield f"{file.line(resource.node)}: {resource.symbol} has no tags"


@check
def diagnostics(project: Project) -> Iterator[str]:
    """Check that every monitored resource has a diagnostic setting."""
    for file, resource in project.resources():
        if resource.type in facts.DIAGNOSED and not resource.existing:
            watched = {
                text_of(at(each.body, "scope")) for each in file.resources.values() if each.type == "Microsoft.Insights/diagnosticSettings"
            }
            if resource.symbol not in watched:
                yield f"{file.line(resource.node)}: {resource.symbol} has no diagnostic setting"


@check
def secrets(project: Project) -> Iterator[str]:
    """No output tells a secret: nothing marked secure, no key, no connection string."""
    for file in project.files.values():
        for name, value in file.outputs.items():
            said = {text_of(node) for node in walk(value) if node.type in ("identifier", "property_identifier")}
            secure = {param.name for param in file.params.values() if param.secure}
            kept = {
                resource.symbol
                for resource in file.resources.values()
                if at(resource.body, "properties.value") and secure & {text_of(node) for node in walk(resource.node)}
            }
            if said & (secure | kept) or any(re.search(r"(?i)connectionstring|sharedkey|primarykey|listkeys", each) for each in said):
                yield f"{file.line(value)}: the output {name} tells a secret"


@check
def roles(project: Project) -> Iterator[str]:
    """Each role is known, given to a principal for one thing of the type it is meant for, under a name that follows from all three."""
    for file, resource in project.resources():
        if resource.type != "Microsoft.Authorization/roleAssignments":
            continue
        where, body = file.line(resource.node), resource.body
        definition = at(body, "properties.roleDefinitionId")
        symbol = [text_of(node) for node in walk(definition) if node.type == "identifier" and is_name(node)][-1:] if definition else []
        role = literal(file.variables.get(symbol[0])) if symbol else None
        if role not in facts.ROLES:
            yield f"{where}: {resource.symbol} gives a role that is not known"
            continue
        name, scope = text_of(at(body, "name")), text_of(at(body, "scope"))
        held = scope.partition("[")[0]
        over = file.resources[held].type if held in file.resources else scope
        if over != facts.ROLES[role][1]:
            yield f"{where}: {facts.ROLES[role][0]} is given for {over or 'a resource group'}"
        if role in facts.BLOB_ROLES and file.path != "modules/host.bicep":
            yield f"{where}: {facts.ROLES[role][0]} is for the host's account alone"
        if not name.startswith("guid(") or symbol[0] not in name or "rincipalId" not in name:
            yield f"{where}: the name of {resource.symbol} must follow from what it is for, whom, and the role"
        if text_of(at(body, "properties.principalType")) != "'ServicePrincipal'":
            yield f"{where}: {resource.symbol} does not say that its principal is no person"
