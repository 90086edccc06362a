"""Dry runs: what would be done is logged, and taken as done. State kept of a dry run is of no use to a real one, and is not saved."""

from __future__ import annotations

from typing import NamedTuple

from .model import Approve, Effect, HookEnded, Log, Observation, Posted, Report, Result, RunHook, StopHook


class Pretended(NamedTuple):
    """The line to log instead, and the observation to give back at once; None where an effect has none."""

    log: Log
    observation: Observation | None


def pretend(effect: Effect) -> Pretended | None:
    """What stands for an effect on the world; None for those that only look or log, and are carried out as ever."""
    match effect:
        case RunHook():
            event_id = "" if effect.record is None else effect.record.event.event_id
            return Pretended(_line(f"would run {effect.kind}", event_id), HookEnded(effect.run, True, "dry run"))
        case Approve():
            return Pretended(_line("would approve", effect.event_id), Posted(effect.event_id, "accepted", 0, effect.grant))
        case StopHook():
            return Pretended(_line("would stop a hook", ""), None)
        case Report() | Result():
            return Pretended(_line("would tell the app", ""), None)
        case _:
            return None


def _line(text: str, event_id: str) -> Log:
    return Log("info", "agent_dry_run", text, event_id)
