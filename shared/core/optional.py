"""What to say where a part of the package needs libraries that an extra brings."""

from __future__ import annotations


def missing_extra(part: str, missing: ModuleNotFoundError, extra: str = "testing") -> ImportError:
    """The error to raise: which library is not there, and how to install it. No index has the package: its wheel is named as a file."""
    how = f"pip install 'dist/tocsin-0.1.0-py3-none-any.whl[{extra}]' (`make wheel` builds it)"
    return ImportError(f"{part} needs {missing.name}: install the wheel with its extra `{extra}`: {how}", name=missing.name)
