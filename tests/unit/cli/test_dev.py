"""`tocsin dev`: the settings of its process."""

from __future__ import annotations

import resource

from shared.cli.dev import OPEN_FILES, _allow_open_files


def test_more_open_files_are_allowed_where_the_system_begins_with_few() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for soft in (256, OPEN_FILES + 1):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
            _allow_open_files()
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (max(soft, OPEN_FILES), before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
