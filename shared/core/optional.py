"""The error raised where a part of the package needs the libraries of an extra."""

from __future__ import annotations


def missing_extra(part: str, missing: ModuleNotFoundError, extra: str = "testing") -> ImportError:
    """Return the error that names the missing library and says how to install it. The wheel is named as a file: no index has it."""
    how = f"pip install 'dist/tocsin-0.1.0-py3-none-any.whl[{extra}]' (`make wheel` builds it)"
    return ImportError(f"{part} needs {missing.name}: install the wheel with its extra `{extra}`: {how}", name=missing.name)
