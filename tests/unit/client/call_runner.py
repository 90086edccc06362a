"""Runs the steps of client calls on scripted replies. The test sees what was sent, and for how long the client would have slept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.client.exchange import ApiCall, ApiReply, CallSteps, ConnectionFailure, SendCall


def run_call[T](steps: CallSteps[T], reply: Callable[[ApiCall[Any]], ApiReply | ConnectionFailure], slept: list[float]) -> T:
    """Run `steps` to the end and return the result. `reply` answers each request; the lengths of pauses go into `slept`, in seconds."""
    try:
        effect = next(steps)
        while True:
            if isinstance(effect, SendCall):
                effect = steps.send(reply(effect.call))
            else:
                slept.append(effect.seconds)
                effect = steps.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
