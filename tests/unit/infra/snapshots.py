"""Snapshots of what infra/ deploys, read as Azure would deploy them.

`make snapshots` has the Bicep compiler evaluate the templates with the parameters of `infra/snapshots/*.bicepparam`. What only Azure knows
stays in its answer as expressions, such as `[reference('...').primaryEndpoints.table]`; this module puts plausible answers there.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.paths import ROOT

from . import kql

INFRA = ROOT / "infra"
FOLDER = INFRA / "snapshots"
NAMES = ("defaults", "mirrored", "private", "everything")
"""The snapshots of main.bicep."""
KEYS = {"adminKey": "a" * 48, "signingKey": "s" * 48}
FIRST = {"firstAdminKey": "a" * 48, "firstSigningKey": "s" * 48}
"""Keys that azd generates."""
CLIENT_ID = "11111111-2222-3333-4444-555555555555"
TOKEN_CLIENT_ID = "66666666-2222-3333-4444-555555555555"
TOKEN_IDENTITY = "id-tocsin-tokens-"
"""The beginning of the name of the identity without roles."""

type Resource = dict[str, Any]


@dataclass(frozen=True)
class Deployment:
    """The resources that a deployment makes; references are answered and conditions decided."""

    resources: tuple[Resource, ...]
    outputs: Mapping[str, Any]

    def of(self, kind: str) -> list[Resource]:
        """The resources of a type."""
        return [each for each in self.resources if each["type"] == kind]

    def one(self, kind: str, name: str = "") -> Resource:
        """The only resource of a type whose name begins so."""
        [found] = [each for each in self.of(kind) if each["name"].startswith(name)]
        return found

    def below(self, resource: Resource, kind: str) -> set[str]:
        """The last names of a resource's children, grandchildren included, of a type."""
        return {each["name"].rpartition("/")[2] for each in self.of(kind) if each["id"].startswith(resource["id"] + "/")}

    def settings(self, app: str = "func-tocsin") -> dict[str, str]:
        """The settings of the app, by default of the one that is not the standby."""
        found = min(each["name"] for each in self.of("Microsoft.Web/sites/config") if each["name"].startswith(app))
        return dict(self.one("Microsoft.Web/sites/config", found)["properties"])


def load(name: str, **secrets: str) -> Deployment:
    """Return what a deployment with these parameters makes. secrets: the keys that it is given."""
    answer = json.loads((FOLDER / f"{name}.snapshot.json").read_text())
    assert answer["diagnostics"] == []
    made = evaluated([each for each in answer["predictedResources"]], secrets)
    return Deployment(tuple(each for each in made if each.pop("condition", True)), evaluated(answer["outputs"], secrets))


RULES = "Microsoft.Insights/scheduledQueryRules"


def alarm_query(deployment: Deployment) -> str:
    """The query of the one rule that checks all alarms; each row that it finds has the name of an `alarm`."""
    return str(deployment.one(RULES)["properties"]["criteria"]["allOf"][0]["query"])


def alarms(deployment: Deployment) -> dict[str, str]:
    """The alarms that the rule checks: name -> query."""
    *first, union, last = kql.parts(alarm_query(deployment), " | ")
    assert union.startswith("union ") and last == "summarize found = count() by alarm"
    found = [" | ".join(first), *kql.united(union.removeprefix("union "))]
    return {query.rpartition(" | extend alarm = ")[2].strip('"'): query for query in found}


def parameters() -> dict[str, str]:
    """The parameters of main.bicep: name -> type, with a question mark where there is a default."""
    declared = re.findall(r"^param (\w+) (\w+)( =)?", (INFRA / "main.bicep").read_text(), re.MULTILINE)
    return {name: kind + ("?" if default else "") for name, kind, default in declared}


# --- Expressions ----------------------------------------------------------------------------------------------------

TOKEN = re.compile(r"'(?:[^']|'')*'|\d+|\w+|[()\[\],.]")
EXPRESSION = re.compile(r"\[[a-zA-Z]\w*\(.*\)[\w.\[\]]*\]", re.DOTALL)


def evaluated(value: Any, secrets: Mapping[str, str]) -> Any:
    """Return a value with the expressions in it answered. Raises `KeyError` or `ValueError` at what is not known here."""
    match value:
        case dict():
            return {name: evaluated(each, secrets) for name, each in value.items()}
        case list():
            return [evaluated(each, secrets) for each in value]
        case str() if EXPRESSION.fullmatch(value):
            return _Expression(value[1:-1], secrets).value()
    return value


class _Expression:
    """Reads one expression. Arguments are evaluated before their function is."""

    def __init__(self, text: str, secrets: Mapping[str, str]) -> None:
        self._tokens = iter(TOKEN.findall(text))
        self._next = next(self._tokens)
        self._known: Mapping[str, Callable[..., Any]] = FUNCTIONS | {"parameters": lambda name: secrets.get(name, "")}

    def _take(self) -> str:
        taken, self._next = self._next, next(self._tokens, "")
        return taken

    def value(self) -> Any:
        """Return the value of what comes next."""
        token = self._take()
        if token[0] == "'":
            found: Any = token[1:-1].replace("''", "'")
        elif token.isdigit():
            found = int(token)
        else:
            found = self._known[token](*self._arguments())
        while self._next in (".", "["):
            found = found[self._take()] if self._take() == "." else self._item(found)
        return found

    def _item(self, of: Any) -> Any:
        item = of[int(self._take())]
        self._take()
        return item

    def _arguments(self) -> Iterator[Any]:
        self._take()
        while self._next != ")":
            yield self.value()
            if self._next == ",":
                self._take()
        self._take()


def _reference(identifier: str, *_: str) -> dict[str, Any]:
    """The properties that Azure returns of a resource that it has created."""
    name = identifier.rpartition("/")[2]
    services = {each: f"https://{name}.{each}.core.windows.net/" for each in ("blob", "queue", "table")}
    return {
        "primaryEndpoints": services,
        "principalId": f"principal of {name}",
        "clientId": TOKEN_CLIENT_ID if name.startswith(TOKEN_IDENTITY) else CLIENT_ID,
        "vaultUri": f"https://{name}.vault.azure.net/",
        "ConnectionString": f"InstrumentationKey=of {name}",
        "defaultHostName": f"{name}.azurewebsites.net",
        "ipAddress": "203.0.113.7",
        "endpoint": f"https://{name}.eventgrid.azure.net/api/events",
        "identity": {"principalId": f"principal of {name}"},
    }


def _resource_id(subscription: str, group: str, kind: str, *names: str) -> str:
    provider, *kinds = kind.split("/")
    path = "/".join(f"{each}/{name}" for each, name in zip(kinds, names, strict=True))
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{provider}/{path}"


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "and": lambda *values: all(values),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "createArray": lambda *values: list(values),
    "empty": lambda value: not value,
    "environment": lambda: {
        "resourceManager": "https://management.azure.com/",
        "suffixes": {"storage": "core.windows.net", "keyvaultDns": ".vault.azure.net"},
    },
    "extensionResourceId": lambda scope, kind, name: f"{scope}/providers/{kind}/{name}",
    "false": lambda: False,
    "filter": lambda values, _: [each for each in values if each],
    "format": lambda text, *values: re.sub(r"\{(\d+)\}", lambda found: str(values[int(found[1])]), text),
    "guid": lambda *parts: f"guid of {', '.join(parts)}",
    "join": lambda values, by: by.join(values),
    "lambda": lambda _, body: body,
    "lambdaVariables": lambda name: name,
    "not": lambda value: not value,
    "or": lambda *values: any(values),
    "reference": _reference,
    "replace": lambda text, old, new: text.replace(old, new),
    "resourceId": _resource_id,
    "true": lambda: True,
    "split": lambda text, by: text.split(by),
    "take": lambda values, count: values[:count],
}
"""The functions that snapshots of today need; the compiler has evaluated the others."""


@cache
def deployed(name: str) -> Deployment:
    """Return what a deployment that brings both keys makes."""
    return load(name, **KEYS)
