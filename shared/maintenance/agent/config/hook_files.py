"""Lists the files that decide what a hook does: its program, the scripts and programs in its command line, or its Python module.

A command line is read as far as its text shows: wrappers such as `timeout 30 bash x.sh`, and the code of `sh -c`. A script's own commands
are not read.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ..hooks.runner import Hook

_SHELLS: Final = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_CODE: Final = {
    **dict.fromkeys(_SHELLS, re.compile(r"-[A-Za-z]*c[A-Za-z]*")),
    "python": re.compile(r"-[A-Za-z]*[cm]"),
    "perl": re.compile(r"-\w*[eE]"),
    "ruby": re.compile(r"-\w*e"),
    "node": re.compile(r"-[ep]|--eval|--print"),
    "php": re.compile(r"-r"),
    "lua": re.compile(r"-e"),
    "pwsh": re.compile(r"-(c|command|encodedcommand)", re.IGNORECASE),
    "java": re.compile(r"(?!)"),
}
"""By interpreter: the options after which code or a module's name follows, so that no script does."""
_WRAPPERS: Final = (
    *("busybox", "chrt", "env", "flock", "ionice", "nice", "nohup", "numactl", "runuser", "setpriv", "setsid", "stdbuf"),
    *("sudo", "systemd-run", "taskset", "time", "timeout"),
)
_BEFORE_COMMANDS: Final = ("", ";", "&", "&&", "|", "||", "(", "{", "!", "then", "do", "else", "exec")
"""Words of shell code after which a command's name follows; '' stands for the start of the code."""
_OWN_PACKAGE: Final = __package__.partition(".")[0]
_MODULE_ENDS: Final = (".py", ".pyc", ".so")
_PATHS: Final = (
    *("PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "ENV", "LD_PRELOAD", "LD_LIBRARY_PATH"),
    *("PERL5LIB", "RUBYLIB", "NODE_PATH", "CLASSPATH"),
)
"""Variables that name files or folders from which a program takes code."""


def hook_files(hook: Hook) -> Iterator[Path]:
    """Yield the files and folders from which the hook's process takes code."""
    if hook.command:
        yield from _command_files(hook, hook.command)
        yield from _missing_program(hook)
    else:
        yield from _module_files(hook)
    for name in _PATHS:
        for each in re.split("[: ]" if name == "LD_PRELOAD" else ":", hook.environment.get(name, "")):
            if "/" in each:
                yield Path(each)


def find_program(hook: Hook, name: str) -> Path | None:
    """Return the file that the hook's process runs for a name; None if it is not on PATH."""
    if "/" in name:
        return Path(name)
    found = shutil.which(name, path=search_path(hook))
    return Path(found) if found else None


def search_path(hook: Hook) -> str:
    """Return the PATH of the hook's process."""
    return hook.environment.get("PATH", os.environ.get("PATH", os.defpath))


def _command_files(hook: Hook, command: Sequence[str]) -> Iterator[Path]:
    wrapped = _kind(command[0]) in _WRAPPERS
    for number, word in enumerate(command):
        if number == 0 or ("/" not in word and (wrapped or _kind(word) in _CODE)):
            if (program := find_program(hook, word)) is not None:
                yield program
        elif "/" in word and _is_file(word) and os.access(word, os.X_OK):
            yield Path(word)
        if _kind(word) in _CODE:
            yield from _script_files(hook, command[number:])
        if word in (".", "source") and number + 1 < len(command) and (_is_file(named := command[number + 1]) or _is_missing(named)):
            yield Path(named)


def _missing_program(hook: Hook) -> Iterator[Path]:
    """Yield the program or script behind wrappers such as `timeout` if it does not exist: the first absolute path of the command line."""
    has_lock = False
    for word in hook.command:
        kind = _kind(word)
        if kind in _WRAPPERS or kind in _CODE:
            has_lock = has_lock or kind == "flock"
        elif word.startswith("/") and has_lock:
            has_lock = False
        elif word.startswith("/"):
            yield from [Path(word)] if _is_missing(word) else []
            return
        elif find_program(hook, word) is not None:
            # What follows are its arguments.
            return


def _script_files(hook: Hook, command: Sequence[str]) -> Iterator[Path]:
    """Yield the script that an interpreter reads, or the files that its code names if it is a shell."""
    kind = _kind(command[0])
    for number, word in enumerate(command[1:], 1):
        if _CODE[kind].fullmatch(word):
            if kind in _SHELLS and number + 1 < len(command) and (words := _words(command[number + 1])):
                yield from _command_files(hook, ("env", *words))
                pairs = zip(("", *words), words, strict=False)
                yield from (Path(each) for before, each in pairs if before in _BEFORE_COMMANDS and _is_missing(each))
            return
        # The value of an option may come first, as in `bash -o pipefail x.sh`.
        if _is_file(word):
            yield Path(word)
            return
        if _is_missing(word) or (word.startswith("/") and Path(word).is_dir()):
            yield Path(word)


def _words(code: str) -> list[str]:
    """Split shell code into words, without regard to what they mean."""
    found = shlex.shlex(code, posix=True, punctuation_chars=True)
    found.whitespace_split = True
    try:
        return list(found)
    except ValueError:
        return code.split()


def _kind(word: str) -> str:
    """Return the name of a program without its folder and version: `python` for `/usr/bin/python3.13`."""
    return word.rpartition("/")[2].rstrip("0123456789.")


def _is_file(word: str) -> bool:
    # A word may be any text, also one that is too long for a path.
    with contextlib.suppress(OSError, ValueError):
        return Path(word).is_file()
    return False


def _is_missing(word: str) -> bool:
    """Return true for an absolute path that does not exist. A user who creates it decides what runs."""
    with contextlib.suppress(OSError, ValueError):
        return word.startswith("/") and not Path(word).exists()
    return False


def _module_files(hook: Hook) -> Iterator[Path]:
    parts = hook.call.partition(":")[0].split(".")
    if parts[0] == _OWN_PACKAGE:
        # The recipes are as trustworthy as the agent, which is running already.
        return
    if hook.path:
        root = Path(hook.path)
        yield root
        yield from _modules_in(root)
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
        if base.is_dir():
            yield from _modules_in(base)
        file = base.with_name(f"{base.name}.py")
        if file.is_file():
            yield file


def _modules_in(folder: Path) -> Iterator[Path]:
    """Yield the modules in a folder, which import each other, and its cache of compiled modules."""
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if path.name == "__pycache__":
                yield path
                yield from sorted(path.iterdir())
            elif path.name.endswith(_MODULE_ENDS):
                yield path
