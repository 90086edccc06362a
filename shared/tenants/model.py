"""Models of bodies and answers: tenants, keys and channels. Unknown fields are refused."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from ..core.clock import Millis
from ..delivery.entra.grants import MOST_AUDIENCES, EntraAudience
from ..delivery.notices import KINDS, NoticeKind
from ..web.fields.error_texts import Shaped
from ..web.fields.types import Duration, Maybe, Name, NodeName, Note, Stamp, Strict, Time

Durability = Literal["fast", "standard", "mirrored"]
"""The place where an event is stored before it is acknowledged: the ingest queue, the table, or the tables of two accounts."""

Scope = Literal["events", "fleets", "agent", "read", "metrics", "admin"]


DAY: Millis = 86_400_000
HOUR: Millis = 3_600_000
# The defaults of the retry policy. `scheduler.shard.retries` computes the next attempt, and `delivery.channels.rules.judge` says which
# answers are retried.
DEFAULT_PAUSES: tuple[Millis, ...] = (5_000, 300_000, 1_800_000, *(hours * HOUR for hours in (2, 5, 10, 14, 20, 24)))
"""Pauses for a tenant that sets none, from the Standard Webhooks specification. With the most jitter they add up to 3 d 19 h."""
DEFAULT_WITHIN: Millis = 4 * DAY
DEFAULT_ATTEMPTS, DEFAULT_FIRST, DEFAULT_MAX = 8, 5_000, HOUR
"""Defaults for the fields that an exponential retry policy leaves out."""

Pauses = Annotated[list[Annotated[Duration, Field(ge=1, le=7 * DAY)]], Field(min_length=1, max_length=99)]


class Retry(Strict):
    """The retries of failed deliveries: a list of pauses, or exponential pauses with full jitter; the default is a list of pauses."""

    attempts: Maybe[Annotated[int, Field(ge=1, le=100)]] = Field(None, description="Attempts in all, the first included.")
    first: Maybe[Annotated[Duration, Field(ge=1, le=DAY)]] = Field(
        None, description="Longest pause before attempt 2; it doubles with each attempt."
    )
    max: Maybe[Annotated[Duration, Field(ge=1, le=7 * DAY)]] = Field(None, description="Longest pause between attempts.")
    within: Maybe[Annotated[Duration, Field(ge=1, le=7 * DAY)]] = Field(
        None, description="Time after the due time in which attempts may start; by default P4D."
    )
    schedule: Maybe[Pauses] = Field(
        None,
        description="The pauses between attempts, each counted from the end of the attempt before: n pauses are n + 1 attempts. Each may"
        " last up to 20 % longer, never shorter. Excludes attempts, first and max.",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        refuse_two_kinds(self)
        return self

    def filled(self) -> Retry:
        """Return the policy with the rest of an exponential one filled in, if it names a part; otherwise as it is."""
        if self.attempts is None and self.first is None and self.max is None:
            return self
        rest = {"attempts": DEFAULT_ATTEMPTS, "first": DEFAULT_FIRST, "max": DEFAULT_MAX, "within": DEFAULT_WITHIN}
        return self.model_copy(update={name: value for name, value in rest.items() if getattr(self, name) is None})


class RetryFields(Protocol):
    """The fields of a retry policy that exclude each other."""

    attempts: int | None
    first: Millis | None
    max: Millis | None
    schedule: list[Millis] | None


def refuse_two_kinds(retry: RetryFields) -> None:
    """Raise ValueError if `schedule` is set together with `attempts`, `first` or `max`."""
    figures = [name for name in ("attempts", "first", "max") if getattr(retry, name) is not None]
    if retry.schedule is not None and figures:
        raise ValueError(f"names schedule together with {' and '.join(figures)}; give either schedule, or attempts, first and max")


MOST_SCHEDULES = 10_000
"""Most recurring schedules of a tenant without its own limit."""


MOST_PARTITIONS = 20_000
"""Most partitions of all fleets of a tenant without its own limit."""


MOST_FLEETS = 100
"""Most fleets of a tenant without its own limit."""
MOST_AGENTS = 1000
"""Most nodes of a fleet with an agent, for a tenant without its own limit."""
MOST_SERVERS = 1000
"""Most servers of a fleet over HTTP, for a tenant without its own limit."""


MOST_LOCKS = 10_000
"""Most locks of a tenant without its own limit."""


class Limits(Strict):
    """The limits of a tenant. Null: only the limits of the product apply."""

    events_per_second: float | None = Field(None, gt=0, le=1_000_000)
    open_events: int | None = Field(None, ge=0)
    schedules: Maybe[Annotated[int, Field(ge=0, le=1_000_000)]] = Field(
        None, description=f"Most recurring schedules; by default {MOST_SCHEDULES:,}."
    )
    partitions: Maybe[Annotated[int, Field(ge=0, le=1_000_000)]] = Field(
        None, description=f"Most partitions of all its fleets together; by default {MOST_PARTITIONS:,}."
    )
    # A sweep visits 2,000 fleets in a tick, and a storage partition answers with 2,000 rows a second.
    fleets: Maybe[Annotated[int, Field(ge=0, le=1000)]] = Field(None, description=f"Most fleets; by default {MOST_FLEETS:,}.")
    agents: Maybe[Annotated[int, Field(ge=0, le=2000)]] = Field(
        None, description=f"Most nodes of a fleet with an agent; by default {MOST_AGENTS:,}."
    )
    servers: Maybe[Annotated[int, Field(ge=0, le=2000)]] = Field(
        None, description=f"Most servers of a fleet over HTTP; by default {MOST_SERVERS:,}."
    )
    locks: Maybe[Annotated[int, Field(ge=0, le=100_000)]] = Field(None, description=f"Most locks; by default {MOST_LOCKS:,}.")
    payload_bytes: int | None = Field(None, ge=1, le=262_144)
    deliveries_per_second: float | None = Field(None, gt=0, le=1_000_000)
    concurrency: int | None = Field(None, ge=1, le=10_000)


async def no_limits(tenant: str) -> Limits:
    """Return no limits of a tenant's own, so that the defaults apply."""
    return Limits()


LabelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$"), Shaped("a label's name of 1 to 64 of A-Z a-z 0-9 _ . -")]
MOST_SEARCHABLE = 8
"""Labels by which a tenant can search."""


class NoticeSettings(Strict):
    """The kinds of which a tenant is told, and the channel that gets its notices."""

    channel: Name = Field(
        description="It must exist, unless the call creates the tenant. Of itself it gets no notices about its breaker or its pause."
    )
    kinds: list[NoticeKind] = Field(min_length=1, max_length=len(KINDS))

    @field_validator("kinds")
    @classmethod
    def _each_once(cls, kinds: list[NoticeKind]) -> list[NoticeKind]:
        if len(set(kinds)) != len(kinds):
            raise ValueError("names a kind twice; name each once")
        return sorted(kinds)


def _is_empty(values: object) -> bool:
    return not values


class Tenant(Strict):
    """A tenant's settings, as sent with PUT."""

    durability: Durability | None = Field(
        None, description="Durability of events that name none, and the least durability; null: standard."
    )
    retry: Retry = Field(default_factory=Retry)
    expires: Maybe[Annotated[Duration, Field(ge=1000)]] = Field(
        None,
        description="`expires` of new events that leave it out, counted from the end of their flexible window. Not for occurrences of "
        "schedules, callbacks, and other events that the service makes.",
    )
    limits: Limits = Field(default_factory=Limits)
    searchable: list[LabelName] = Field(
        default_factory=list,
        max_length=MOST_SEARCHABLE,
        description="Names of the labels by which events are listed without a look at every event.",
    )

    notices: Maybe[NoticeSettings] = Field(None, description="Notices to the tenant about its events, channels, schedules and keys.")

    entra_audiences: list[EntraAudience] = Field(
        default_factory=list,
        max_length=MOST_AUDIENCES,
        description="The audiences of Entra for which its channels may carry tokens, and the hosts that may get them.",
        exclude_if=_is_empty,
    )

    @field_validator("searchable")
    @classmethod
    def _distinct(cls, names: list[str]) -> list[str]:
        if len(set(names)) != len(names):
            raise ValueError("names a label twice; name each once")
        return sorted(names)


class KeyIn(Strict):
    """A key to create. Scope `agent` needs a fleet and a node, and excludes `fleets` and `admin`."""

    scopes: list[Scope] = Field(
        min_length=1,
        max_length=6,
        examples=[["events"]],
        description="`read`: every GET that `events` or `fleets` permits. `metrics`: GET /metrics alone.",
    )
    fleet: Name | None = None
    node: NodeName | None = None
    note: Note | None = None
    expires: Time | None = Field(None, description="The time at which the key ends. Null: when it is revoked.")

    @model_validator(mode="after")
    def _bound(self) -> Self:
        if len(set(self.scopes)) != len(self.scopes):
            raise ValueError("names a scope twice; name each once")
        if "agent" in self.scopes:
            if self.fleet is None or self.node is None:
                raise ValueError('has the scope agent, which needs fleet and node, such as "fleet": "web", "node": "vm-1"')
            if {"fleets", "admin"} & set(self.scopes):
                raise ValueError("combines the scope agent, which belongs to one node, with fleets or admin; create two keys")
        elif self.fleet is not None or self.node is not None:
            raise ValueError("has fleet or node without the scope agent; remove them or add the scope")
        return self


class KeyOut(Strict):
    """A key in a list, with its prefix only."""

    prefix: str
    scopes: list[Scope]
    fleet: Maybe[str] = None
    node: Maybe[str] = None
    note: Maybe[str] = None
    created: Stamp
    expires: Maybe[Stamp] = None
    last_used: Maybe[str] = Field(
        None, description="The last day (UTC) on which the key was used, such as 2026-11-23.", pattern=r"^\d{4}-\d{2}-\d{2}$"
    )


class OwnKeyOut(Strict):
    """The key of a call."""

    prefix: str = Field(description="`bootstrap` for the admin key of the settings.")
    tenant: Maybe[str] = Field(None, description="Missing for the bootstrap admin key, which has no tenant.")
    scopes: list[Scope]


class KeyMade(KeyOut):
    """A new key. Only this answer shows `key`."""

    key: str = Field(repr=False)


class KeyList(Strict):
    """A page of keys."""

    items: list[KeyOut]
    next: str | None


class TenantOut(Tenant):
    """A tenant as stored."""

    name: str
    uid: str = Field(
        description="Differs from the uid of every other tenant, also of a deleted one with this name: `TOCSIN_CLIENT_CERTIFICATES` and "
        "`TOCSIN_SERVICE_BUS` name a tenant as `name@uid`. Empty in a dry run that would create the tenant."
    )
    created: Stamp


class TenantList(Strict):
    """A page of tenants."""

    items: list[TenantOut]
    next: str | None


class SecretOut(Strict):
    """A new webhook secret; only this answer shows it, and those to the same `id`.

    Until `previous_until`, deliveries are also signed with the previous one.
    """

    secret: str = Field(repr=False)
    previous_until: Maybe[Stamp] = None


RotationId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$"), Shaped("1 to 32 of a-z 0-9 and inner hyphens")]


class RotateIn(Strict):
    """A request for a new secret; repeated with the same id, it makes no second one."""

    id: RotationId | None = Field(
        None,
        description="Names this rotation: the same id again, before another rotation, answers with the same secret instead of a newer one.",
    )


class PauseIn(Strict):
    """The reason of a pause."""

    reason: Note | None = None
