"""The `maintenance` part of a fleet's definition, as the API takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from ..checkpoints.settings import DAY, Span
from ..web.fields.error_texts import Shaped
from ..web.fields.types import Duration, Maybe, Strict
from .rule_settings import GuardMode, Strangers

EventType = Literal["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]


def _is_false(value: object) -> bool:
    return not value


def _is_usual_silence(value: object) -> bool:
    return value == 30_000


def _is_guard_of_approvals(value: object) -> bool:
    return value == "approve"


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


class Quorum(Strict):
    """The limit of fault domains that may be down at once."""

    per: Literal["location", "scope", "fleet"] = Field("location", description="Unit within which fault domains are counted.")
    domains_down: int = Field(1, ge=1, le=100, description="Fault domains that may be down at once.")


class MaintenanceRule(Strict):
    """The action for matching events. A field that is left out matches any event."""

    type: Maybe[EventType] = None
    source: Maybe[Literal["Platform", "User"]] = None
    max_seconds: Maybe[Annotated[int, Field(ge=0, le=86_400)]] = Field(
        default=None, description="Matches only impacts of at most this length, in seconds."
    )
    action: Literal["approve", "prepare", "hold", "ignore"]
    early: bool = Field(
        False,
        exclude_if=_is_false,
        description="Only with the action prepare: matching events are prepared for and approved as soon as the domain guard agrees.",
    )

    @model_validator(mode="after")
    def _only_prepared_events_are_early(self) -> Self:
        if self.early and self.action != "prepare":
            raise ValueError(f"early goes with the action prepare only, not with {self.action}")
        return self


MAX_UNANSWERED = 8
"""Probes of one agent that may be under way at a time."""


def _probe_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and "@" not in parts.netloc and not parts.fragment
    except ValueError:
        valid = False
    if not valid or any(not "!" <= letter <= "~" for letter in url):
        raise ValueError("expected an http or https address without user and fragment, like https://db.example/ping")
    return url


class ProbeBound(Strict):
    """The limits of what callers may notice of maintenance. A bound that is left out is not checked."""

    p99_ms: Maybe[Annotated[int, Field(ge=1, le=60_000)]] = Field(
        default=None, description="Largest p99 of the answers' latency, in milliseconds."
    )
    failures: Maybe[Annotated[float, Field(ge=0, le=1)]] = Field(default=None, description="Largest share of probes that may fail.")


class CallerProbe(Strict):
    """A request that agents make as a caller does, before and during maintenance. Either `url` or `command`."""

    url: Maybe[Annotated[str, StringConstraints(min_length=1, max_length=500), AfterValidator(_probe_url)]] = Field(
        default=None, description="Address for a GET. The files of the nodes must allow its host in `probe.hosts`."
    )
    command: Maybe[
        Annotated[
            str,
            StringConstraints(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$"),
            Shaped("a name: 1 to 64 of letters, digits and inner . _ -"),
        ]
    ] = Field(default=None, description="Name of a command in `probe.commands` of the nodes' files. The command itself is set there only.")
    every: Annotated[Duration, Field(ge=200, le=60_000, description="Time from the start of one probe to the start of the next.")] = 1_000
    timeout: Annotated[Duration, Field(ge=100, le=60_000, description="A probe without an answer for this time has failed.")] = 5_000
    bound: Maybe[ProbeBound] = Field(default=None, description="A rehearsal in which a bound is passed has failed.")

    @model_validator(mode="after")
    def _is_one_kind_and_bounded(self) -> Self:
        if (self.url is None) == (self.command is None):
            raise ValueError("set either url or command")
        if self.timeout > MAX_UNANSWERED * self.every:
            raise ValueError(f"timeout is more than {MAX_UNANSWERED} times every; use a shorter timeout, or a longer every")
        return self


class FleetMaintenance(Strict):
    """Settings for Azure's Scheduled Events."""

    lead: Span = Field(30_000, description="Time before NotBefore at which a node prepares.")
    leads: dict[EventType, Span] = Field(default_factory=dict, description="Lead times by type of event. They override `lead`.")
    require_central: bool = Field(
        False, description="A node that cannot reach Tocsin does not approve an event by itself after preparing for it."
    )
    transport: Literal["relay", "arm"] = Field(
        "relay", description="Path of approvals to Azure: relay (a node's agent) or arm (Azure Resource Manager)."
    )
    catch_up: Span = Field(
        600_000, description="Time for which a restored node counts as down, unless it reports earlier that it has caught up."
    )
    quorum: Quorum = Field(default_factory=Quorum)
    guard: GuardMode = Field(
        "approve",
        exclude_if=_is_guard_of_approvals,
        json_schema_extra=_without_default,
        description="Decisions of the domain guard: approve (approvals only) or prepare (also which nodes may prepare). "
        "A new fleet has prepare unless it names approve; a change that leaves it out keeps the stored value. Not shown: approve.",
    )
    silence: Annotated[Duration, Field(ge=15_000, le=DAY)] = Field(
        30_000,
        exclude_if=_is_usual_silence,
        description="Silence of an agent after which its node does not delay the approval of a user's event.",
    )
    strangers: Strangers = Field(
        "hold",
        description="Treatment of an event that also names a VM without an agent in any fleet of the tenant: hold (until NotBefore) or "
        "ignore (approve once all known nodes are ready).",
    )
    early: bool = Field(False, exclude_if=_is_false, description="Events are approved before their time, one fault domain after the other.")
    rules: list[MaintenanceRule] = Field(default_factory=list, max_length=50)
    probe: Maybe[CallerProbe] = Field(default=None, description="Measures callers' latency before and during maintenance.")

    def with_guard(self, usual: GuardMode) -> FleetMaintenance:
        """Return these settings, with this guard if none was named."""
        return self if "guard" in self.model_fields_set else self.model_copy(update={"guard": usual})


PART: Final = "maintenance"
"""The part of a fleet's stored definition that holds these settings."""


def stored_settings(rest: Mapping[str, Any]) -> FleetMaintenance:
    """Return the settings from the parts of a stored definition. Fields that a later version has added are passed over."""
    return FleetMaintenance.model_validate(rest.get(PART, {}), extra="ignore")
