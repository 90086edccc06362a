"""Summarizes a configuration file and lists doubtful settings, for `tocsin agent --check`."""

from __future__ import annotations

import os
import shutil
from typing import Any

from ..policy import ActionRule
from ..timings import DEFAULT_DEADLINE
from .config import AppSettings, Config
from .file_trust import find_writable_search_path


def summary(config: Config) -> dict[str, Any]:
    """Return the configuration as short texts, without the key."""
    settings = config.settings
    app = config.app
    rules = [_rule(_action(rule), rule.type, rule.source, rule.max_seconds, rule.resources) for rule in settings.rules]
    fleets = ["rules of the fleet: the stricter of two counts"] if app else []
    return {
        "mode": f"reports to fleet {app.fleet} at {app.url}{_through(app)}" if app else "alone, without an app",
        "metadata service": f"{config.imds}, every {config.poll:g} s",
        "node": config.node.name or config.node.vm or "as the metadata service names it",
        "state": str(config.state),
        "health": f"http://{config.health[0]}:{config.health[1]}" if config.health else "off",
        "prepares": f"{_lead(config)} before NotBefore" + "".join(f", {kind} {lead:g} s" for kind, lead in settings.leads.items()),
        "rules": [*rules, *fleets, "events of users, except Preempt and Terminate: approve", "no impact: approve", "else: prepare"],
        "hooks": [f"{kind}: {' '.join(hook.command) or hook.call} ({hook.deadline:g} s)" for kind, hook in config.hooks.items()],
    }


def list_doubts(config: Config) -> list[str]:
    """Return warnings about settings that are allowed but may be mistakes."""
    found: list[str] = []
    if "prepare" not in config.hooks:
        found.append("there is no prepare hook: events that need preparation are approved at their time, and nothing is prepared")
    if "restore" in config.hooks and "verify" not in config.hooks:
        found.append("there is no verify hook: the node counts as back once restore has ended")
    for kind, hook in config.hooks.items():
        if hook.command and shutil.which(hook.command[0]) is None:
            found.append(f"hooks.{kind}: {hook.command[0]} is not a program that can be run here")
        if folder := find_writable_search_path(hook):
            text = f"other users can write to {folder}, which PATH names before the program's folder; write the program's whole path"
            found.append(f"hooks.{kind}: {text}")
    prepare, leads = config.hooks.get("prepare"), [config.settings.lead_of(""), *config.settings.leads.values()]
    if prepare is not None and prepare.deadline > max(leads) and prepare.deadline != DEFAULT_DEADLINE:
        text = f"prepare may take {prepare.deadline:g} s, and begins {max(leads):g} s before NotBefore: the impact may come first"
        found.append(text)
    parent = next((folder for folder in (config.state, *config.state.parents) if folder.exists()), config.state)
    if not os.access(parent, os.W_OK):
        found.append(f"state: {parent} cannot be written to by this user")
    return found


def _through(app: AppSettings) -> str:
    return f" through the proxy {app.proxy.host}:{app.proxy.port}" if app.proxy is not None else ""


def _lead(config: Config) -> str:
    """Describe the lead time: from the file, else from the fleet."""
    shown = f"{config.settings.lead_of(''):g} s"
    return f"as the fleet says, else {shown}" if config.app is not None and config.settings.lead is None else shown


def _action(rule: ActionRule) -> str:
    return f"{rule.action} at once" if rule.early else rule.action


def _rule(action: str, *wanted: object) -> str:
    kind, source, seconds, resources = wanted
    parts = [
        str(kind) if kind else "",
        f"from {source}" if source else "",
        f"of at most {seconds} s" if seconds is not None else "",
        f"on {', '.join(sorted(resources))}" if isinstance(resources, frozenset) else "",
    ]
    return f"{' '.join(part for part in parts if part) or 'any'}: {action}"
