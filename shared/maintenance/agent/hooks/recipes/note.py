"""Shared by recipes: the note of what was switched off, and functions that run commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from .....core.files import replace_file

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class StepFailed(Exception):
    """A command of a hook failed. The message has its output."""


@dataclass(slots=True)
class Note:
    """The parts that a recipe switched off.

    on: the parts that were on before, in the order of switching off. restored: they are on again, as far as the recipe could find out.

    Written before anything is switched off: a note may say more than was done, never less.
    """

    path: Path
    boot: str
    on: list[str]
    drained: bool = False
    restored: bool = False

    @classmethod
    def read(cls, recipe: str) -> Self | None:
        """The note of a recipe, or None. One that cannot be read counts as none: better a node that is left off than one that is
        switched on against its operator's will."""
        path = Path(os.environ["TOCSIN_STATE"]) / f"{recipe}.json"
        try:
            stored: dict[str, Any] = json.loads(path.read_text())
            return cls(path, str(stored["boot"]), [str(each) for each in stored["on"]], bool(stored["drained"]), bool(stored["restored"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            print(f"{path} cannot be read ({error}): the recipe goes on as if it did not exist")
            return None

    @classmethod
    def of(cls, recipe: str, on: list[str]) -> Self:
        """Create and save a note."""
        note = cls(Path(os.environ["TOCSIN_STATE"]) / f"{recipe}.json", BOOT.read_text().strip(), on)
        note.save()
        return note

    @property
    def of_this_boot(self) -> bool:
        """Return true if the machine has not booted since."""
        return self.boot == BOOT.read_text().strip()

    def save(self) -> None:
        """Write the note to disk, so that it survives an immediate end of the machine."""
        content = {"boot": self.boot, "on": self.on, "drained": self.drained, "restored": self.restored}
        # The agent refuses a note that others can write to.
        before = os.umask(0o077)
        try:
            replace_file(self.path, json.dumps(content))
        finally:
            os.umask(before)


def options() -> dict[str, Any]:
    """Return the recipe's settings."""
    found: dict[str, Any] = json.loads(os.environ["TOCSIN_RECIPE"])
    return found


def ask(*command: str) -> tuple[int, str]:
    """Run a command to its end, show it with what it says, and return exit code and output. The hook's own deadline bounds it.

    Raises `StepFailed` where it cannot be run.
    """
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise StepFailed(f"{command[0]} cannot be run: {error.strerror}") from None
    print(f"$ {' '.join(command)} -> {done.returncode}", done.stdout.strip(), sep="\n", flush=True)
    return done.returncode, done.stdout


def do(*command: str) -> str:
    """Run a command that must succeed, and return its output. Raises `StepFailed`."""
    code, output = ask(*command)
    if code:
        raise StepFailed(f"{' '.join(command)} ended with {code}: {output.strip()[-500:]}")
    return output


def report_failure(function: str, error: StepFailed) -> bool:
    """Print why a hook failed. Returns False, which makes the hook fail."""
    print(f"{function}: {error}", file=sys.stderr, flush=True)
    return False
