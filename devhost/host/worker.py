"""Indexes an app folder and invokes its functions through the production worker library.

The library keeps its registry in module globals and `app.get_functions()` works once, so a process indexes one app, once.
"""

import asyncio
import json
import logging
import random
import sys
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import azure_functions_runtime

from devhost.host import protos
from devhost.host.protos import Msg, ParameterBinding, TypedData
from devhost.host.routes import RouteError, compile_route

log = logging.getLogger("devhost.worker")

# The library logs every invocation at INFO, and an import error twice at ERROR with the whole sys.path.
_library_log = logging.getLogger("azure.functions")
_library_log.setLevel(logging.WARNING)

runtime: Any = azure_functions_runtime  # untyped
_NO_RETRY = Msg()
_indexed: Path | None = None


class AppIndexError(Exception):
    """The app cannot be indexed: in production all its functions would vanish. The message is the reason."""


@dataclass(frozen=True)
class FunctionInfo:
    """One indexed function. `bindings` are the raw bindings, JSON objects as function.json would hold them."""

    name: str
    function_id: str
    bindings: tuple[dict[str, Any], ...]

    @cached_property
    def trigger(self) -> dict[str, Any]:
        """The binding that starts the function; its `type` is httpTrigger, queueTrigger or timerTrigger."""
        return next(binding for binding in self.bindings if str(binding["type"]).endswith("Trigger"))


@dataclass(frozen=True)
class InvocationResult:
    """The end of an invocation. `value` is the return value as TypedData; `error` is None on success."""

    value: Msg | None
    error: str | None


def index(folder: str | Path, *, route_prefix: str = "api") -> list[FunctionInfo]:
    """Imports `function_app.py` of the folder with the production library and returns its functions, sorted by name.

    The folder's own modules come first on sys.path. Raises AppIndexError with the reason. The environment must hold the
    app's settings already, as in the real host. Works without a running loop, and inside one.
    """
    global _indexed
    folder = Path(folder).resolve()
    if _indexed is not None:
        raise AppIndexError(f"this process has indexed {_indexed} already; a process can index one app, once")
    if not (folder / "function_app.py").is_file():
        raise AppIndexError(f"there is no function_app.py in {folder}")
    stranger = sys.modules.get("function_app")
    if stranger is not None and Path(stranger.__file__ or "").parent != folder:
        raise AppIndexError(f"another function_app is imported already: {stranger.__file__}")
    _indexed = folder
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))
    functions = [_function(item) for item in _library_index(folder)]
    if not functions:
        raise AppIndexError("the app has no functions")
    _check(functions, route_prefix)
    return sorted(functions, key=lambda function: function.name)


def _library_index(folder: Path) -> list[Msg]:
    request = Msg(
        request=Msg(worker_init_request=Msg(capabilities={}, function_app_directory=str(folder))),
        properties={"host": "127.0.0.1", "protos": protos},
    )
    _library_log.setLevel(logging.CRITICAL)
    try:
        result = _run(runtime.worker_init_request(request)).result
        if result.status != protos.StatusResult.Success:
            raise AppIndexError(_reason(result.exception))
        return _run(runtime.functions_metadata_request(Msg())).function_metadata_results or []
    except SystemExit as error:
        raise AppIndexError(f"function_app.py ended the process with sys.exit({error.code})") from error
    finally:
        _library_log.setLevel(logging.WARNING)


def _run(coroutine: Coroutine[Any, Any, Any]) -> Msg:
    # The library's set-up coroutines never suspend, so they need no loop; this also works inside a running one.
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    coroutine.close()
    raise AppIndexError("the worker library waited for something while it indexed the app")


def _reason(exception: Msg) -> str:
    message = str(exception.message).split(" Current sys.path:")[0]
    frames = [line for line in str(exception.stack_trace).splitlines() if "azure_functions_runtime" not in line]
    return message + "\n" + "\n".join(frames[-25:])


def _function(item: Msg) -> FunctionInfo:
    bindings = tuple(json.loads(text) for text in item.raw_bindings)
    triggers = [binding["type"] for binding in bindings if str(binding["type"]).endswith("Trigger")]
    if len(triggers) != 1:
        raise AppIndexError(f"function {item.name!r} has {len(triggers)} triggers; it needs exactly one")
    return FunctionInfo(item.name, item.function_id, bindings)


def _check(functions: list[FunctionInfo], route_prefix: str) -> None:
    """Raise `AppIndexError` for functions that the host itself refuses after the worker has indexed the app."""
    problems = []
    for function in functions:
        kind = function.trigger["type"]
        if kind == "httpTrigger":
            try:
                compile_route(function.name, function.trigger.get("route") or function.name, (), route_prefix)
            except RouteError as error:
                problems.append(f"function {function.name!r}: {error}")
        elif kind not in ("queueTrigger", "timerTrigger"):
            problems.append(f"function {function.name!r}: the devhost cannot serve a {kind}")
        for binding in function.bindings:
            if binding is not function.trigger and binding["type"] != "http":
                log.warning("function %s: the devhost does not carry out its %s binding", function.name, binding["type"])
    if problems:
        raise AppIndexError("\n".join(problems))


class Worker:
    """Invokes functions and knows which are running."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[str, asyncio.Task[Any] | None]] = {}
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        runtime.start_threadpool_executor()

    @property
    def running(self) -> list[str]:
        """Names of the functions that are running now, one entry an invocation."""
        return [name for name, _ in self._running.values()]

    async def invoke(
        self, function: FunctionInfo, data: Msg, metadata: dict[str, Msg] | None = None, trace: Msg | None = None
    ) -> InvocationResult:
        """Runs one invocation with its trigger's data. Never raises for what the function does; a failure is logged.

        An async function runs in this loop, a plain one in the library's thread pool.
        """
        invocation_id = str(uuid.uuid4())
        request = Msg(
            invocation_id=invocation_id,
            function_id=function.function_id,
            input_data=(ParameterBinding(name=function.trigger["name"], data=data),),
            trigger_metadata=metadata,
            trace_context=trace or _new_trace(),
            retry_context=_NO_RETRY,
        )
        self._running[invocation_id] = (function.name, asyncio.current_task())
        self._idle.clear()
        try:
            response = await runtime.invocation_request(Msg(request=Msg(invocation_request=request)))
        finally:
            del self._running[invocation_id]
            if not self._running:
                self._idle.set()
        if response.result.status == protos.StatusResult.Success:
            return InvocationResult(response.return_value, None)
        exception = response.result.exception
        log.error("function %s failed: %s\n%s", function.name, exception.message, exception.stack_trace)
        return InvocationResult(None, exception.message)

    async def drain(self, timeout: float) -> bool:
        """Waits until nothing runs; False when something still does after `timeout` seconds."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def abandon(self) -> list[str]:
        """Cancels what runs and returns its function names. A plain function's thread cannot be stopped."""
        names = self.running
        for _, task in list(self._running.values()):
            if task is not None:
                task.cancel()
        return names

    def close(self) -> None:
        """Ends the thread pool without waiting for a function that hangs in it."""
        executor = runtime.get_threadpool_executor()
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)


def _new_trace() -> Msg:
    # The host starts a trace for every invocation, so the app may rely on a traceparent being there.
    parent = f"00-{random.getrandbits(128) | 1:032x}-{random.getrandbits(64) | 1:016x}-01"
    return Msg(trace_parent=parent, trace_state="", attributes={})


def typed_text(body: bytes) -> Msg:
    """A message body as the host sends it for a queue trigger: text, with invalid UTF-8 replaced."""
    return TypedData(string=body.decode("utf-8", errors="replace"))
