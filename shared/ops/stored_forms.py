"""The number of the stored forms: what administrators see of it, and how they raise it (`engine/stored_forms`)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pydantic import BaseModel, Field

from ..engine.stored_forms import OlderProcess, StoredForms
from ..web.fields.types import Strict
from ..web.problem import conflict
from ..web.routes import Answer, Call, RouteGroup

log = logging.getLogger(__name__)


class StoredFormsOut(BaseModel):
    """The number of the stored forms. `stored`: null if no process has read it yet, or if this version cannot read it."""

    stored: int | None
    own: int = Field(description="The number that the answering process knows.")


class StoredFormsIn(Strict):
    """The number to raise to: that of the version that is deployed."""

    to: int = Field(ge=1, le=1_000_000)


class StoredFormsService:
    """Shows and raises the number. One per process."""

    def __init__(self, sides: Sequence[StoredForms]) -> None:
        """sides: the account's, or those of both accounts of a mirrored pair."""
        self._sides = sides

    def state(self) -> StoredFormsOut:
        """Return the number as this process has read it: of a pair, the lower one."""
        found = [side.found for side in self._sides]
        return StoredFormsOut(stored=min((each for each in found if each is not None), default=None), own=self._sides[0].own)

    async def raise_to(self, number: int) -> StoredFormsOut:
        """Store this version's number in every account. A repetition changes nothing.

        Raises 409 if this process, or one that worked a short while ago, is of an older version, and `StorageError`.
        """
        if (own := self._sides[0].own) != number:
            raise conflict("older-version", f"the answering process knows stored forms {own}, not {number}; deploy that version first")
        for side in self._sides:
            before = await side.raise_to_own()
            if isinstance(before, OlderProcess):
                detail = f"a process of an older version worked {before.ago / 1000:.0f} s ago; repeat the call when all have ended"
                raise conflict("older-version", detail)
            if before < own:
                log.warning("The number of the stored forms is now %d", own, extra={"action": "stored_forms_raised", "before": before})
        return self.state()


stored_forms = RouteGroup[StoredFormsService]("operations", scope="admin")


@stored_forms.get("v1/storage/forms", answers={200: StoredFormsOut})
async def storage_forms(call: Call[StoredFormsService]) -> Answer:
    """Return the number of the stored forms, and the one that the answering process knows."""
    return Answer(200, call.service.state(), {"cache-control": "no-store"})


@stored_forms.post("v1/storage/forms/raise", answers={200: StoredFormsOut, 409: "older-version"}, examples={"to the second": {"to": 2}})
async def storage_forms_raise(call: Call[StoredFormsService, StoredFormsIn]) -> Answer:
    """Raise the number of the stored forms, after the last process of the older version has ended.

    From then on, a process of an older version serves reads only. The number cannot be lowered. Repeating the call changes nothing.
    """
    return Answer(200, await call.service.raise_to(call.body.to), {"cache-control": "no-store"})
