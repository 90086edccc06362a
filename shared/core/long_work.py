"""Names that the service and the receivers of long work share: headers, and the shape of a token."""

from __future__ import annotations

import re
from typing import Final

HEADER_URL: Final = "tocsin-completion-url"
"""Header of a delivery: the URL under which the attempt's work is completed. It holds no secret."""
HEADER_TOKEN: Final = "tocsin-completion-token"
"""Header of a delivery: the token of this attempt, to be returned as `Authorization: Bearer`."""
HEADER_WITHIN: Final = "tocsin-completion-within"
"""Header of a delivery: whole seconds from the answer, and from each heartbeat, until silence counts as a failed attempt."""
OUR_HEADERS: Final = "tocsin-completion-"
"""Beginning of the names of these headers."""
HEADER_ANSWER: Final = "Tocsin-Complete"
"""Header of an answer with status 202: the receiver completes the event later."""
LATER: Final = "later"
"""Value of `HEADER_ANSWER`."""
TOKEN: Final = re.compile(r"tct_([1-9][0-9]{0,11})_([A-Za-z0-9_-]{43})")
"""The shape of a token: the epoch of the owner that made the attempt, and a secret."""
