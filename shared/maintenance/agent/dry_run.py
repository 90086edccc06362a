"""Dry runs: an effect is logged instead of carried out, and counts as successful. The state of a dry run is not saved."""

from __future__ import annotations

from typing import NamedTuple

from .effects import AgentEffect, Approve, RunHook, SendReport, SendResult, StopHook, WriteLog
from .observations import ApprovalPosted, HookEnded, Observation


class DryRunStep(NamedTuple):
    """The log line that replaces an effect, and the observation that follows at once; None if the effect has none."""

    log: WriteLog
    observation: Observation | None


def replace_effect(effect: AgentEffect) -> DryRunStep | None:
    """Return the replacement of an effect; None for effects that only poll or log, which are carried out as usual."""
    match effect:
        case RunHook():
            event_id = "" if effect.record is None else effect.record.event.event_id
            return DryRunStep(_line(f"would run {effect.kind}", event_id), HookEnded(effect.run, True, "dry run"))
        case Approve():
            return DryRunStep(_line("would approve", effect.event_id), ApprovalPosted(effect.event_id, "accepted", 0, effect.grant))
        case StopHook():
            return DryRunStep(_line("would stop a hook", ""), None)
        case SendReport() | SendResult():
            return DryRunStep(_line("would report to the app", ""), None)
        case _:
            return None


def _line(text: str, event_id: str) -> WriteLog:
    return WriteLog("info", "agent_dry_run", text, event_id)
