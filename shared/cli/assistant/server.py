"""The official SDK's server, made stricter, and the failures of tools as an assistant gets them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ValidationError

from ...core.errors import TocsinError
from ..failures import to_command_failure
from .answers import visible, without_secrets

MAX_FAILURE: Final = 2_000
"""Most characters of a failure."""


class StrictServer(MCPServer[Any]):
    """A server that refuses arguments that a tool does not have. The SDK drops them, and with them a misspelt filter."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None) -> Any:
        """Call a tool. Raises `ToolError` for an argument that it does not have, or whose value it does not take."""
        known = {tool.name: tool.input_schema.get("properties", {}) for tool in await self.list_tools()}
        if name in known and (unknown := sorted(arguments.keys() - known[name].keys())):
            raise ToolError(f"{name} has no argument {', '.join(unknown)}\n  do: Use these: {', '.join(known[name])}.")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as failed:
            if not isinstance(failed.__cause__, ValidationError):
                raise
            faults = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in failed.__cause__.errors())
            raise ToolError(f"{visible(faults)[:MAX_FAILURE]}\n  where: {name}\n  do: Correct the arguments that are named.") from None


def with_failures(tool: Callable[..., str]) -> Callable[..., str]:
    """Return the tool with its failures as an assistant gets them: what is wrong, where, and what to do. They never show a key."""

    @functools.wraps(tool)
    def call(*args: Any, **given: Any) -> str:
        try:
            return tool(*args, **given)
        except TocsinError as error:
            raise ToolError(visible(without_secrets(to_command_failure(error).text()))[:MAX_FAILURE]) from None

    return call
