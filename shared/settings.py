"""Every setting the app reads, in one class: name, default, meaning.

Settings come from the environment (in Azure: app settings; locally: `local.settings.json` through the host). Names are
upper-case `TOCSIN_...` except the storage connection, which follows the Functions convention so that triggers and code
share it: `TocsinStorage` (a connection string) or `TocsinStorage__tableServiceUri`, `TocsinStorage__queueServiceUri`,
`TocsinStorage__credential`, `TocsinStorage__clientId` (identity).
"""

from __future__ import annotations

from functools import cached_property
from typing import Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from .errors import UnsafeSettings

CONNECTION = "TocsinStorage"
"""The name triggers use as their `connection`, and the prefix of the identity settings."""

LOCAL_ADMIN_KEY = "local-admin-key"
LOCAL_SIGNING_KEY = "local-signing-key"


class Settings(BaseSettings):
    """The app's settings. Durations are in seconds, sizes in bytes unless the name says otherwise."""

    model_config = SettingsConfigDict(env_prefix="TOCSIN_", extra="ignore", populate_by_name=True)

    storage: SecretStr | None = Field(None, validation_alias=CONNECTION, description="Connection string of the storage account.")
    table_uri: str | None = Field(None, validation_alias=f"{CONNECTION}__tableServiceUri", description="Table endpoint (identity).")
    queue_uri: str | None = Field(None, validation_alias=f"{CONNECTION}__queueServiceUri", description="Queue endpoint (identity).")
    client_id: str | None = Field(
        None, validation_alias=f"{CONNECTION}__clientId", description="Client id of the user-assigned identity."
    )
    admin_key: SecretStr | None = Field(None, description="The bootstrap admin key. Without it no admin call is accepted.")
    signing_key: SecretStr | None = Field(None, description="Master key that webhook secrets are derived from.")
    local: bool = Field(False, description="Local default: creates tables and queues on start, and the tenant `demo`.")
    receiver: str = Field("http://localhost:7072/", description="Where the local tenant's channel `default` points.")
    egress_allow: str = Field(
        "", description="Comma-separated hosts or networks that http channels may reach beside public https: `localhost, 10.1.0.0/16`."
    )
    bucket_seconds: int = Field(60, ge=60, le=60, description="Bucket width. One minute; kept as a named figure.")
    shard_events: int = Field(990, ge=1, le=1000, description="Most events in a shard. 990 = ten full batches, and one page to load.")
    shard_bytes: int = Field(8 * 1024 * 1024, ge=64 * 1024, description="Most bytes in a shard.")
    fire_bytes: int = Field(64 * 1024 * 1024, ge=1024 * 1024, description="Bytes of loaded shards in flight per process.")
    deliver_concurrency: int = Field(256, ge=1, description="Deliveries in flight per process.")
    tenant_concurrency: int = Field(128, ge=1, description="Deliveries in flight per process and tenant.")
    target_concurrency: int = Field(64, ge=1, description="Deliveries in flight per process and channel.")

    @property
    def emulated(self) -> bool:
        """True when the storage is an emulator on this machine."""
        text = self.storage.get_secret_value() if self.storage else ""
        parts = {part.strip() for part in text.split(";")}
        return not parts.isdisjoint({"UseDevelopmentStorage=true", "AccountName=devstoreaccount1"})

    @cached_property
    def egress_names(self) -> tuple[str, ...]:
        """The allow-list, split and trimmed."""
        return tuple(part.strip() for part in self.egress_allow.split(",") if part.strip())

    @model_validator(mode="after")
    def _refuse_unsafe(self) -> Self:
        if self.storage is None and (self.table_uri is None or self.queue_uri is None):
            raise UnsafeSettings(
                f"no storage: set {CONNECTION} to a connection string, or {CONNECTION}__tableServiceUri and "
                f"{CONNECTION}__queueServiceUri for an identity"
            )
        if not self.emulated:
            if self.admin_key is not None and self.admin_key.get_secret_value() == LOCAL_ADMIN_KEY:
                raise UnsafeSettings("TOCSIN_ADMIN_KEY is the public sample value; choose a secret one, this storage is not the emulator")
            if self.signing_key is None or self.signing_key.get_secret_value() == LOCAL_SIGNING_KEY:
                raise UnsafeSettings("TOCSIN_SIGNING_KEY is missing or the public sample value; this storage is not the emulator")
            if self.local:
                raise UnsafeSettings("TOCSIN_LOCAL makes a tenant with a public key; it is for the emulator only")
        return self
