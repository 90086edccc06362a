"""The form in which the operator's lists name a tenant: `shop@0123456789abcdef`, its name and its uid. Pure.

Another tenant can be made under the name of a deleted one. The uid belongs to one tenant alone, so the later tenant gets nothing that was
listed for the former. On the emulator an entry may leave the uid out, so that settings can be written before their tenants exist.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ..core.errors import UnsafeSettings

if TYPE_CHECKING:
    # The bare package has no library for settings.
    from ..core.settings import Settings

_FORM: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?(@[0-9a-f]{16})?")


class TenantIdentity(NamedTuple):
    """A tenant's name, and the uid that no other tenant has."""

    name: str
    uid: str

    @property
    def listed(self) -> tuple[str, str]:
        """The texts by which an entry names this tenant: with its uid and, on the emulator, without."""
        return f"{self.name}@{self.uid}", self.name


def check_listed(settings: Settings, setting: str, text: str) -> str:
    """Return the text by which an entry of a setting names a tenant. UnsafeSettings if it names none."""
    found = _FORM.fullmatch(text)
    if found is None or (found[1] is None and not settings.emulated):
        raise UnsafeSettings(
            f"{setting}: {text[:60]!r} must name a tenant with its uid, such as shop@0123456789abcdef; `tocsin tenants get` shows the uid"
        )
    return text
