"""The ports of the application: everything through which it reaches the outside."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.clock import Clock
from ..core.ids import Ids
from ..core.process_identity import ProcessIdentity
from ..delivery.channels import Sender
from ..engine.stored_forms import STORED_FORMS
from ..ops.export.service import Outlet, all_there
from ..storage import Storage

if TYPE_CHECKING:
    from ..ops.verification.watch import TraceWatch


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
    outlets: Sequence[Outlet] = ()
    """Receivers of the metrics."""
    outlets_ready: Callable[[], Awaitable[None]] = all_there
    """Returns when all outlets are in the sequence."""
    process: ProcessIdentity | None = None
    """Names this process in the rows of what it owns; None: owners' processes are not known."""
    trace_watch: TraceWatch | None = None
    """Verifies the trace of this process. None without a trace."""
    entropy: Callable[[int], bytes] = secrets.token_bytes
    """Returns as many random bytes as asked for, for tenants' keys and marks of their changes."""
    stored_forms: int = STORED_FORMS
    """Number of the stored forms that this process knows."""
