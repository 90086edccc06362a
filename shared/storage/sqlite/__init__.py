"""Tables and queues in a folder."""

from ...core.errors import TocsinError


class FolderInUse(TocsinError):
    """Raised if another process has the folder open."""
