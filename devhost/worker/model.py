"""The messages between host and worker: functions, the values of their arguments, and results. Values are plain data."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

type TypedValue = tuple[str, Any]
"""A value and its kind: ("string", str), ("bytes", bytes), ("json", JSON as str), ("http", request or answer)."""
type HttpRequestValue = tuple[str, str, dict[str, str], bytes | str, dict[str, str], dict[str, str]]
"""Method, URL, headers, body, route parameters and query. The body is bytes, or the path of a file that holds it."""
type HttpAnswerValue = tuple[int, dict[str, str], bytes, list[str]]
"""Status, headers, body, and the values of the Set-Cookie headers."""
type Trace = tuple[str, str]
"""traceparent and tracestate."""


class AppIndexError(Exception):
    """The app cannot be indexed: in production all its functions would vanish. The message is the reason."""


@dataclass(frozen=True)
class FunctionInfo:
    """One indexed function. `bindings` are the raw bindings, JSON objects as function.json would hold them."""

    name: str
    bindings: tuple[dict[str, Any], ...]

    @cached_property
    def trigger(self) -> dict[str, Any]:
        """The binding that starts the function; its `type` is httpTrigger, queueTrigger or timerTrigger."""
        return next(binding for binding in self.bindings if str(binding["type"]).endswith("Trigger"))

    @property
    def group(self) -> str:
        """The group that scales together on Flex Consumption: all HTTP functions, and each other function alone."""
        return "http" if self.trigger["type"] == "httpTrigger" else f"function:{self.name}"


class InvocationResult(NamedTuple):
    """The end of an invocation. `value` is the return value; `error` is None on success."""

    value: TypedValue | None
    error: str | None


class Invoker(Protocol):
    """Runs functions."""

    async def invoke(
        self, function: FunctionInfo, data: TypedValue, metadata: dict[str, TypedValue] | None = None, trace: Trace | None = None
    ) -> InvocationResult:
        """Run one invocation with its trigger's data. Never raises for what the function does; raises CancelledError when the host ends."""
