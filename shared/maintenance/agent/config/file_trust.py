"""Checks that only root and the agent's user can change a file that the agent obeys: its settings, key, hooks and state.

The agent often runs as root. A user who can write to one of these files, replace it, or rename a folder above it, would be root too.
Access lists count as well, because the group's bits of a file's mode show the most that its access list grants.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ..hooks.runner import Hook
from .hook_files import find_program, hook_files, search_path

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ: Final = stat.S_IRWXG | stat.S_IRWXO
_STATE_FILES: Final = ("*.json", "*.jsonl", "*.new", "disabled", "hooks", "hooks/*.run")
"""Patterns of the files that the agent and the recipes read in the state folder."""


def find_untrusted(path: Path, *, may_be_created: bool = False) -> str:
    """Return why others can change `path`, with the command that mends it; an empty text if they cannot.

    The path itself and every folder above it must belong to root or the agent's user, and must not be writable by group or others. A sticky
    folder above it, such as /tmp, may be writable. Symbolic links are followed, and the folders that hold them are checked too. What does
    not exist must be in a folder that only root and the agent's user can write to, because anyone could create it in a sticky folder.

    may_be_created: the agent creates the path itself, and checks it again.
    """
    path = path.absolute()
    target = os.path.realpath(path)
    steps = list(_walk(path, set()))
    for part, status in steps:
        mode = stat.S_IMODE(status.st_mode)
        if wrong := _wrong_owner(part, status):
            return wrong
        if stat.S_ISLNK(status.st_mode):
            continue
        is_above = stat.S_ISDIR(status.st_mode) and os.path.realpath(part) != target
        if mode & _OTHERS_WRITE and not (is_above and mode & stat.S_ISVTX):
            return f"other users of this machine can write to {part} (mode {mode:04o}); run: chmod go-w {part}"
    return "" if may_be_created or os.path.exists(target) else _find_creatable(path, steps)


def _find_creatable(path: Path, steps: Sequence[tuple[Path, os.stat_result]]) -> str:
    """Return why others can create a path that does not exist; an empty text if they cannot. steps: the result of `_walk`."""
    folders = [(part, status) for part, status in steps if stat.S_ISDIR(status.st_mode)]
    if not folders or not folders[-1][1].st_mode & _OTHERS_WRITE:
        return ""
    return f"{path} does not exist, and other users of this machine can create it in {folders[-1][0]}; create it, or name another path"


def find_readable_key(path: Path) -> str:
    """Return why others can read the key file, with the command that mends it; an empty text if they cannot. Raises `OSError`."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS_READ:
        return f"other users of this machine can read {path} (mode {mode:04o}); run: chmod 600 {path}"
    return ""


def find_untrusted_state(folder: Path) -> str:
    """Return why others can change the agent's state folder or what the agent reads there; an empty text if they cannot.

    In a folder that only its owner may enter, modes of files do not matter. Files that belong to other users do: they may still have them
    open. A folder that does not exist yet is created by the agent, and checked then.
    """
    if found := find_untrusted(folder, may_be_created=True):
        return found
    is_private = folder.is_dir() and not stat.S_IMODE(folder.stat().st_mode) & _OTHERS_READ
    for path in sorted(found for pattern in _STATE_FILES for found in folder.glob(pattern)):
        with contextlib.suppress(FileNotFoundError):
            if path.is_symlink() or not is_private:
                if found := find_untrusted(path):
                    return found
            elif wrong := _wrong_owner(path, path.lstat()):
                return wrong
    return ""


def find_untrusted_hook(hook: Hook) -> str:
    """Return why others can change what the hook runs; an empty text if they cannot.

    Checked are the program, the scripts and programs in its command line, and the module of a Python callable with its neighbours.
    """
    for path in hook_files(hook):
        if found := find_untrusted(path):
            return found
    return ""


def find_writable_search_path(hook: Hook) -> str:
    """Return a folder of PATH in which others could put a program that would run in place of the hook's; an empty text if there is none."""
    if not hook.command or "/" in hook.command[0]:
        return ""
    found = find_program(hook, hook.command[0])
    for name in search_path(hook).split(os.pathsep):
        folder = Path(name or ".")
        if found is not None and found.parent == folder:
            return ""
        if folder.is_dir() and find_untrusted(folder):
            return str(folder)
    return ""


def _wrong_owner(path: Path, status: os.stat_result) -> str:
    if status.st_uid in (0, os.geteuid()):
        return ""
    text = f"{path} belongs to {_name(status.st_uid)}, who could change what the agent does"
    return f"{text}; only root and the agent's user may own it; run: chown {_name(os.geteuid())} {path}"


def _walk(path: Path, seen: set[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield each folder on the way to an absolute path, then the path, and after each link the way to what it leads to.

    The walk ends where nothing exists, or where this user may not look.
    """
    # A path is not normalized here: behind a link, `..` is another folder than the text shows.
    for part in (*reversed(path.parents), path):
        if part in seen:
            continue
        seen.add(part)
        try:
            status = part.lstat()
            leads_to = part.readlink() if stat.S_ISLNK(status.st_mode) else None
        except OSError:
            return
        yield part, status
        if leads_to is not None:
            yield from _walk(part.parent / leads_to, seen)


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
