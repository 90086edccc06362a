"""Duck-typed stand-ins for the protobuf messages that the host and the Python worker exchange.

The worker library gets this module as its `protos` and uses only attribute access, keyword construction and
`WhichOneof`, so plain namespaces do, at a fraction of protobuf's cost per call.
"""

from enum import IntEnum
from types import SimpleNamespace
from typing import Any


class Msg(SimpleNamespace):
    """Any message. A field that was not given reads as None, like an unset protobuf field.

    Upper-case names are message types, never fields: the library probes for `TypedData` with try/except, so those must
    raise AttributeError.
    """

    def __getattr__(self, name: str) -> Any:
        if name[:1].isupper() or name.startswith("__"):
            raise AttributeError(name)
        return None

    def WhichOneof(self, group: str) -> str | None:
        """The name of the field that is set: a ParameterBinding carries `data`, a TypedData exactly one field."""
        if group == "rpc_data":
            return "data" if "data" in self.__dict__ else None
        return next(iter(self.__dict__), None)


class TypedData(Msg):
    """One value: `string=`, `bytes=`, `json=`, `http=` ...; none of them is an empty value."""


class ParameterBinding(Msg):
    """`name` and `data` of one argument or output."""


class RpcHttp(Msg):
    """An HTTP request or response."""


class RpcHttpCookie(Msg):
    """One Set-Cookie header, its attributes in Nullable wrappers."""

    # "None" is a keyword, hence the functional form; the library reads it with getattr.
    SameSite = IntEnum("SameSite", {"None": 0, "Lax": 1, "Strict": 2, "ExplicitNone": 3})


class NullableString(Msg):
    """`value` or absent."""


class NullableBool(Msg):
    """`value` or absent."""


class NullableDouble(Msg):
    """`value` or absent."""


class NullableTimestamp(Msg):
    """`value`, a Timestamp, or absent."""


class Timestamp(Msg):
    """`seconds` since the epoch."""


class RpcException(Msg):
    """`message` and `stack_trace`."""


class StatusResult(Msg):
    """`status` and, for a failure, `exception`."""

    Failure = 0
    Success = 1


class BindingInfo(Msg):
    """`type`, `direction` and `data_type` of one binding."""

    in_ = 0
    out = 1
    inout = 2
    undefined = 0


class WorkerMetadata(Msg):
    """Versions of the worker."""


class WorkerInitResponse(Msg):
    """Answer to `worker_init_request`; its `result` shows whether indexing succeeded."""


class FunctionMetadataResponse(Msg):
    """Answer to `functions_metadata_request`."""


class RpcFunctionMetadata(Msg):
    """One indexed function; `raw_bindings` are JSON texts."""


class RpcRetryOptions(Msg):
    """A function's retry policy."""


class FunctionLoadResponse(Msg):
    """Answer to `function_load_request`."""


class InvocationResponse(Msg):
    """Answer to `invocation_request`."""
