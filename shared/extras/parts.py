"""The parts that the service is built with, in the order of their routes. Emulator and predictions are commands, and no parts.

Each process imports this list when it starts, so a part imports its own modules only when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, SecretStr

from ..app.parts import MakeSender, Part, PartHost, PartTimer
from ..app.routes import RouteTable
from ..core.errors import UnsafeSettings
from ..core.settings import PartSettings, Settings, env_name

if TYPE_CHECKING:
    from ..app.timers import Job
    from ..delivery.channels import Sender
    from ..scheduler.keys import RowBesideId
    from ..web.routes import Routes
    from .bigben.routes import BigBenServices
    from .kafka_source.ingest import KafkaIngest
    from .kafka_source.sources import KafkaSource
    from .verification.watch import TraceWatch

# BigBen's API: routes, a service, and the rows that count the uses of an id.


class BigBenSettings(PartSettings):
    """Settings that the environment gives to BigBen's API."""

    bigben_open: bool = Field(
        False, description="Serve `/api/bigben` on loopback without a key, as BigBen did. For the emulator only: refused otherwise."
    )

    def check(self, app: Settings) -> None:
        """See `PartSettings`."""
        if self.bigben_open and not app.emulated:
            raise UnsafeSettings("TOCSIN_BIGBEN_OPEN accepts every caller that reaches the app; it is for the emulator only")


def _bigben_routes(routes: Routes[Any]) -> None:
    from .bigben.routes import bigben, operators, probes

    routes.add(bigben, lambda app: app.part("bigben"))
    routes.add(operators, lambda app: app.part("bigben"))
    routes.add(probes, lambda app: None)


def _bigben(app: PartHost) -> BigBenServices:
    from .bigben.crons import Crons
    from .bigben.processors import Processors
    from .bigben.routes import BigBenServices
    from .bigben.service import BigBen

    is_open = app.settings.of(BigBenSettings).bigben_open
    events, crons = BigBen(app.scheduler, app.storage.tables), Crons(app.scheduler.recurring)
    return BigBenServices(events, crons, Processors(app.directory), app.directory, is_open, app.instance)


def _uses_beside(tenant: str, event_id: str) -> tuple[RowBesideId, ...]:
    from .bigben.uses import row_of_uses

    return row_of_uses(tenant, event_id)


BIGBEN: Final = Part(name="bigben", settings=BigBenSettings, routes={"bigben": _bigben_routes}, beside_ids=_uses_beside, service=_bigben)

# Kafka: topics as a source of events, and the sender of the channel type `kafka`.


class KafkaSettings(PartSettings):
    """Settings that the environment gives to Kafka sources."""

    kafka_sources: SecretStr = Field(
        SecretStr(""),
        description="Kafka topics whose messages become events, each with its tenant: a JSON array, see docs/how-to/kafka.md.",
    )
    kafka_poll_seconds: float = Field(
        25.0, ge=0.5, le=50, description="Time for which a tick of `ingest_kafka` (every 30 s) reads messages."
    )


KAFKA_SOURCES: Final = env_name("kafka_sources", KafkaSettings)
KAFKA_TIMER: Final = "ingest_kafka"
"""The function works most of the time, and is billed for it: it is deployed only where there are sources."""


def _sources_of(settings: Settings) -> tuple[KafkaSource, ...]:
    given = settings.of(KafkaSettings).kafka_sources.get_secret_value()
    if not given:
        return ()
    from .kafka_source.sources import read_sources

    return read_sources(given, emulated=settings.emulated)


def _kafka(app: PartHost) -> KafkaIngest:
    from .kafka_source.ingest import KafkaIngest, consumer_opener

    settings = app.settings
    seconds = settings.of(KafkaSettings).kafka_poll_seconds
    return KafkaIngest(_sources_of(settings), app.scheduler.intake, app.clock, seconds, consumer_opener(settings.client_id))


def _kafka_work(app: PartHost) -> Sequence[tuple[str, Job]]:
    return (("kafka", lambda now: app.part("kafka").run_once(now)),)


def _kafka_sender(settings: Settings) -> Sender:
    from ..delivery.channels.kafka import KafkaSender

    return KafkaSender(settings)


KAFKA: Final = Part(
    name="kafka",
    settings=KafkaSettings,
    senders={"kafka": _kafka_sender},
    timers={KAFKA_TIMER: PartTimer("0,30 * * * * *", 30.0, KAFKA_SOURCES, lambda settings: bool(_sources_of(settings)), _kafka_work)},
    service=_kafka,
)

# The verification of the protocol trace: it reads the lines of its process while it runs.


def _trace_watch(monotonic: Callable[[], float]) -> TraceWatch:
    from .verification.watch import TraceWatch

    return TraceWatch(monotonic)


VERIFICATION: Final = Part(name="verification", trace=_trace_watch)

PARTS: Final[tuple[Part, ...]] = (BIGBEN, KAFKA, VERIFICATION)
SETTINGS: Final[tuple[type[Settings | PartSettings], ...]] = (Settings, *(part.settings for part in PARTS if part.settings is not None))
SENDERS: Final[Mapping[str, MakeSender]] = {name: make for part in PARTS for name, make in part.senders.items()}

_TABLE: Final = RouteTable(PARTS)
build_routes, index_routes, find_route = _TABLE.build, _TABLE.index, _TABLE.find
