"""The features of events that hang on the points of the core (`points`), each in a file or folder of its own.

finding      rows that make events findable: dead and retrying ones, held ones, and those with searchable labels
long_work/   receivers that complete an event later: tokens, and what becomes of the event
callbacks    what is owed after an event has ended
answers      the heads of receivers' answers, beside the event
copies       mirrored events: which row is a copy of another account's
fanouts/     the ids of a fan-out's events

The core gets the facets as an argument: an owner's are those of its tenant (`facets_for`). What is called for many tenants, or for a user
who changes one event, uses `FACETS`. A new facet has a file here and an entry in the table below, which fixes the order. CONTRIBUTING.md
says what it may do, and which tests it needs.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final

from ..points import Facets
from .answers import Answers
from .callbacks import Callbacks
from .copies import Copies
from .finding import Held, Labels, States
from .long_work.facet import LongWork


def facets_for(searchable: Collection[str] = (), *, notices: bool = False) -> Facets:
    """Return the facets of a tenant's events. searchable, notices: what the tenant has asked for (`Labels`, `Callbacks`)."""
    return _facets(tuple(searchable), notices)


@lru_cache
def _facets(searchable: tuple[str, ...], notices: bool) -> Facets:
    return Facets((States(), Held(), Labels(searchable), LongWork(), Callbacks(notices), Answers(), Copies()))


FACETS: Final = facets_for()
"""The facets for writes that depend on nothing the tenant has asked for."""
