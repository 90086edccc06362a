"""Runs the steps of a call with `httpx.AsyncClient`."""

from __future__ import annotations

from typing import Any, Protocol

import httpx

from .. import http
from ..exchange import ApiCall, ApiReply, CallSteps, ConnectionFailure, SendCall


class AsyncPause(Protocol):
    """Waits for a number of seconds."""

    async def __call__(self, seconds: float, /) -> None: ...


async def run[T](steps: CallSteps[T], client: httpx.AsyncClient, tenant: str | None, pause: AsyncPause) -> T:
    """Return the result of the steps. tenant: is named in requests, for an admin key."""
    try:
        effect = next(steps)
        while True:
            if isinstance(effect, SendCall):
                effect = steps.send(await _send(effect.call, client, tenant))
            else:
                await pause(effect.seconds)
                effect = steps.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def _send(call: ApiCall[Any], client: httpx.AsyncClient, tenant: str | None) -> ApiReply | ConnectionFailure:
    try:
        return http.to_reply(await client.request(**http.httpx_request(call, tenant)))
    except httpx.TransportError as error:
        return http.to_failure(error)
