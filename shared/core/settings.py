"""Every setting that the app reads, in one class: name, default, meaning. A part of the service has a class of its own (`PartSettings`).

Settings come from the environment (in Azure: app settings; locally: `local.settings.json` through the host). Names are
upper-case `TOCSIN_...` except the storage connection, which follows the Functions convention so that triggers and code
share it: `TocsinStorage` (a connection string) or `TocsinStorage__tableServiceUri`, `TocsinStorage__queueServiceUri`,
`TocsinStorage__credential`, `TocsinStorage__clientId` (identity). One that is empty counts as not set.

docs/reference/settings.md is made from these classes: `make settings`.
"""

from __future__ import annotations

import json
import re
from functools import cache, cached_property
from ipaddress import ip_network
from typing import Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from .errors import UnsafeSettings
from .setting_names import CONNECTION, MIRROR

MAX_ACCOUNTS = 15
"""Further accounts: with the home account one hexadecimal digit names them all."""

LOCAL_ADMIN_KEY = "local-admin-key"
LOCAL_SIGNING_KEY = "local-signing-key"
LOCAL_DEMO_KEY = "local-demo-key"
"""The public key of the tenant `demo`."""

LEAST_BODY_LIMIT = 1_000_000
"""Least value of `Settings.body_limit`: clients send batches up to this size without asking for the limit."""

SHORTEST_KEY = 20
"""Letters that a key has at least, outside the emulator."""

OWN_ADDRESSES = tuple(
    ip_network(text) for text in ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "168.63.129.16/32", "::/127", "fe80::/10")
)
"""Addresses at which a machine and its host answer themselves: loopback, the metadata service with its tokens, Azure's host agent."""


class _CheckedSettings(BaseSettings):
    """Settings from the environment. Errors are `UnsafeSettings`, and quote no value."""

    model_config = SettingsConfigDict(env_prefix="TOCSIN_", extra="ignore", populate_by_name=True, env_ignore_empty=True)

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_impossible(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(given)
        except ValidationError as failure:
            # pydantic's message quotes the value, which may be a secret in the wrong setting, and the field's internal name.
            faults = failure.errors(include_url=False, include_context=False, include_input=False)
            text = "; ".join(f"{_setting_name(cls, str(fault['loc'][0]) if fault['loc'] else '')}: {fault['msg']}" for fault in faults)
            raise UnsafeSettings(text) from None

    @model_validator(mode="after")
    def _refuse_references(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            text = value.get_secret_value() if isinstance(value, SecretStr) else value
            if isinstance(text, str) and text.lower().startswith("@microsoft.keyvault("):
                # Azure passes the reference itself, which would be a key that anyone can guess.
                raise UnsafeSettings(
                    f"{env_name(name, type(self))} is a reference to a vault that was not resolved: may the app's identity read it?"
                )
        return self


class PartSettings(_CheckedSettings):
    """The settings of one part of the service: a class of its own, read by `Settings.of`."""

    def check(self, app: Settings) -> None:
        """Raise `UnsafeSettings` if the settings do not go with those of the app."""


class Settings(_CheckedSettings):
    """The app's settings. Durations are in seconds, sizes in bytes unless the name says otherwise."""

    # Arguments that are not for this class are for those of parts.
    model_config = SettingsConfigDict(extra="allow")

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Leave out the arguments for parts: only their own classes know which of them are secrets."""
        return [(name, value) for name, value in super().__repr_args__() if name in type(self).model_fields]

    storage: SecretStr | None = Field(None, validation_alias=CONNECTION, description="Connection string of the storage account.")
    table_uri: str | None = Field(None, validation_alias=f"{CONNECTION}__tableServiceUri", description="Table endpoint (identity).")
    queue_uri: str | None = Field(None, validation_alias=f"{CONNECTION}__queueServiceUri", description="Queue endpoint (identity).")
    client_id: str | None = Field(None, validation_alias=f"{CONNECTION}__clientId", description="Client id of the user-assigned identity.")
    accounts: SecretStr = Field(
        SecretStr("[]"),
        description="Further storage accounts for shards, numbered from 1: a JSON array of connection strings, or of account names "
        "(identity). Only append to it: shards name their account by its number.",
    )
    new_shards: str = Field(
        "", description="Comma-separated numbers of the accounts that take new shards, 0 being `TocsinStorage`; all when empty."
    )
    mirror: SecretStr | None = Field(
        None, validation_alias=MIRROR, description="Connection string of the second storage account, for durability `mirrored`."
    )
    mirror_table_uri: str | None = Field(
        None, validation_alias=f"{MIRROR}__tableServiceUri", description="Table endpoint of the second account (identity)."
    )
    mirror_queue_uri: str | None = Field(
        None, validation_alias=f"{MIRROR}__queueServiceUri", description="Queue endpoint of the second account (identity)."
    )
    mirror_client_id: str | None = Field(
        None, validation_alias=f"{MIRROR}__clientId", description="Client id for the second account; that of `TocsinStorage` when empty."
    )
    mirror_stop_seconds: float = Field(
        30.0,
        gt=0,
        le=30,
        description="Time after its last check of the serving account in which an owner of mirrored events may start deliveries.",
    )
    mirror_take_seconds: float = Field(
        45.0, ge=0.5, description="Time from the fence until the account that takes over serves. Less than 45: for the emulator only."
    )
    mirror_detached: Literal["", "yes", "stale"] = Field(
        "", description="The second account is given up: `yes` if the first served, `stale` if it may lack what the second served since."
    )
    admin_key: SecretStr | None = Field(None, description="The bootstrap admin key. Without it no admin call is accepted.")
    signing_key: SecretStr | None = Field(None, description="Master key that webhook secrets are derived from.")
    body_limit: int = Field(
        104_857_600,
        validation_alias="FUNCTIONS_REQUEST_BODY_SIZE_LIMIT",
        ge=LEAST_BODY_LIMIT,
        description="Largest body in bytes that the host accepts; it answers 500 without a body to a larger one. `GET /limits` shows "
        "clients the largest batch, at most 16 MiB.",
    )
    local: bool = Field(False, description="Local default: creates tables and queues on start, and the tenant `demo`.")
    receiver: str = Field("http://localhost:7072/", description="URL that the local tenant's channel `default` delivers to.")
    egress_allow: str = Field(
        "", description="Comma-separated hosts or networks that http channels may reach beside public https: `localhost, 10.1.0.0/16`."
    )
    egress_plain: bool = Field(
        False, description="Channels may reach hosts on the allow-list without TLS, unencrypted. On the emulator they always may."
    )
    service_bus: str = Field(
        "",
        description="Comma-separated Service Bus namespaces that channels reach with the app's identity: `orders.servicebus.windows.net`, "
        "or `shop@UID=orders.servicebus.windows.net` for one tenant alone, by its name and `uid`.",
    )
    client_certificates: str = Field(
        "",
        description="Comma-separated client certificates of http channels as `TENANT@UID/NAME=PLACE`, kept in a vault "
        "(`shop@UID/bank=https://V.vault.azure.net/secrets/bank`), in a file (`file:/PATH`) or in a variable (`env:NAME`).",
    )
    bucket_seconds: int = Field(60, ge=60, le=60, description="Width of a bucket; always 60.")
    shard_events: int = Field(990, ge=1, le=1000, description="Most events in a shard. 990 = ten full batches, and one page to load.")
    shard_bytes: int = Field(8 * 1024 * 1024, ge=64 * 1024, description="Most bytes in a shard.")
    fire_bytes: int = Field(64 * 1024 * 1024, ge=1024 * 1024, description="Bytes of loaded shards in flight per process.")
    deliver_concurrency: int = Field(256, ge=1, description="Deliveries in flight per process.")
    tenant_concurrency: int = Field(128, ge=1, description="Deliveries in flight per process and tenant.")
    target_concurrency: int = Field(64, ge=1, description="Deliveries in flight per process and channel.")
    public_url: str = Field(
        "",
        pattern=r"^(https?://[A-Za-z0-9.:\[\]_-]{1,200}/?)?$",
        description="Address of the app for receivers of long work: `https://app.example`. Empty: the host's own name.",
    )
    website_hostname: str = Field("", validation_alias="WEBSITE_HOSTNAME", description="Name of the host; the platform sets it.")
    keep_answers: bool = Field(
        True, description="Keep the heads of receivers' answers as channels ask for it. Off: none is kept, whatever a channel asks."
    )
    token_client_id: str | None = Field(
        None,
        pattern=r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$",
        description="Client id of a second user-assigned identity, without roles, whose tokens http channels may carry. Empty: none may.",
    )
    identity_endpoint: str = Field("", validation_alias="IDENTITY_ENDPOINT", description="Gives identities tokens; the platform sets it.")
    identity_header: SecretStr = Field(SecretStr(""), validation_alias="IDENTITY_HEADER", description="The secret of calls to it.")
    express_events: int = Field(
        200,
        ge=0,
        le=10_000,
        description="Events due within 2 s that a process delivers itself, without the queue, at a time. 0: none.",
    )
    wakes: str = Field(
        "auto",
        pattern=r"^(auto|off|[5-9]|[1-5][0-9]|60)$",
        description="Messages that keep an instance for deliveries alive before each wake-up, where groups of functions go to zero: "
        "`auto`, `off`, or the longest pause between two of them in seconds, 5 to 60.",
    )
    owners: int = Field(64, ge=1, description="Shards that a process serves at a time per queue, as host.json allows.")
    backlog_per_second: int = Field(
        2000,
        ge=50,
        description="Events a second, over all instances, at which a backlog more than two minutes late is delivered after an outage.",
    )
    trace: str = Field(
        "off",
        pattern=r"^(off|all|sampled:(0(\.\d{1,9})?|1(\.0*)?|\.\d{1,9}))$",
        description="Log each change of a gate, lease or turn for `tocsin verify-trace`: `off`, `all`, or `sampled:0.01` for one shard and "
        "fleet in a hundred.",
    )
    arm_endpoint: Literal["https://management.azure.com", "https://management.usgovcloudapi.net", "https://management.chinacloudapi.cn"] = (
        Field("https://management.azure.com", description="Azure Resource Manager of the app's cloud, for the transport `arm`.")
    )
    arm_api_version: str = Field(
        "2025-11-01",
        pattern=r"^\d{4}-\d{2}-\d{2}(-preview)?$",
        description="API version of Azure's Maintenance provider, for approvals by the transport `arm`.",
    )

    @property
    def emulated(self) -> bool:
        """True when the storage is an emulator on this machine."""
        return _emulated(self.storage.get_secret_value() if self.storage else "")

    @property
    def _others(self) -> int:
        """The number of accounts besides the home account."""
        return len(self.account_list) + self.mirrored

    @property
    def mirrored(self) -> bool:
        """True when a second account is configured, which durability `mirrored` needs."""
        return self.mirror is not None or self.mirror_table_uri is not None

    @property
    def keeps_mirrored(self) -> bool:
        """True when events of durability `mirrored` are accepted: there is a second account, or the operator has given it up."""
        return self.mirrored or bool(self.mirror_detached)

    @cached_property
    def account_list(self) -> tuple[str, ...]:
        """The further accounts, in order. Raises `UnsafeSettings`; the message does not quote the setting."""
        try:
            found = json.loads(self.accounts.get_secret_value() or "[]")
        except ValueError:
            found = None
        if not isinstance(found, list) or not all(isinstance(each, str) and each.strip() for each in found):
            raise UnsafeSettings("TOCSIN_ACCOUNTS is not a JSON array of connection strings or account names")
        if len(found) > MAX_ACCOUNTS:
            raise UnsafeSettings(f"TOCSIN_ACCOUNTS names more than {MAX_ACCOUNTS} accounts")
        for number, each in enumerate(found, 1):
            if "=" not in each and not re.fullmatch("[a-z0-9]{3,24}", each):
                raise UnsafeSettings(f"TOCSIN_ACCOUNTS: entry {number} is neither a connection string nor an account name")
        if len(set(found)) != len(found) or (self.storage is not None and self.storage.get_secret_value() in found):
            raise UnsafeSettings("TOCSIN_ACCOUNTS names an account twice")
        return tuple(found)

    @cached_property
    def own_accounts(self) -> frozenset[str] | None:
        """The names of all storage accounts of the app; None if an endpoint, such as a domain of one's own, does not show a name."""
        names: set[str] = set()
        texts = [secret.get_secret_value() for secret in (self.storage, self.mirror) if secret is not None]
        for text in (*texts, *self.account_list, self.table_uri, self.queue_uri, self.mirror_table_uri, self.mirror_queue_uri):
            if not text:
                continue
            if (found := _account_names(text)) is None:
                return None
            names |= found
        return frozenset(names)

    @cached_property
    def fresh_accounts(self) -> tuple[int, ...]:
        """Numbers of the accounts that take new shards. Raises `UnsafeSettings`."""
        known = range(len(self.account_list) + 1)
        given = [part.strip() for part in self.new_shards.split(",") if part.strip()]
        if not all(part.isdecimal() and int(part) in known for part in given):
            raise UnsafeSettings(f"TOCSIN_NEW_SHARDS holds something other than account numbers from 0 to {known[-1]}, separated by commas")
        return tuple(sorted({int(part) for part in given})) or tuple(known)

    @property
    def master_key(self) -> str:
        """The key from which webhook secrets and the service's own signatures are derived."""
        return self.signing_key.get_secret_value() if self.signing_key else LOCAL_SIGNING_KEY

    @property
    def base_url(self) -> str:
        """The address of the app as receivers reach it, without a slash at its end; '' if it is not known."""
        if self.public_url or not self.website_hostname:
            return self.public_url.rstrip("/")
        plain = self.website_hostname.partition(":")[0] in ("localhost", "127.0.0.1")
        return f"{'http' if plain else 'https'}://{self.website_hostname}"

    @cached_property
    def egress_names(self) -> tuple[str, ...]:
        """The allow-list, split and trimmed."""
        return tuple(part.strip() for part in self.egress_allow.split(",") if part.strip())

    @cached_property
    def service_bus_names(self) -> tuple[str, ...]:
        """The list of Service Bus namespaces, split and trimmed."""
        return tuple(part.strip() for part in self.service_bus.split(",") if part.strip())

    @property
    def plain_http(self) -> bool:
        """True when channels may use http without TLS to hosts on the allow-list."""
        return self.emulated or self.egress_plain

    @model_validator(mode="after")
    def _refuse_unsafe(self) -> Self:
        if self.admin_key is not None and self.admin_key.get_secret_value() != self.admin_key.get_secret_value().strip():
            raise UnsafeSettings("TOCSIN_ADMIN_KEY begins or ends with white space, perhaps a line break: a header cannot carry it")
        if self.storage is None and (self.table_uri is None or self.queue_uri is None):
            raise UnsafeSettings(
                f"no storage: set {CONNECTION} to a connection string, or {CONNECTION}__tableServiceUri and "
                f"{CONNECTION}__queueServiceUri for an identity"
            )
        others = [text for text in (*self.account_list, self.mirror.get_secret_value() if self.mirror else "") if "=" in text]
        if any(_emulated(text) != self.emulated for text in others) or (self.emulated and len(others) < self._others):
            raise UnsafeSettings("emulated and real storage accounts do not mix: the emulator's public keys would open the real one")
        if self.mirrored and self.mirror_detached:
            raise UnsafeSettings(f"TOCSIN_MIRROR_DETACHED gives up the second account: remove {MIRROR} or TOCSIN_MIRROR_DETACHED")
        if self.mirror is None and (self.mirror_table_uri is None) != (self.mirror_queue_uri is None):
            raise UnsafeSettings(f"{MIRROR}__tableServiceUri and {MIRROR}__queueServiceUri go together: one of them is missing")
        if (self.mirror is not None and self.mirror == self.storage) or _same(self.mirror_table_uri, self.table_uri):
            raise UnsafeSettings(f"{MIRROR} is the same account as {CONNECTION}: nothing would be mirrored")
        if self.token_client_id is not None:
            roles = {each.lower() for each in (self.client_id, self.mirror_client_id) if each}
            if self.token_client_id.lower() in roles:
                raise UnsafeSettings("TOCSIN_TOKEN_CLIENT_ID is the app's own identity: channels would send tokens with the app's roles")
        _ = self.fresh_accounts
        # The clocks may run 1 % apart, and the store's time has steps of one second.
        if self.mirror_take_seconds + 1.0 < self.mirror_stop_seconds * 1.01 / 0.99 + 1.0:
            raise UnsafeSettings("TOCSIN_MIRROR_TAKE_SECONDS must be more than TOCSIN_MIRROR_STOP_SECONDS: both accounts would serve")
        if self.mirror_take_seconds < 45 and not self.emulated:
            raise UnsafeSettings("TOCSIN_MIRROR_TAKE_SECONDS under 45 is for the emulator only")
        if not self.emulated:
            if self.admin_key is not None and self.admin_key.get_secret_value() == LOCAL_ADMIN_KEY:
                raise UnsafeSettings("TOCSIN_ADMIN_KEY is the public sample value; choose a secret one, this storage is not the emulator")
            if self.signing_key is None or self.signing_key.get_secret_value() == LOCAL_SIGNING_KEY:
                raise UnsafeSettings("TOCSIN_SIGNING_KEY is missing or the public sample value; this storage is not the emulator")
            for name, key in (("TOCSIN_ADMIN_KEY", self.admin_key), ("TOCSIN_SIGNING_KEY", self.signing_key)):
                if key is not None and len(key.get_secret_value()) < SHORTEST_KEY:
                    raise UnsafeSettings(f"{name} has fewer than {SHORTEST_KEY} characters: it could be guessed")
            if self.admin_key == self.signing_key:
                raise UnsafeSettings("TOCSIN_ADMIN_KEY and TOCSIN_SIGNING_KEY are the same: one must not reveal the other")
            home = self.storage.get_secret_value() if self.storage else ""
            if any(_in_the_clear(text) for text in (home, *others)):
                raise UnsafeSettings("a connection string uses http for a real account, and sends stored data unencrypted: use https")
            if entry := next(filter(_own, self.egress_names), None):
                raise UnsafeSettings(f"TOCSIN_EGRESS_ALLOW: {entry[:60]!r} opens the app's own machine or the metadata service to channels")
            if self.local:
                raise UnsafeSettings("TOCSIN_LOCAL makes a tenant with a public key; it is for the emulator only")
        return self

    def of[T: PartSettings](self, kind: type[T]) -> T:
        """Return a part's settings, from where these settings are from. Raises `UnsafeSettings`."""
        given = {name: value for name, value in (self.model_extra or {}).items() if name in kind.model_fields}
        found = self._source(kind)(**given)
        found.check(self)
        return found

    @staticmethod
    def _source[T: PartSettings](kind: type[T]) -> type[T]:
        return kind


class _FromArguments(BaseSettings):
    """Settings that ignore the environment."""

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


class GivenSettings(_FromArguments, Settings):
    """Settings from arguments alone; the environment is ignored. For the test kit and for twins."""

    @staticmethod
    def _source[T: PartSettings](kind: type[T]) -> type[T]:
        return _given(kind)


@cache
def _given[T: PartSettings](kind: type[T]) -> type[T]:
    found: type[T] = type(kind.__name__, (_FromArguments, kind), {})
    return found


def env_name(field: str, kind: type[BaseSettings] = Settings) -> str:
    """Return the environment variable of a field of a class of settings."""
    return str(kind.model_fields[field].validation_alias or f"TOCSIN_{field.upper()}")


def _setting_name(kind: type[BaseSettings], place: str) -> str:
    return env_name(place, kind) if place in kind.model_fields else place


def _account_names(text: str) -> set[str] | None:
    """Return the account's names in a connection string, an endpoint or a name; None if none can be found."""
    if "=" not in text and "/" not in text:
        return {text.lower()}
    named = re.findall(r"(?:^|;)\s*AccountName=([^;\s]+)", text)
    if not named and "UseDevelopmentStorage=true" in text:
        return {"devstoreaccount1"}
    for endpoint in re.findall(r"https?://[^;]*", text, re.I):
        found = re.match(r"https?://([a-z0-9]{3,24})(?:-secondary)?\.[^/]*\.(?:core|storage\.azure)\.", endpoint, re.I)
        if found is not None:
            named.append(found[1])
        elif not re.search(r"(?:^|;)\s*AccountKey=", text):
            # Only a key belongs to the account that the string names; a shared access signature may be that of any account.
            return None
    return {name.lower() for name in named} or None


def _emulated(text: str) -> bool:
    parts = {part.strip() for part in text.split(";")}
    # With the emulator's name and an address in Azure, a public app would accept the emulator's public keys.
    real = ".table.core." in text or ".queue.core." in text
    return not real and not parts.isdisjoint({"UseDevelopmentStorage=true", "AccountName=devstoreaccount1"})


def _same(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one.rstrip("/") == other.rstrip("/")


def _in_the_clear(connection: str) -> bool:
    """Return True when a connection string sends data over http to another machine."""
    parts = {name.strip().lower(): value.strip() for name, _, value in (part.partition("=") for part in connection.split(";"))}
    bases = (parts.get(name, "").lower() for name in ("tableendpoint", "queueendpoint"))
    plain = [base for base in bases if base.startswith("http://")]
    away = [base for base in plain if not re.match(r"http://(127\.0\.0\.1|localhost|\[::1\])(:|/|$)", base)]
    return bool(away) or (parts.get("defaultendpointsprotocol", "").lower() == "http" and len(plain) < 2)


def _own(entry: str) -> bool:
    """Return True when an entry of the allow-list contains addresses that exist on every machine, such as loopback."""
    try:
        network = ip_network(entry.lower().strip("[]"), strict=False)
    except ValueError:
        return entry.lower().rstrip(".").endswith("localhost")
    return any(network.version == own.version and network.overlaps(own) for own in OWN_ADDRESSES)
