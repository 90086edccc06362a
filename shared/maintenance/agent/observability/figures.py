"""The agent's metrics in Prometheus' text format, without a library, which would cost a quarter of the agent's memory.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final, Literal

type Labels = tuple[tuple[str, str], ...]

FAMILIES: Final[Mapping[str, tuple[Literal["counter", "gauge"], str]]] = {
    "tocsin_agent_polls_total": ("counter", "Polls of the document at IMDS, by outcome: good, nonsense, refused, silence."),
    "tocsin_agent_document_age_seconds": ("gauge", "Age of the last valid document."),
    "tocsin_agent_document_incarnation": ("gauge", "Incarnation of the last valid document."),
    "tocsin_agent_clock_error_seconds": (
        "gauge",
        "Seconds by which the machine's clock is at least ahead of the metadata service's; negative: behind; 0: it may be right.",
    ),
    "tocsin_agent_events": ("gauge", "Events that the agent follows, by phase."),
    "tocsin_agent_node_disabled": ("gauge", "1 while the agent keeps the node out of service."),
    "tocsin_agent_hook_runs_total": ("counter", "Runs of hooks that ended, by hook and outcome: done, failed, late, stopped."),
    "tocsin_agent_hook_seconds_total": ("counter", "Run time of hooks, by hook."),
    "tocsin_agent_approvals_total": ("counter", "Approvals sent to IMDS, by outcome: posted, refused, silence."),
    "tocsin_agent_reports_total": ("counter", "Reports to the app, by outcome: taken, refused, silence."),
    "tocsin_agent_reports_waiting": ("gauge", "Reports on disk that the app has not received yet."),
    "tocsin_agent_warnings_total": ("counter", "Warnings in the log, by action."),
    "tocsin_agent_log_lines_total": (
        "counter",
        "Log lines for a collector, journald or syslog, by outcome: sent, refused, dropped.",
    ),
    "tocsin_agent_stalls_total": ("counter", "Ticks that came more than 3 s late because the machine was frozen."),
    "tocsin_agent_stalled_seconds_total": ("counter", "Total time for which the machine was frozen."),
    "process_cpu_seconds_total": ("counter", "Processor time of the agent, without its hooks."),
    "process_resident_memory_bytes": ("gauge", "Memory of the agent, without its hooks."),
}


class AgentFigures:
    """Counters and gauges; any thread may change or read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[Labels, float]] = {}

    def add(self, name: str, more: float = 1, **labels: str) -> None:
        """Raise a counter."""
        key = tuple(sorted(labels.items()))
        with self._lock:
            family = self._values.setdefault(name, {})
            family[key] = family.get(key, 0) + more

    def put(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        with self._lock:
            self._values.setdefault(name, {})[tuple(sorted(labels.items()))] = value

    def replace(self, name: str, label: str, values: Mapping[str, float]) -> None:
        """Set a gauge for each value of its one label, and remove all other values."""
        with self._lock:
            self._values[name] = {((label, key),): value for key, value in values.items()}

    def value(self, name: str, **labels: str) -> float:
        """Return a value; 0 if it was never set."""
        with self._lock:
            return self._values.get(name, {}).get(tuple(sorted(labels.items())), 0)

    def text(self) -> str:
        """Return all metrics as text, in the order of `FAMILIES`."""
        lines: list[str] = []
        with self._lock:
            for name, (kind, about) in FAMILIES.items():
                lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
                for labels, value in sorted(self._values.get(name, {}).items()):
                    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
                    lines.append(f"{name}{{{shown}}} {value:.15g}" if shown else f"{name} {value:.15g}")
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
