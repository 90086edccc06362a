"""Application settings and host.json, read the way the Functions host reads them."""

import json
import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shared.ops.export.host_log import log_levels

DEVELOPMENT_STORAGE = "UseDevelopmentStorage=true"


class SettingsError(Exception):
    """A settings file or host.json cannot be used; the message names the file and the key."""


@dataclass(frozen=True)
class QueueOptions:
    """host.json `extensions.queues`; the values here are the host's own defaults. Times in seconds."""

    batch_size: int = 16
    new_batch_threshold: int = 8
    max_polling_interval: float = 60.0
    visibility_timeout: float = 0.0
    max_dequeue_count: int = 5
    base64: bool = True


@dataclass(frozen=True)
class HostOptions:
    """The part of host.json that the devhost uses."""

    route_prefix: str = "api"
    queues: QueueOptions = field(default_factory=QueueOptions)
    function_timeout: float | None = 1800.0
    """Seconds that an invocation may take; None: no limit."""
    log_levels: Mapping[str, int] = field(default_factory=dict)
    """Levels from which lines are logged, by category (`host_log.log_levels`)."""


def load_values(folder: Path) -> dict[str, str]:
    """The `Values` of local.settings.json, else of local.settings.sample.json, else nothing."""
    for name in ("local.settings.json", "local.settings.sample.json"):
        path = folder / name
        if not path.exists():
            continue
        document = _read_json(path)
        values = document.get("Values", {})
        if document.get("IsEncrypted"):
            raise SettingsError(f"{path}: encrypted settings are not supported, set IsEncrypted to false")
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise SettingsError(f'{path}: "Values" must be an object of strings')
        return values
    return {}


def apply_values(values: Mapping[str, str], environ: MutableMapping[str, str]) -> None:
    """Adds the values to the environment; what is there already wins."""
    for name, value in values.items():
        environ.setdefault(name, value)


def load_host(folder: Path) -> HostOptions:
    """Reads host.json; a missing file means the host's defaults."""
    path = folder / "host.json"
    if not path.exists():
        return HostOptions(log_levels=log_levels({}, os.environ))
    document = _read_json(path)
    extensions = document.get("extensions", {})
    queues = extensions.get("queues", {})
    base = QueueOptions()
    try:
        batch_size = int(queues.get("batchSize", base.batch_size))
        options = QueueOptions(
            batch_size=batch_size,
            new_batch_threshold=int(queues.get("newBatchThreshold", batch_size // 2)),
            max_polling_interval=time_span(queues.get("maxPollingInterval", "00:01:00")),
            visibility_timeout=time_span(queues.get("visibilityTimeout", "00:00:00")),
            max_dequeue_count=int(queues.get("maxDequeueCount", base.max_dequeue_count)),
            base64=queues.get("messageEncoding", "base64").lower() != "none",
        )
    except ValueError as error:
        raise SettingsError(f"{path}: extensions.queues: {error}") from error
    if not 1 <= options.batch_size <= 32:
        raise SettingsError(f"{path}: extensions.queues.batchSize must be 1 to 32, not {options.batch_size}")
    prefix = extensions.get("http", {}).get("routePrefix", "api")
    timeout = document.get("functionTimeout", "00:30:00")
    try:
        limit = None if timeout == "-1" else time_span(timeout)
    except ValueError as error:
        raise SettingsError(f"{path}: functionTimeout: {error}") from error
    return HostOptions(str(prefix).strip("/"), options, limit, log_levels(document, os.environ))


def time_span(text: str) -> float:
    """Seconds of a .NET TimeSpan `[d.]hh:mm:ss[.fff]`; ValueError for anything else."""
    match = re.fullmatch(r"(?:(\d+)\.)?(\d{1,2}):(\d{1,2}):(\d{1,2}(?:\.\d{1,7})?)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a time of the form hh:mm:ss")
    days, hours, minutes, seconds = match.groups()
    return timedelta(days=int(days or 0), hours=int(hours), minutes=int(minutes), seconds=float(seconds)).total_seconds()


def resolve(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Replaces every `%NAME%` by the setting of that name; SettingsError when there is none."""

    def value(match: re.Match[str]) -> str:
        found = (os.environ if environ is None else environ).get(match[1])
        if found is None:
            raise SettingsError(f"the setting {match[1]!r}, used as {match[0]}, does not exist")
        return found

    return re.sub(r"%([^%]+)%", value, text)


def is_disabled(function: str, environ: Mapping[str, str]) -> bool:
    """Return True if a setting such as `AzureWebJobs.sweep.Disabled` switches the function off."""
    return environ.get(f"AzureWebJobs.{function}.Disabled", "").lower() in ("true", "1")


def connection(name: str, environ: Mapping[str, str] | None = None) -> str:
    """The connection string that a binding's `connection` names; SettingsError when there is none."""
    source = os.environ if environ is None else environ
    name = name or "AzureWebJobsStorage"
    found = source.get(name) or source.get(f"AzureWebJobs{name}")
    if found:
        return found
    if any(key.startswith(f"{name}__") for key in source):
        raise SettingsError(f"the setting {name!r} uses an identity; the devhost needs a connection string")
    raise SettingsError(f"the setting {name!r}, which holds the storage connection, does not exist")


def blob_address(name: str, environ: Mapping[str, str] | None = None) -> tuple[str, int] | None:
    """Return the host and the port of a connection's blob endpoint; None if the connection string names none."""
    found = re.search(r"(?:^|;)BlobEndpoint=([^;]+)", connection(name, environ))
    if found is None:
        return None
    address = urlsplit(found[1])
    return (address.hostname, address.port or (443 if address.scheme == "https" else 80)) if address.hostname else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise SettingsError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise SettingsError(f"{path}: must hold a JSON object")
    return document
