"""Writes docs/reference/log-actions.md from the calls that log, and from `NOTES`, where a line's text does not say it all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from .log_lines import LOUDEST, ROOT, LogCall, lines

PAGE = ROOT / "docs" / "reference" / "log-actions.md"

_HEAD = """# Log actions

Look up here what a log line means: each has a stable `action` in its extra fields.
`make reference` generates the page from the calls that log.
Lines whose text says it all are left out.
Errors and warnings are for people; [Operate the service](../how-to/operations.md) says what to do about alarms.
Each line about a Scheduled Event has its EventId as `event_id`.
"""

UNEXPECTED = "An unexpected exception, with its trace; the work is tried again."

NOTES: Final[Mapping[str, str]] = {
    "callback_failed": "Storage refuses a callback for good, and it is left out; or an unexpected exception.",
    "delivery_failed": UNEXPECTED,
    "duty_failed": UNEXPECTED,
    "express_failed": UNEXPECTED,
    "flow_failed": UNEXPECTED,
    "outbox_failed": UNEXPECTED,
    "queue_function_failed": UNEXPECTED,
    "recovery_failed": UNEXPECTED,
    "schedule_failed": UNEXPECTED,
    "sender_failed": UNEXPECTED,
    "shard_failed": "A small shard failed within another message's call; the sweep asks for it again.",
    "telemetry_failed": UNEXPECTED,
    "writer_failed": UNEXPECTED,
    "lease_callback_failed": UNEXPECTED,
    "lease_keeper_failed": UNEXPECTED,
    "lease_scanner_failed": UNEXPECTED,
    "lease_watch_failed": UNEXPECTED,
    "audit_incomplete": "A call was carried out, but the end of its record (`record`) in the audit trail is missing.",
    "account_unproved": "An account did not identify itself; it is asked at its first use.",
    "agent_clock_wrong": "The machine's clock differs by more than 5 s from the metadata service's: synchronize it.",
    "agent_hook_output": "The last 16 KiB of a hook's output, with its outcome and exit code.",
    "agent_approval_held": "Why a prepared event is not approved now; logged when the reason changes.",
    "agent_event_started": "The event begins; a warning if the node is not prepared.",
    "agent_hook_ended": "A hook has ended; a warning if it failed.",
    "calendar_missing": "A calendar was deleted while a schedule that names it was stored; the schedule keeps its days.",
    "clock_unproved": "Storage's answers do not prove this machine's clock right (storage is slow); deliveries follow the clock.",
    "clock_wrong": (
        "This machine's clock is wrong by a second or more; "
        "deliveries follow storage's time ([The clock](../explain/scheduler.md#the-clock)). Correct it."
    ),
    "fleet_notice_refused": "The fleet's `notify` channel refuses a notice: check that the channel exists.",
    "ingest_refused": "Storage refuses an accepted event: check the app's rights.",
    "kafka_complaint": "A Kafka source's connection reported an error, and no message came in.",
    "lease_keeper_ended": "The fleet is missing, its profile is unsafe, or the name is in use.",
    "lease_request_failed": "Storage refuses a request permanently: rights, or a missing table. Logged once.",
    "lease_scan_failed": "Storage refuses a scan permanently: rights, or a missing table. Logged once.",
    "lock_not_renewed": "An unexpected exception in a program that holds a lock: the lock is lost when its validity ends.",
    "logs_unsent": "Log lines of a node cannot be sent ([then](../how-to/node-logs.md#what-happens-when-lines-cannot-be-sent)).",
    "maintenance_arm_refused": (
        "Azure Resource Manager refused an approval. With 403, the app's identity lacks the role; "
        "with `NoRegisteredProviderFound` or `InvalidApiVersionParameter`, change `TOCSIN_ARM_API_VERSION`."
    ),
    "protocol_step": "A change of a gate, lease or turn for `tocsin verify-trace`, where `TOCSIN_TRACE` asks for it.",
    "protocol_violation": "This process has made a step that its protocol forbids: [verify the trace](../how-to/verify-a-trace.md).",
    "protocol_watch_failed": "A line of the trace could not be verified in the process; it is logged nevertheless.",
    "shard_stuck": "No process has managed to serve a shard after eight requests; it is asked for each hour.",
    "newer_stored_forms": "The app is older than what its storage holds: it serves reads only. Deploy the newer version.",
    "stored_forms_raised": "From now on, processes of an older version serve reads only.",
    "sweep_cut_off": "A part (`job`) of the sweep did not end in time; the next run goes on.",
    "sweep_failed": "An unexpected exception in a part (`job`) of the sweep; the next run tries again.",
    "telemetry_complaint": "A message of an exporting library (`source`), at most once in ten minutes.",
    "telemetry_off": "Traces, metrics and logs are not exported to `outlet`, with the reason ([Exporting](observability.md#exporting)).",
    "tenant_ends_later": "A deleted tenant still has a living server of a fleet; the next run checks again.",
    "web.internal-error": "A call was answered 500, with an incident id. Please report it.",
    "web.start-refused": "The app does not start with its settings, with the reason; calls are answered 503.",
    "web.storage-rejected": "Storage refused a request of the app; the call was answered 500, with an incident id.",
}
"""Action -> what the line's own text does not say."""

SECTIONS: Final[Mapping[str, tuple[str, Callable[[LogCall], bool]]]] = {
    "Scheduler and the app": ("", lambda line: not any(belongs(line) for name, (_, belongs) in SECTIONS.items() if name[0] in "LMA")),
    "Leases and fleets": (
        "The actions of alarms are in [the watch](../explain/leases.md#the-watch).\n",
        lambda line: line.action.startswith(("lease_", "fleet_")),
    ),
    "Members of checkpoints": ("", lambda line: line.path.startswith("shared/checkpoints/node/")),
    "Agent": (
        "Each line of the [agent](agent.md) is one JSON object: `at`, `level`, `action`, `node`, `fleet`, `text` and, for an event, "
        "`event_id` (lower case), type and phase.\n"
        "A line about no event of its own has the `event_id` of the event under way on the node; if there are several, the soonest, "
        "and all in `event_ids`.\n",
        lambda line: line.action.startswith("agent_"),
    ),
}


def levels(found: Iterable[LogCall]) -> dict[str, str]:
    """Return the loudest level of each action."""
    loudest: dict[str, str] = {}
    for line in found:
        loudest[line.action] = min(line.level, loudest.get(line.action, "debug"), key=LOUDEST.index)
    return loudest


def page() -> str:
    """Return the whole page."""
    found = lines()
    level = levels(found)
    written = [_HEAD]
    for name, (text, belongs) in SECTIONS.items():
        mine = sorted({line.action for line in found if belongs(line)} & NOTES.keys())
        if text or mine:
            written.append(f"\n## {name}\n" + (f"\n{text}" if text else ""))
        for each in LOUDEST[:-1]:
            rows: dict[str, list[str]] = {}
            for action in (action for action in mine if level[action] == each):
                rows.setdefault(NOTES[action], []).append(f"`{action}`")
            if rows:
                written.append(f"\n{each.capitalize()}:\n\n")
                written += [f"- {', '.join(actions)}: {meaning}\n" for meaning, actions in rows.items()]
    return "".join(written)


if __name__ == "__main__":
    PAGE.write_text(page())
