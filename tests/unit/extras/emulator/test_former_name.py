"""`tocsin.emulator`, the deprecated former name of `tocsin.extras.emulator`."""

from __future__ import annotations

import importlib
import sys

import pytest

from shared.extras import emulator


def test_former_name_warns_and_exports_the_same_objects() -> None:
    sys.modules.pop("shared.emulator", None)
    with pytest.warns(DeprecationWarning, match=r"now tocsin\.extras\.emulator"):
        former = importlib.import_module("shared.emulator")
    assert former.__all__ == emulator.__all__
    assert all(getattr(former, name) is getattr(emulator, name) for name in emulator.__all__)
