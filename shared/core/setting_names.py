"""Names of the settings that triggers and code share. Apart from `settings`, so that nodes read them without pydantic-settings."""

from __future__ import annotations

from typing import Final

CONNECTION: Final = "TocsinStorage"
"""The connection of the home account: triggers use it as their `connection`, and identity settings begin with it."""
MIRROR: Final = "TocsinMirror"
"""The connection of a mirrored pair's second account."""
