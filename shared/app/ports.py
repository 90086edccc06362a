"""The ports of the application: everything through which it reaches the outside."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..core.clock import Clock
from ..core.ids import Ids
from ..core.process_identity import ProcessIdentity
from ..delivery.channels import Sender
from ..engine.stored_forms import STORED_FORMS
from ..ops.export.service import NO_OUTLETS, Outlets
from ..storage import Storage
from .parts import TraceReader


@dataclass(frozen=True, slots=True)
class Ports:
    """The adapters that `build` wires to the jobs; production and tests choose them."""

    storage: Storage
    """Tables and queues; `storage.second` is the second account of a mirrored pair."""
    clock: Clock
    ids: Ids
    senders: Mapping[str, Sender]
    """Channel type -> sender, over the queues of the first account."""
    senders_second: Mapping[str, Sender] | None = None
    """Channel type -> sender, over the queues of the second account; None if `senders` serve both."""
    outlets: Outlets = NO_OUTLETS
    process: ProcessIdentity | None = None
    """Names this process in the rows of what it owns; None: owners' processes are not known."""
    trace_readers: Sequence[TraceReader] = ()
    """Read the protocol trace of this process."""
    entropy: Callable[[int], bytes] = secrets.token_bytes
    """Returns as many random bytes as asked for, for tenants' keys and marks of their changes."""
    stored_forms: int = STORED_FORMS
    """Number of the stored forms that this process knows."""
