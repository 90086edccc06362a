"""Indexes an app folder and invokes its functions through the production worker library.

The library keeps its registry in module globals and `app.get_functions()` works once, so a process indexes one app, once.
"""

import json
import logging
import random
import sys
import uuid
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import azure_functions_runtime

from devhost.host.routes import RouteError, compile_route
from devhost.worker import protos
from devhost.worker.model import AppIndexError, FunctionInfo, InvocationResult, Trace, TypedValue
from devhost.worker.protos import Msg, ParameterBinding, RpcHttp, RpcHttpCookie, TypedData

log = logging.getLogger("devhost.worker")

# The library logs every invocation at INFO, and an import error twice at ERROR with the whole sys.path.
_library_log = logging.getLogger("azure.functions")
_library_log.setLevel(logging.WARNING)

runtime: Any = azure_functions_runtime  # untyped
_NO_RETRY = Msg()
_EMPTY = TypedData()
_SAME_SITE = {1: "lax", 2: "strict", 3: "none"}
_function_ids: dict[str, str] = {}
_indexed: Path | None = None


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
    _function_ids[item.name] = item.function_id
    return FunctionInfo(item.name, bindings)


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


class LibraryWorker:
    """Invokes the functions of this process's app; an `Invoker`."""

    def __init__(self) -> None:
        runtime.start_threadpool_executor()

    async def invoke(
        self, function: FunctionInfo, data: TypedValue, metadata: dict[str, TypedValue] | None = None, trace: Trace | None = None
    ) -> InvocationResult:
        """See `Invoker`. A failure is logged. An async function runs in this loop, a plain one in the library's thread pool."""
        kind, value = data
        argument = _request(*value) if kind == "http" else TypedData(**{kind: value})
        request = Msg(
            invocation_id=str(uuid.uuid4()),
            function_id=_function_ids[function.name],
            input_data=(ParameterBinding(name=function.trigger["name"], data=argument),),
            trigger_metadata={name: TypedData(**{what: text}) for name, (what, text) in (metadata or {}).items()},
            trace_context=_trace(trace),
            retry_context=_NO_RETRY,
        )
        response = await runtime.invocation_request(Msg(request=Msg(invocation_request=request)))
        if response.result.status == protos.StatusResult.Success:
            return InvocationResult(_answer(response.return_value), None)
        exception = response.result.exception
        log.error("function %s failed: %s\n%s", function.name, exception.message, exception.stack_trace)
        return InvocationResult(None, str(exception.message))


def _trace(trace: Trace | None) -> Msg:
    # The host starts a trace for every invocation, so the app may rely on a traceparent being there.
    parent, state = trace or (f"00-{random.getrandbits(128) | 1:032x}-{random.getrandbits(64) | 1:016x}-01", "")
    return Msg(trace_parent=parent, trace_state=state, attributes={})


def _request(method: str, url: str, headers: dict[str, str], body: bytes, params: dict[str, str], query: dict[str, str]) -> Msg:
    content = TypedData(bytes=body) if body else _EMPTY
    return TypedData(http=RpcHttp(method=method, url=url, headers=headers, body=content, params=params, query=query))


def _answer(value: Msg | None) -> TypedValue | None:
    """Return the value of a function as plain data, or None if it has none."""
    if value is None or (kind := value.WhichOneof("data")) is None:
        return None
    if kind != "http":
        return kind, getattr(value, kind)
    http = value.http
    body: bytes = (http.body.bytes if http.body is not None else None) or b""
    cookies = [set_cookie(cookie) for cookie in http.cookies or ()]
    return "http", (int(http.status_code), {str(name): str(text) for name, text in http.headers.items()}, bytes(body), cookies)


def set_cookie(cookie: Msg) -> str:
    """The Set-Cookie header of an RpcHttpCookie, its attributes in the order in which the host writes them."""
    text = f"{cookie.name}={cookie.value}"
    if cookie.expires is not None:
        moment = datetime.fromtimestamp(cookie.expires.value.seconds, UTC)
        text += f"; expires={moment:%a, %d %b %Y %H:%M:%S} GMT"
    if cookie.max_age is not None:
        text += f"; max-age={cookie.max_age.value:.0f}"
    for name, field in (("domain", cookie.domain), ("path", cookie.path)):
        if field is not None and field.value:
            text += f"; {name}={field.value}"
    if cookie.secure is not None and cookie.secure.value:
        text += "; secure"
    if cookie.same_site in _SAME_SITE and cookie.same_site != RpcHttpCookie.SameSite["None"]:
        text += f"; samesite={_SAME_SITE[cookie.same_site]}"
    if cookie.http_only is not None and cookie.http_only.value:
        text += "; httponly"
    return text
