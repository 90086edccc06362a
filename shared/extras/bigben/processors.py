"""BigBen's tenants. Each has one processor, which is stored as the tenant's channel `default`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter, ValidationError
from yarl import URL

from ...core.errors import Problem
from ...delivery.channels.http import show
from ...delivery.channels.model import Channel
from ...tenants.model import Tenant
from ...tenants.store import TenantDirectory
from ...web.fields.error_texts import fault_text
from ...web.fields.types import NAME
from ...web.problem import invalid
from .model import Processor

_SPEC: TypeAdapter[Any] = TypeAdapter(Channel)
CHANNEL = "default"
PAGE = 200


class Processors:
    """Registers and lists tenants. One per process."""

    def __init__(self, directory: TenantDirectory) -> None:
        self._directory = directory

    async def register(self, wanted: Processor) -> None:
        """Create the tenant if it is missing, and set its channel `default` from `props`. Raises 422."""
        name = wanted.tenant
        if name is None or not NAME.fullmatch(name):
            raise invalid("/tenant", "1 to 40 of a-z, 0-9 and inner hyphens")
        spec = channel_of(wanted)
        try:
            # Read from storage: a cached answer may be older than the tenant, and the tenant's limits must not be overwritten.
            await self._directory.home(name)
        except Problem as refused:
            if refused.status != 404:
                raise
            await self._directory.put(name, Tenant())
        await self._directory.channels.put(name, CHANNEL, spec)

    async def all(self) -> dict[str, Processor]:
        """Return the processors of all tenants."""
        found: dict[str, Processor] = {}
        after: str | None = ""
        while after is not None:
            page, after = await self._directory.list(PAGE, after)
            found |= await self.of(tenant.name for tenant in page)
        return found

    async def of(self, tenants: Iterable[str], *, whole: bool = True) -> dict[str, Processor]:
        """Return the processors of these tenants. Values of headers are secrets and are shown as `***`.

        whole: False for callers that may not see channels. They see a URL's scheme, host and port.
        """
        found: dict[str, Processor] = {}
        for name in tenants:
            try:
                channel, _ = await self._directory.channels.get(name, CHANNEL)
            except Problem as refused:
                if refused.status != 404:
                    raise
                continue
            found[name] = processor_of(name, channel.model_dump(mode="json"), whole=whole)
        return found


def channel_of(wanted: Processor) -> Any:
    """Return the channel that corresponds to a processor. Raises 422 if there is none."""
    props = wanted.props or {}
    match wanted.type:
        case "HTTP":
            given = {"type": "http", "url": props.get("url"), "headers": props.get("headers") or {}}
        case "MESSAGING":
            given = {"type": "kafka", "servers": props.get("bootstrap.servers"), "topic": props.get("topic")}
        case "CUSTOM_CLASS":
            raise invalid("/type", "classes are not supported: run the class's code behind an HTTP endpoint, and use type HTTP")
        case _:
            raise invalid("/type", "one of HTTP and MESSAGING")
    try:
        return _SPEC.validate_python(given)
    except ValidationError as failure:
        wrong = failure.errors(include_input=False, include_url=False)[0]
        raise invalid(f"/props/{wrong['loc'][-1]}", fault_text(wrong)) from None


def processor_of(tenant: str, channel: dict[str, Any], *, whole: bool = True) -> Processor:
    """Return the processor that corresponds to a channel. Types unknown to BigBen are named in `props`. whole: see `Processors.of`."""
    match channel["type"]:
        case "http":
            url = channel["url"] if whole else show(URL(channel["url"], encoded=True))
            return Processor(tenant=tenant, type="HTTP", props={"url": url, "headers": channel["headers"]})
        case "kafka":
            return Processor(tenant=tenant, type="MESSAGING", props={"bootstrap.servers": channel["servers"], "topic": channel["topic"]})
        case kind:
            return Processor(tenant=tenant, type="MESSAGING", props={"channel": kind})
