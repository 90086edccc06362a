"""Runs the steps of a call with `httpx.Client`.

`make clients` writes this file from `concurrent.py`: edit that.
"""

from __future__ import annotations

from typing import Any, Protocol

import httpx

from .. import http
from ..exchange import ApiCall, ApiReply, CallSteps, ConnectionFailure, SendCall


class Pause(Protocol):
    """Waits for a number of seconds."""

    def __call__(self, seconds: float, /) -> None: ...


def run[T](steps: CallSteps[T], client: httpx.Client, tenant: str | None, pause: Pause) -> T:
    """Return the result of the steps. tenant: is named in requests, for an admin key."""
    try:
        effect = next(steps)
        while True:
            if isinstance(effect, SendCall):
                effect = steps.send(_send(effect.call, client, tenant))
            else:
                pause(effect.seconds)
                effect = steps.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _send(call: ApiCall[Any], client: httpx.Client, tenant: str | None) -> ApiReply | ConnectionFailure:
    try:
        return http.to_reply(client.request(**http.httpx_request(call, tenant)))
    except httpx.TransportError as error:
        return http.to_failure(error)
