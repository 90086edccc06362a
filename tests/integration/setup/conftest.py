"""Clones at several stages of their setup."""

from __future__ import annotations

from pathlib import Path

import pytest

from .checkout import Checkout


@pytest.fixture
def bare(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture
def checkout(bare: Checkout) -> Checkout:
    """A machine with all it takes."""
    bare.python("python3.13")
    bare.node()
    return bare


@pytest.fixture
def ready(checkout: Checkout) -> Checkout:
    """A checkout after its first set-up."""
    assert checkout.setup()[0] == 0
    checkout.done()
    return checkout
