"""Checks that only root and the agent's user can change a file that the agent obeys: its settings, key, hooks and state.

The agent often runs as root. A user who can write to one of these files, replace it, or rename a folder above it, would be root too.
Access lists count as well, because the group's bits of a file's mode show the most that its access list grants.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ..hooks.runner import Hook

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ: Final = stat.S_IRWXG | stat.S_IRWXO
_INTERPRETERS: Final = ("sh", "bash", "dash", "ksh", "zsh", "python", "perl", "ruby", "node", "pwsh")
_OWN_PACKAGE: Final = __package__.partition(".")[0]


def find_untrusted(path: Path) -> str:
    """Return why others can change `path`, with the command that mends it; an empty text if they cannot.

    The path itself and every folder above it must belong to root or the agent's user, and must not be writable by group or others. A sticky
    folder above it, such as /tmp, may be writable. Symbolic links are followed, and the folders that hold them are checked too. What does
    not exist cannot be wrong: the folders above it are checked.
    """
    path = path.absolute()
    target = os.path.realpath(path)
    for part, status in _walk(path, set()):
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid not in (0, os.geteuid()):
            text = f"{part} belongs to {_name(status.st_uid)}, who could change what the agent does"
            return f"{text}; only root and the agent's user may own it; run: chown {_name(os.geteuid())} {part}"
        if stat.S_ISLNK(status.st_mode):
            continue
        is_above = stat.S_ISDIR(status.st_mode) and os.path.realpath(part) != target
        if mode & _OTHERS_WRITE and not (is_above and mode & stat.S_ISVTX):
            return f"other users of this machine can write to {part} (mode {mode:04o}); run: chmod go-w {part}"
    return ""


def find_readable_key(path: Path) -> str:
    """Return why others can read the key file, with the command that mends it; an empty text if they cannot. Raises `OSError`."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS_READ:
        return f"other users of this machine can read {path} (mode {mode:04o}); run: chmod 600 {path}"
    return ""


def find_untrusted_hook(hook: Hook) -> str:
    """Return why others can change what the hook runs; an empty text if they cannot.

    Checked are the program, the scripts and programs among its arguments, and the module of a Python callable.
    """
    for path in _files(hook):
        if found := find_untrusted(path):
            return found
    return ""


def find_writable_search_path(hook: Hook) -> str:
    """Return a folder of PATH in which others could put a program that would run in place of the hook's; an empty text if there is none."""
    if not hook.command or "/" in hook.command[0]:
        return ""
    found = _program(hook, hook.command[0])
    for name in _search_path(hook).split(os.pathsep):
        folder = Path(name or ".")
        if found is not None and found.parent == folder:
            return ""
        if folder.is_dir() and find_untrusted(folder):
            return str(folder)
    return ""


def _files(hook: Hook) -> Iterator[Path]:
    if hook.command:
        program = _program(hook, hook.command[0])
        if program is not None:
            yield program
        script = _script(hook.command)
        for argument in hook.command[1:]:
            path = Path(argument)
            # An argument may be any text, such as code for `sh -c`.
            with contextlib.suppress(OSError, ValueError):
                if (argument == script or "/" in argument) and path.is_file() and (argument == script or os.access(path, os.X_OK)):
                    yield path
        return
    module = hook.call.partition(":")[0]
    parts = module.split(".")
    if parts[0] == _OWN_PACKAGE:
        # The recipes are as trustworthy as the agent, which is running already.
        return
    if hook.path:
        yield Path(hook.path)
        root = Path(hook.path)
    else:
        try:
            found = find_spec(parts[0])
        except (ImportError, ValueError):
            return
        if found is None or not found.origin:
            return
        origin = Path(found.origin)
        root = origin.parent.parent if origin.name == "__init__.py" else origin.parent
    for end in range(1, len(parts) + 1):
        base = root.joinpath(*parts[:end])
        for file in (base / "__init__.py", base.with_name(f"{base.name}.py")):
            if file.is_file():
                yield file


def _script(command: tuple[str, ...]) -> str:
    """Return the argument that an interpreter reads as its script; an empty text if there is none, as with `sh -c`."""
    if Path(command[0]).name.rstrip("0123456789.") in _INTERPRETERS:
        for argument in command[1:]:
            if not argument.startswith("-"):
                return argument
            if argument[-1] in "cem":
                break
    return ""


def _program(hook: Hook, name: str) -> Path | None:
    """Return the file that the hook's process runs for a name; None if it is not on PATH."""
    if "/" in name:
        return Path(name)
    found = shutil.which(name, path=_search_path(hook))
    return Path(found) if found else None


def _search_path(hook: Hook) -> str:
    return hook.environment.get("PATH", os.environ.get("PATH", os.defpath))


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
