"""`tocsin.emulator`, the deprecated former name of `tocsin.extras.emulator`."""

from __future__ import annotations

import importlib
import sys

import pytest

from shared.extras import emulator


def test_former_name_warns_and_exports_the_same_objects() -> None:
    sys.modules.pop("shared.emulator", None)
    with pytest.warns(DeprecationWarning, match=r"now tocsin\.extras\.emulator") as warned:
        former = importlib.import_module("shared.emulator")
    assert [each.filename for each in warned] == [__file__], "the line that uses the name, not importlib's"
    assert former.__all__ == emulator.__all__
    assert all(getattr(former, name) is getattr(emulator, name) for name in emulator.__all__)


def test_an_import_statement_is_named_too() -> None:
    sys.modules.pop("shared.emulator", None)
    with pytest.warns(DeprecationWarning) as warned:
        import shared.emulator  # noqa: F401
    assert [each.filename for each in warned] == [__file__]
