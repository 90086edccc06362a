"""Reads the agent's configuration file, TOML or YAML. A wrong file is refused with all of its errors.

Keys in seconds end in `_seconds`. The file holds no secret: `app.key_file` names the file with the app's key, or TOCSIN_KEY holds it.
docs/reference/agent.md explains each setting.
"""

from __future__ import annotations

import os
import re
import tomllib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from ....core.errors import TocsinError
from ....core.http_exchange import HttpProxy, root_of
from ..caller_probe import ProbeConsent
from ..hooks.recipes import RECIPES
from ..hooks.runner import Hook
from ..imds.client import API_VERSION, BASE
from ..imds.identity import NodeSettings
from ..model import EVENT_TYPES, HookKind
from ..policy import Action, ActionRule, EventSource
from ..sections import Section
from ..timings import DEFAULT_DEADLINE, LEAD
from .file_trust import find_readable_key, find_untrusted, find_untrusted_hook, find_untrusted_state
from .settings import AgentSettings

KINDS: Final[tuple[HookKind, ...]] = ("prepare", "emergency", "restore", "verify", "caught_up")
VERSIONS: Final = ("2020-07-01", "2019-08-01", "2019-04-01", "2019-01-01", "2017-11-01", "2017-08-01")
STATE: Final = "/var/lib/tocsin-agent"
HEALTH: Final = "127.0.0.1:9478"
HOUR, DAY = 3600, 86_400
_LARGEST = 1024 * 1024
_KEY = re.compile(r"[A-Za-z0-9._~+/-]{8,200}=*")
_NODE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_FLEET = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_PORT = re.compile(r"[0-9]{1,5}")
_MODULE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class BadConfig(TocsinError):
    """The file cannot be used. faults: all errors, each with its place; they contain no secret."""

    def __init__(self, path: Path, faults: list[str]) -> None:
        super().__init__(f"{path}: " + "; ".join(faults))
        self.path, self.faults = path, faults


@dataclass(frozen=True, slots=True)
class AppSettings:
    """The app that gets the reports. tenant: only for an admin key. proxy: the way to it; None for none."""

    url: str
    fleet: str
    key: str = field(repr=False)
    tenant: str = ""
    proxy: HttpProxy | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The whole file. settings.vm is empty if IMDS supplies it. poll: seconds between polls. health: address of the endpoint; None for
    none. probe: what the fleet may probe from this node."""

    state: Path
    node: NodeSettings
    settings: AgentSettings
    hooks: Mapping[HookKind, Hook]
    imds: str
    api_version: str
    poll: float
    app: AppSettings | None
    health: tuple[str, int] | None
    probe: ProbeConsent = field(default_factory=ProbeConsent)


def load(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """Read the configuration. environment: by default that of the process. Raises `BadConfig` with all errors."""
    table = parse(path)
    found = find_untrusted(path)
    wrong = [found] if found else []
    config = _read(Section(table, "", wrong), wrong, os.environ if environment is None else environment, path.parent)
    if wrong:
        raise BadConfig(path, wrong)
    return config


def parse(path: Path) -> dict[str, Any]:
    """Parse the file: YAML if its name ends in .yaml or .yml, else TOML. Raises `BadConfig` with line and column."""
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
        text = raw.decode()
    except OSError as error:
        raise BadConfig(path, [f"cannot be read: {error.strerror}; give the path of a file that the agent's user may read"]) from None
    except UnicodeDecodeError as error:
        raise BadConfig(path, [f"byte {error.start}: not UTF-8; save it as UTF-8"]) from None
    if len(raw) > _LARGEST:
        raise BadConfig(path, ["larger than 1 MiB; expected a configuration file"])
    table = _yaml(path, text) if path.suffix in (".yaml", ".yml") else _toml(path, text)
    if table is None:
        # A YAML file of comments alone.
        return {}
    if not isinstance(table, dict):
        raise BadConfig(path, ["expected a table of settings, with lines like `imds:`"])
    return table


def _toml(path: Path, text: str) -> Any:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadConfig(path, [f"not TOML: {_unreadable(error)}"]) from None


def _unreadable(error: Exception) -> str:
    """Describe an invalid value, such as a date that does not exist. Python's own text for numbers of thousands of digits does not help
    users."""
    if isinstance(error, RecursionError):
        return "nested too deep"
    return "a number has too many digits" if "set_int_max_str_digits" in str(error) else str(error)


def _yaml(path: Path, text: str) -> Any:
    # Imported here, because a TOML file does not need it.
    try:
        import yaml
    except ImportError:
        raise BadConfig(path, ["YAML needs the package PyYAML: install it, or write TOML"]) from None

    class Loader(yaml.SafeLoader):
        """Refuses duplicate keys, which YAML forbids but its loader accepts."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                name = str(key.value)
                if name in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"duplicate key {name}", key.start_mark)
                seen.add(name)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise BadConfig(path, [f"{where}not YAML: {error.problem}"]) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadConfig(path, [f"not YAML: {_unreadable(error)}"]) from None


def _read(top: Section, wrong: list[str], environment: Mapping[str, str], folder: Path) -> Config:
    state = Path(top.text("state", STATE))
    if not state.is_absolute():
        top.add_fault("state", f"{str(state)!r} is not an absolute path; write one like {STATE}")
    elif found := find_untrusted_state(state):
        top.add_fault("state", found)
    node = _node(top.section("node"))
    imds = top.section("imds")
    url = _root(imds, "url", BASE)
    version = imds.text("api_version", API_VERSION, among=VERSIONS)
    poll = imds.number("poll_seconds", 1, 0.25, 60)
    stale = imds.number("stale_seconds", 60, 5, HOUR)
    imds.close()
    app, require_central, patience = _app(top, environment, folder)
    hooks = _hooks(top, folder)
    settings = _settings(top, node.vm, hooks)
    fleet = app.fleet if app is not None else ""
    settings = replace(settings, central=app is not None, fleet=fleet, require_central=require_central, patience=patience, stale=stale)
    health = _health(top.section("health"))
    probe = _probe(top.section("probe"))
    top.close()
    return Config(state, node, settings, hooks, url, version, poll, app, health, probe)


def _node(section: Section) -> NodeSettings:
    name = section.text("name")
    if name and not _NODE.fullmatch(name):
        section.add_fault("name", f"{name!r} is not a node name: 1 to 64 letters, digits and inner . _ -")
    node = NodeSettings(name, *(section.text(key) for key in ("vm", "scope", "location", "fault_domain")))
    section.close()
    return node


def _root(section: Section, key: str, default: str) -> str:
    url = section.text(key, default)
    try:
        return root_of(url)
    except ValueError as error:
        section.add_fault(key, str(error))
        return default


def _app(top: Section, environment: Mapping[str, str], folder: Path) -> tuple[AppSettings | None, bool, float]:
    defaults = AgentSettings("")
    if not top.has("app"):
        return None, False, defaults.patience
    section = top.section("app")
    url = _root(section, "url", "https://app.invalid")
    if not section.has("url"):
        section.add_fault("url", "missing; set the app's address, such as https://app.example, or remove the whole table `app`")
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        section.add_fault("url", "the key would be sent without encryption; use https://")
    fleet = section.text("fleet")
    if not _FLEET.fullmatch(fleet):
        section.add_fault("fleet", "expected the fleet's name: 1 to 40 of a-z, 0-9 and inner hyphens")
    if section.has("key"):
        section.add_fault("key", "the key must not be in this file; set key_file or TOCSIN_KEY")
    key = _key(section, environment, folder)
    settings = AppSettings(url, fleet, key, section.text("tenant"), _proxy(section, url, environment))
    require_central = section.flag("require_central", False)
    patience = section.number("patience_seconds", defaults.patience, 0, HOUR)
    section.close()
    return settings, require_central, patience


def _proxy(section: Section, url: str, environment: Mapping[str, str]) -> HttpProxy | None:
    """Return the proxy through which the app is reached: HTTPS_PROXY, unless NO_PROXY has the app's host. In lower case they go first."""
    found = environment.get("https_proxy", environment.get("HTTPS_PROXY", ""))
    excepted = environment.get("no_proxy", environment.get("NO_PROXY", ""))
    parts = urlsplit(url)
    if not found or parts.scheme != "https" or any(_covers(name, parts.netloc.lower()) for name in excepted.lower().split(",")):
        return None
    try:
        where = urlsplit(found if "://" in found else f"http://{found}")
        port = where.port if where.port is not None else 80
    except ValueError:
        where, port = urlsplit(""), 0
    if where.scheme != "http" or not where.hostname or port == 0 or where.path not in ("", "/") or where.query or where.fragment:
        # Without its value, which may hold a password.
        section.add_fault("url", "HTTPS_PROXY is not the address of a proxy, such as http://proxy.example:3128")
        return None
    user = f"{unquote(where.username or '')}:{unquote(where.password or '')}".encode()
    return HttpProxy(where.hostname, port, f"Basic {b64encode(user).decode()}" if where.username is not None else "")


def _covers(name: str, host: str) -> bool:
    """Return true if a name of NO_PROXY stands for a host: itself, a domain that it is in, or `*`. A port counts if it has one."""
    name = name.strip().lstrip(".")
    bare = host if ":" in name else host.partition(":")[0]
    return name == "*" or (name != "" and (bare == name or bare.endswith(f".{name}")))


def _key(section: Section, environment: Mapping[str, str], folder: Path) -> str:
    named = section.text("key_file")
    if named:
        path = folder / named
        try:
            if found := find_readable_key(path) or find_untrusted(path):
                section.add_fault("key_file", found)
            key = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not a text"
            section.add_fault("key_file", f"{path} cannot be read: {why}")
            return ""
    else:
        key = environment.get("TOCSIN_KEY", "")
        if not key:
            section.add_fault("key_file", "missing, and TOCSIN_KEY is not set; name a file that holds a key with scope agent")
            return ""
    if not _KEY.fullmatch(key):
        section.add_fault(
            "key_file", f"{'the file' if named else 'TOCSIN_KEY'} holds no valid key: 8 to 200 letters, digits and . _ ~ + / -"
        )
    return key


def _settings(top: Section, vm: str, hooks: Mapping[HookKind, Hook]) -> AgentSettings:
    defaults = AgentSettings(vm)
    section = top.section("maintenance")
    leads = section.section("lead_seconds_by_type")
    by_type = {kind: leads.number(kind, 0, 0, HOUR) for kind in EVENT_TYPES if leads.has(kind)}
    leads.close()
    settings = AgentSettings(
        vm,
        rules=tuple(_rule(rule, top.has("app")) for rule in top.sections("rules")),
        freeze_limit=section.number("freeze_limit_seconds", defaults.freeze_limit, 0, HOUR),
        lead=section.number("lead_seconds", LEAD, 0, HOUR) if section.has("lead_seconds") else None,
        leads=by_type,
        hooks={kind: hook.deadline for kind, hook in hooks.items()},
        approve_failed=section.flag("approve_failed", defaults.approve_failed),
        after_reboot="prepare" if section.text("after_reboot", "keep", among=("keep", "prepare")) == "prepare" else "keep",
        idempotent=section.flag("finish_prepare", defaults.idempotent),
        near=section.number("near_seconds", 0, 0, DAY) if section.has("near_seconds") else None,
        prepare_tries=section.whole("prepare_tries", defaults.prepare_tries, 1, 100),
        post_tries=section.whole("post_tries", defaults.post_tries, 1, 100),
    )
    section.close()
    return settings


def _rule(section: Section, with_app: bool) -> ActionRule:
    if not section.has("action"):
        section.add_fault("action", "missing; use approve, prepare, hold or ignore")
    action = section.text("action", "prepare", among=("approve", "prepare", "hold", "ignore"))
    kind = section.text("type", among=EVENT_TYPES)
    source = section.text("source", among=("Platform", "User"))
    longest = section.whole("max_seconds", 0, 0, DAY) if section.has("max_seconds") else None
    resources = section.texts("resources")
    early = section.flag("early", False)
    if early and action != "prepare":
        section.add_fault("early", 'goes with action = "prepare" only')
    elif early and with_app:
        text = "needs a node without an app; set it in a rule of the fleet's maintenance, which lets one fault domain go after the other"
        section.add_fault("early", text)
    section.close()
    return ActionRule(
        cast(Action, action),
        kind or None,
        cast(EventSource, source) if source else None,
        longest,
        frozenset(resources) if resources else None,
        early,
    )


def _hooks(top: Section, folder: Path) -> dict[HookKind, Hook]:
    hooks: dict[HookKind, Hook] = {}
    if top.has("recipe"):
        section = top.section("recipe")
        name = section.text("name", among=RECIPES)
        if not name and not section.has("name"):
            section.add_fault("name", f"missing; use one of {', '.join(RECIPES)}")
        if name:
            hooks |= RECIPES[name](section)
            for program in dict.fromkeys(hook.program for hook in hooks.values() if hook.program):
                if found := find_untrusted_hook(Hook((program,))):
                    section.add_fault("name", found)
            section.close()
    section = top.section("hooks")
    for kind in KINDS:
        if section.has(kind):
            hooks[kind] = _hook(section.section(kind), folder)
            if found := find_untrusted_hook(hooks[kind]):
                section.add_fault(kind, found)
    section.close()
    if "prepare" in hooks and "restore" not in hooks:
        section.add_fault("restore", "missing, but there is a prepare hook; no hook would put the node back into service")
    return hooks


def _hook(section: Section, folder: Path) -> Hook:
    command, call = section.texts("command"), section.text("call")
    if section.has("command") == section.has("call"):
        section.add_fault("command", 'set either command = ["program", "argument"] or call = "module:function"')
    if call and not _MODULE.fullmatch(call):
        section.add_fault("call", 'expected a text like "module:function"')
    where = section.text("path")
    deadline = section.number("deadline_seconds", DEFAULT_DEADLINE, 0.1, DAY)
    environment = section.pairs("environment")
    section.close()
    return Hook(command, call, str(folder / where) if where else "", deadline, environment)


def _probe(section: Section) -> ProbeConsent:
    hosts = section.texts("hosts")
    for host in hosts:
        if not _HOST.fullmatch(host):
            section.add_fault("hosts", f"{host!r} is not a host like db.example or db.example:8080")
    table = section.section("commands")
    commands: dict[str, tuple[str, ...]] = {}
    names = table.keys()
    for name in names:
        commands[name] = table.texts(name)
        if not _NODE.fullmatch(name):
            table.add_fault(name, "is not a name: 1 to 64 letters, digits and inner . _ -")
        elif commands[name] and (found := find_untrusted_hook(Hook(commands[name]))):
            table.add_fault(name, found)
    table.close()
    section.close()
    return ProbeConsent(frozenset(host.lower() for host in hosts), commands)


def _health(section: Section) -> tuple[str, int] | None:
    if not section.flag("enabled", True):
        section.has("address")
        section.close()
        return None
    address = section.text("address", HEALTH)
    section.close()
    host, _, port = address.rpartition(":")
    if not host or not _PORT.fullmatch(port) or int(port) > 65535:
        section.add_fault("address", f"{address!r} is not like {HEALTH}")
        return None
    return host.strip("[]"), int(port)
