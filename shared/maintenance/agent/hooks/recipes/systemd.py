"""Stops units before an impact and starts them again in the opposite order. Units that were not active before are left alone.

Settings: units (in the order of stopping), systemctl.
"""

from __future__ import annotations

from typing import Any

from .note import Note, StepFailed, ask, do, options, report_failure


def prepare(event: dict[str, Any]) -> bool:
    """Stop the units that are active."""
    try:
        settings = options()
        note = Note.read("systemd")
        if note is None or note.restored or not note.of_this_boot:
            note = Note.of("systemd", [unit for unit in settings["units"] if _active(settings, unit)])
        for unit in note.on:
            do(settings["systemctl"], "stop", unit)
    except StepFailed as error:
        return report_failure("prepare", error)
    return True


def restore(event: dict[str, Any]) -> bool:
    """Start the units that were active, also after a reboot, where a unit may not be enabled."""
    note = Note.read("systemd")
    if note is None or note.restored:
        print("the prepare hook stopped nothing")
        return True
    try:
        for unit in reversed(note.on):
            do(options()["systemctl"], "start", unit)
    except StepFailed as error:
        return report_failure("restore", error)
    note.restored = True
    note.save()
    return True


def verify(event: dict[str, Any]) -> bool:
    """Return true if the units that were active are active again."""
    settings, note = options(), Note.read("systemd")
    try:
        off = [unit for unit in (note.on if note else []) if not _active(settings, unit)]
    except StepFailed as error:
        return report_failure("verify", error)
    if off:
        return report_failure("verify", StepFailed(f"not active: {', '.join(off)}"))
    return True


def _active(settings: dict[str, Any], unit: str) -> bool:
    """Return true if the unit is active. `activating` and `reloading` count too, because such a unit must be stopped as well."""
    _, said = ask(settings["systemctl"], "show", "--property=ActiveState", "--value", unit)
    state = said.strip()
    if state not in ("active", "activating", "reloading", "deactivating", "inactive", "failed", "maintenance"):
        raise StepFailed(f"the state of {unit} is not known: {state[-200:]!r}")
    return state in ("active", "activating", "reloading")
