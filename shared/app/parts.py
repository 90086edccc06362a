"""Optional parts of the service, with which an application is built. The application knows no part by name.

`build(settings, ports, parts)` takes parts as values, and `extras/parts.py` lists those of the service. A part can give the application:

    settings     its own settings, from where the application has its own
    routes       HTTP routes, for the route table and for the API's description
    senders      channel types that it delivers to
    timers       jobs with a timer function of their own
    beside_ids   rows beside the rows of ids, which the scheduler copies and removes with them
    trace        a reader of the lines of the protocol trace
    service      the object behind its routes and jobs, made when it is first used
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..scheduler.keys import BesideId, RowBesideId, nothing_beside

if TYPE_CHECKING:
    from ..core.clock import Clock
    from ..core.settings import PartSettings, Settings
    from ..delivery.channels import Sender
    from ..scheduler.service import Scheduler
    from ..storage import Storage
    from ..tenants.store import TenantDirectory
    from ..web.routes import Routes
    from .timers import Job

type AddRoutes = Callable[[Routes[Any]], None]
"""Imports some handlers, and adds their routes to the table."""
type MakeSender = Callable[[Settings], Sender]
"""Imports and makes a sender."""


class PartHost(Protocol):
    """An application, as its parts see it. `storage`: the account that it works on. `instance`: the name of this process, or ''."""

    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def storage(self) -> Storage: ...
    @property
    def directory(self) -> TenantDirectory: ...
    @property
    def scheduler(self) -> Scheduler: ...
    @property
    def instance(self) -> str: ...

    def part(self, name: str) -> Any:
        """Return the service of a part."""


class PartService:
    """The service of a part in one application."""

    def leave(self) -> None:
        """Start nothing new, because the process is about to end."""

    async def close(self) -> None:
        """Release connections."""


class PartTimer(NamedTuple):
    """A job with a timer function of its own.

    schedule: NCRONTAB expression, seconds first, UTC. period: seconds between two runs. setting: the variable without which the function is
    not deployed. runs: returns True if the settings of an application give the job work; raises `UnsafeSettings`. work: returns the named
    parts of the job.
    """

    schedule: str
    period: float
    setting: str
    runs: Callable[[Settings], bool]
    work: Callable[[PartHost], Sequence[tuple[str, Job]]]


class TraceReader(Protocol):
    """Reads the protocol trace of a process while it is written."""

    @property
    def counters(self) -> Mapping[str, int]:
        """Figures for the metrics."""

    def take(self, text: str) -> None:
        """Read a line as it is logged (`storage.transition_trace`). Does not raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part. `name` is unique among the parts of an application; the docstring of the module explains the other fields."""

    name: str
    settings: type[PartSettings] | None = None
    routes: Mapping[str, AddRoutes] = field(default_factory=dict)
    """The groups of routes that a process imports one by one, by name."""
    senders: Mapping[str, MakeSender] = field(default_factory=dict)
    """The makers of senders, by channel type."""
    timers: Mapping[str, PartTimer] = field(default_factory=dict)
    """The timers, by the name that the function and its job share."""
    beside_ids: BesideId = nothing_beside
    trace: Callable[[Callable[[], float]], TraceReader] | None = None
    """Makes the reader, from the monotonic clock."""
    service: Callable[[PartHost], PartService] | None = None


def check_settings(parts: Sequence[Part], settings: Settings) -> None:
    """Read the settings of all parts. Raises `UnsafeSettings` for a wrong value."""
    for part in parts:
        if part.settings is not None:
            settings.of(part.settings)


def schedules_of(parts: Sequence[Part], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the schedules of the timer functions whose setting is given, by their names.

    The settings are not parsed: a wrong value must not prevent the host from finding the other functions.
    """
    timers = (each for part in parts for each in part.timers.items())
    return {name: timer.schedule for name, timer in timers if environment.get(timer.setting, "").strip()}


def rows_beside(parts: Sequence[Part]) -> BesideId:
    """Return the function that names the rows of all parts beside an id."""

    def beside(tenant: str, event_id: str) -> list[RowBesideId]:
        return [row for part in parts for row in part.beside_ids(tenant, event_id)]

    return beside
