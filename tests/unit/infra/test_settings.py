"""Settings: what the start refuses, who reads the environment, and that the page is up to date."""

from __future__ import annotations

import re
from typing import Any

import pytest
from yarl import URL

from devhost.pages import settings
from shared.app.parts import check_settings
from shared.core.clock import SystemClock
from shared.core.errors import Problem, UnsafeSettings
from shared.core.settings import LOCAL_ADMIN_KEY, LOCAL_SIGNING_KEY, GivenSettings, Settings, env_name
from shared.delivery.channels.http import HttpSender
from shared.delivery.channels.model import HttpChannel
from shared.extras.parts import PARTS, SETTINGS, KafkaSettings
from shared.storage import memory_storage, open_storage
from shared.storage.several.tables import SpreadTables
from shared.tenants.model import Tenant
from shared.tenants.store import TenantDirectory

from . import code_facts
from .snapshots import CLIENT_ID, INFRA, KEYS, deployed

EMULATOR = "UseDevelopmentStorage=true"
SECRET = "c2VjcmV0c2VjcmV0c2VjcmV0"
REAL = f"AccountName=real;AccountKey={SECRET}"
SAFE = {"storage": REAL, "admin_key": "a" * 32, "signing_key": "s" * 32}
HOME = "https://home.table.core.windows.net/"
IDENTITY = {"storage": None, "table_uri": HOME, "queue_uri": "https://home.queue.core.windows.net/"}
REFERENCE = "@Microsoft.KeyVault(SecretUri=https://v.vault.azure.net/secrets/x)"
POSING = f"AccountName=devstoreaccount1;AccountKey={SECRET};TableEndpoint=https://real.table.core.windows.net;QueueEndpoint=https://real.queue.core.windows.net"


CONNECTIONS = {"TocsinStorage", "TocsinMirror", "TOCSIN_ACCOUNTS"}
"""Settings that are secret by their value only: connection strings with an account key."""


def test_every_secret_setting_is_refused_among_the_further_settings_that_deployments_show() -> None:
    listed = re.search(r"^var secretEndings = \[(.*)\]$", (INFRA / "main.bicep").read_text(), re.MULTILINE)
    assert listed is not None
    endings = tuple(re.findall(r"'(\w+)'", listed[1]))
    secret = {
        env_name(name, kind) for kind in SETTINGS for name, field in kind.model_fields.items() if "SecretStr" in str(field.annotation)
    }
    shown = {name for name in secret if not name.upper().endswith(endings)}
    assert shown == CONNECTIONS | {"IDENTITY_HEADER"}, "name its ending in `secretEndings` of infra/main.bicep"
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_LOGS_HEADERS"):
        assert name.endswith(endings)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"storage": None}, "no storage"),
        ({"admin_key": LOCAL_ADMIN_KEY}, "TOCSIN_ADMIN_KEY .*sample"),
        ({"signing_key": LOCAL_SIGNING_KEY}, "TOCSIN_SIGNING_KEY .*sample"),
        ({"signing_key": None}, "TOCSIN_SIGNING_KEY is missing"),
        ({"storage": POSING, "admin_key": LOCAL_ADMIN_KEY}, "public sample value"),
        ({"admin_key": "short"}, "TOCSIN_ADMIN_KEY .*20"),
        ({"signing_key": "s" * 19}, "TOCSIN_SIGNING_KEY .*20"),
        ({"admin_key": "s" * 32}, "are the same"),
        ({"admin_key": REFERENCE}, "TOCSIN_ADMIN_KEY .*reference"),
        ({"signing_key": REFERENCE.upper()}, "TOCSIN_SIGNING_KEY .*reference"),
        ({"kafka_sources": REFERENCE}, "TOCSIN_KAFKA_SOURCES .*reference"),
        ({"accounts": REFERENCE}, "TOCSIN_ACCOUNTS .*reference"),
        ({"storage": EMULATOR, "admin_key": REFERENCE}, "reference to a vault"),
        ({"local": True}, "TOCSIN_LOCAL"),
        ({"bigben_open": True}, "TOCSIN_BIGBEN_OPEN"),
        ({"storage": f"{REAL};DefaultEndpointsProtocol=http"}, "uses http"),
        ({"storage": f"{REAL};TableEndpoint=HTTP://real.example;QueueEndpoint=https://real.example"}, "uses http"),
        ({"mirror": f"AccountName=other;AccountKey={SECRET};DefaultEndpointsProtocol=http"}, "uses http"),
        ({"accounts": f'["AccountName=other;AccountKey={SECRET};TableEndpoint=http://127.0.0.1.example"]'}, "uses http"),
        ({**IDENTITY, "mirror_table_uri": "https://m.table.core.windows.net"}, "go together"),
        ({**IDENTITY, "mirror_queue_uri": "https://m.queue.core.windows.net"}, "go together"),
        ({**IDENTITY, "mirror_table_uri": HOME.rstrip("/"), "mirror_queue_uri": "https://m.queue.core.windows.net"}, "the same account"),
        *(
            ({"egress_allow": f"hook.internal, {entry}"}, "TOCSIN_EGRESS_ALLOW")
            for entry in ("localhost", "a.localhost.", "127.0.0.1", "0.0.0.0/0", "169.254.169.254", "168.63.129.16", "::1", "::/0")
        ),
    ],
)
def test_an_unsafe_combination_is_refused_and_named_without_the_secret(change: dict[str, Any], why: str) -> None:
    with pytest.raises(UnsafeSettings, match=why) as caught:
        check_settings(PARTS, Settings(**{**SAFE, **change}))
    assert SECRET not in str(caught.value) and "ssss" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("TOCSIN_OWNERS", "0", "greater than or equal to 1"),
        ("TOCSIN_OWNERS", SECRET, "valid integer"),
        ("TOCSIN_MIRROR_DETACHED", SECRET, "'yes' or 'stale'"),
        ("TOCSIN_LOCAL", SECRET, "valid boolean"),
        ("TOCSIN_MIRROR_STOP_SECONDS", "nan", "less than or equal to 30"),
        ("TOCSIN_ADMIN_KEY", f"{SECRET}\n", "white space"),
        ("TOCSIN_KAFKA_POLL_SECONDS", "51", "less than or equal to 50"),
        ("TOCSIN_BIGBEN_OPEN", SECRET, "valid boolean"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_name_it_has_in_the_environment_without_the_value(
    name: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting, given in {"TocsinStorage": REAL, "TOCSIN_ADMIN_KEY": "a" * 32, "TOCSIN_SIGNING_KEY": "s" * 32, name: value}.items():
        monkeypatch.setenv(setting, given)
    with pytest.raises(UnsafeSettings) as caught:
        check_settings(PARTS, Settings())
    assert name in str(caught.value) and why in str(caught.value)
    assert SECRET not in str(caught.value) and (caught.value.__context__ is None or caught.value.__suppress_context__)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"table_uri": "https://acct1.table.core.windows.net", "queue_uri": "https://ACCT1.privatelink.queue.core.windows.net"}, {"acct1"}),
        ({"table_uri": "https://acct1.z9.table.storage.azure.net", "queue_uri": "https://acct1.z9.queue.storage.azure.net"}, {"acct1"}),
        ({"accounts": '["acct2", "DefaultEndpointsProtocol=https;AccountName=acct3;AccountKey=a2V5"]'}, {"acct1", "acct2", "acct3"}),
        ({"mirror": "QueueEndpoint=https://acct4.queue.core.windows.net;SharedAccessSignature=sig"}, {"acct1", "acct4"}),
        (
            {"mirror": "TableEndpoint=https://acct4.table.core.windows.net;QueueEndpoint=https://queues.example;SharedAccessSignature=sig"},
            None,
        ),
        ({"mirror": "AccountName=acct4;QueueEndpoint=https://queues.example;SharedAccessSignature=sig"}, None),
        ({"mirror": "AccountName=acct4;AccountKey=a2V5;QueueEndpoint=https://queues.example"}, {"acct1", "acct4"}),
        (
            {
                "mirror": "QueueEndpoint=https://acct4.queue.core.windows.net;"
                "QueueSecondaryEndpoint=https://acct4-secondary.queue.core.windows.net;SharedAccessSignature=sig"
            },
            {"acct1", "acct4"},
        ),
        ({"table_uri": "https://tables.example", "queue_uri": "https://acct1.queue.core.windows.net"}, None),
        ({"table_uri": "https://10.0.0.4/acct1", "queue_uri": "https://10.0.0.4/acct1"}, None),
    ],
)
def test_the_apps_own_accounts_are_named_from_its_settings(given: dict[str, str], names: set[str] | None) -> None:
    home = {"table_uri": "https://acct1.table.core.windows.net", "queue_uri": "https://acct1.queue.core.windows.net"}
    found = Settings(**{**SAFE, "storage": None, **home, **given})  # type: ignore[arg-type]
    assert found.own_accounts == (None if names is None else frozenset(names))


@pytest.mark.parametrize(
    "given",
    [
        SAFE,
        {**SAFE, "admin_key": None},
        {
            **SAFE,
            **IDENTITY,
            "mirror_table_uri": "https://m.table.core.windows.net",
            "mirror_queue_uri": "https://m.queue.core.windows.net",
        },
        {**SAFE, "egress_allow": "hook.internal, 10.0.0.0/8, fd00::/8, 203.0.113.7"},
        {**SAFE, "storage": f"{REAL};TableEndpoint=http://127.0.0.1:1/real;QueueEndpoint=http://localhost:2/real"},
        {"storage": EMULATOR, "local": True, "admin_key": LOCAL_ADMIN_KEY, "bigben_open": True, "egress_allow": "localhost, 127.0.0.0/8"},
    ],
)
def test_a_safe_combination_is_taken(given: dict[str, Any]) -> None:
    found = Settings(**given)
    check_settings(PARTS, found)
    assert found.master_key


def test_plain_http_is_for_the_emulator_unless_the_operator_says_so() -> None:
    assert Settings(storage=EMULATOR).plain_http  # type: ignore[arg-type]
    assert not Settings(**SAFE).plain_http  # type: ignore[arg-type]
    assert Settings(**SAFE, egress_plain=True).plain_http  # type: ignore[arg-type]


def test_a_part_reads_its_settings_from_where_the_app_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_KAFKA_POLL_SECONDS", "7")
    of_the_environment, given = Settings(storage=EMULATOR), GivenSettings(storage=EMULATOR)  # type: ignore[arg-type]
    assert of_the_environment.of(KafkaSettings).kafka_poll_seconds == 7.0
    assert given.of(KafkaSettings).kafka_poll_seconds == 25.0
    for kind in (Settings, GivenSettings):
        assert kind(storage=EMULATOR, kafka_poll_seconds=3).of(KafkaSettings).kafka_poll_seconds == 3.0  # type: ignore[call-arg]


def test_a_setting_that_is_empty_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in SETTINGS:
        for field in kind.model_fields:
            monkeypatch.setenv(env_name(field, kind), "")
    monkeypatch.setenv("TocsinStorage", EMULATOR)
    found = Settings()
    check_settings(PARTS, found)
    assert found.admin_key is None and found.mirror_table_uri is None and not found.mirrored and found.owners == 64


def test_the_environment_is_read_by_the_class_and_where_triggers_are_registered() -> None:
    nodes = ("cli/", "client/", "core/node_logs/", "maintenance/agent/", "extras/emulator/", "checkpoints/", "leases/node/")
    found = code_facts.readers_of_the_environment().items()
    readers = {path: readings for path, readings in found if not path.removeprefix("shared/").startswith(nodes)}
    # The second reads no setting, but the platform's names of the instance; the third hands its environment on to git; the last reads
    # variables that a setting names.
    assert readers == {
        "function_app.py": {"MIRROR", "f'{MIRROR}__queueServiceUri'"},
        "shared/core/process_identity.py": set(),
        "shared/core/version.py": set(),
        "shared/delivery/client_certificates/sources.py": {"name"},
        # A variable of OpenTelemetry itself.
        "shared/core/tracing.py": {"_PROVIDER"},
    }


def test_the_page_of_settings_is_up_to_date() -> None:
    assert settings.PAGE.read_text() == settings.page(), "run `make settings`"


def test_every_setting_is_explained() -> None:
    for name, info in [each for kind in SETTINGS for each in kind.model_fields.items()]:
        assert (info.description or "").endswith((".", ")")) or "`" in (info.description or ""), name
    assert "| `TOCSIN_FIRE_BYTES` | `67108864` | ≥ 1,048,576 |" in settings.page()
    assert SECRET not in settings.page()


@pytest.mark.parametrize(("name", "places"), [("defaults", "0"), ("mirrored", "0 m"), ("private", "0 1 2 3 m"), ("everything", "0 1 2 m")])
async def test_what_the_template_sets_makes_an_app_of_identities(name: str, places: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, value in deployed(name).settings().items():
        # The platform puts the secret where its reference is.
        monkeypatch.setenv(setting, KEYS["adminKey" if "admin" in value else "signingKey"] if "@Microsoft.KeyVault" in value else value)
    found = Settings()
    assert not found.emulated and found.client_id == CLIENT_ID and found.mirrored is (name in ("mirrored", "everything"))
    storage = open_storage(found, SystemClock())
    assert storage.places == tuple(places.split())
    if "1" in places:
        assert isinstance(storage.tables, SpreadTables)
        further: Any = storage.tables.accounts[1]
        assert further.inner._transport.account.base == "https://tocsin17ulcqxxwesckw.table.core.windows.net"
    await storage.close()


@pytest.mark.parametrize("plain", [False, True])
async def test_a_channel_without_tls_is_refused_where_it_is_stored_and_where_it_is_sent(plain: bool) -> None:
    clock = SystemClock()
    given = Settings(**SAFE, egress_allow="hook.internal", egress_plain=plain)  # type: ignore[arg-type]
    storage = memory_storage(clock)
    await storage.ensure()
    directory = TenantDirectory(storage.tables, clock, given)
    await directory.put("acme", Tenant())
    sender = HttpSender(given, clock)
    assert (sender.egress.problem(URL("http://hook.internal/")) is None) is plain
    storing = directory.channels.put("acme", "c", HttpChannel(type="http", url="http://hook.internal/"))
    if plain:
        await storing
    else:
        with pytest.raises(Problem, match="must be https"):
            await storing
    await sender.close()
