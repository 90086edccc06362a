"""The effects that the agent asks for, carried out once the state before them is saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .model import EventRecord, HookKind


@dataclass(frozen=True, slots=True)
class RunHook:
    """Run a configured hook in the background, once, for at most `deadline` seconds; HookEnded(run) follows.

    record: of its event, as saved; None when a restore has no event because the state file was lost.
    """

    run: int
    kind: HookKind
    record: EventRecord | None
    attempt: int
    deadline: float


@dataclass(frozen=True, slots=True)
class StopHook:
    """Stop a running hook; its HookEnded still follows."""

    run: int


@dataclass(frozen=True, slots=True)
class Approve:
    """POST the approval of `raw_id`; ApprovalPosted(event_id, ..., grant) follows. grant: the app's id, if it leased this approval."""

    event_id: str
    raw_id: str
    attempt: int
    grant: str = ""


@dataclass(frozen=True, slots=True)
class PollNow:
    """Poll the document now, before the next poll is due."""


@dataclass(frozen=True, slots=True)
class SendReport:
    """Send a report to the app now, because its content has changed."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """Send the app the result of a leased approval."""

    approval_id: str
    outcome: Literal["posted", "gone", "refused", "unreachable"]
    http_status: int = 0


@dataclass(frozen=True, slots=True)
class WriteLog:
    """Write a log line. A warning means that an operator should look. action: a stable name; see docs/reference/log-actions.md."""

    level: Literal["info", "warning"]
    action: str
    text: str
    event_id: str = ""
    fields: Mapping[str, str | int] = field(default_factory=dict)


type AgentEffect = RunHook | StopHook | Approve | PollNow | SendReport | SendResult | WriteLog
