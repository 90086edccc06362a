"""Dry runs: what would be done is logged, and taken as done. State kept of a dry run is of no use to a real one, and is not saved."""

from __future__ import annotations

from typing import NamedTuple

from .model import AgentEffect, ApprovalPosted, Approve, HookEnded, Observation, RunHook, SendReport, SendResult, StopHook, WriteLog


class DryRunStep(NamedTuple):
    """The line to log instead, and the observation to give back at once; None where an effect has none."""

    log: WriteLog
    observation: Observation | None


def replace_effect(effect: AgentEffect) -> DryRunStep | None:
    """What stands for an effect on the world; None for those that only look or log, and are carried out as ever."""
    match effect:
        case RunHook():
            event_id = "" if effect.record is None else effect.record.event.event_id
            return DryRunStep(_line(f"would run {effect.kind}", event_id), HookEnded(effect.run, True, "dry run"))
        case Approve():
            return DryRunStep(_line("would approve", effect.event_id), ApprovalPosted(effect.event_id, "accepted", 0, effect.grant))
        case StopHook():
            return DryRunStep(_line("would stop a hook", ""), None)
        case SendReport() | SendResult():
            return DryRunStep(_line("would tell the app", ""), None)
        case _:
            return None


def _line(text: str, event_id: str) -> WriteLog:
    return WriteLog("info", "agent_dry_run", text, event_id)
