"""`tocsin locks` against the service in memory."""

from __future__ import annotations

import pytest

from shared.cli.exits import Exit
from tests.texts import assert_text

from ..conftest import Command


def test_locks_are_listed_shown_revoked_and_released(tocsin: Command) -> None:
    assert tocsin.ok("locks", "list").out == "no locks\n"
    grant = {"nonce": "n1", "ttl": "PT10S"}
    held = tocsin.kit.client.call("PUT", "locks/nightly", {"holder": "web-1", **grant})
    tocsin.kit.client.call("PUT", "locks/nightly", {"holder": "web-2", **grant, "wait": "PT1M"})
    tocsin.kit.client.call("PUT", "locks/other", {"holder": "web-1", **grant})
    assert tocsin.ok("locks", "list").row("nightly")[1:4] == ["held", "web-1", str(held["token"])]
    [shown] = tocsin.ok("locks", "show", "nightly", "--json").documents
    assert (shown["state"], [each["holder"] for each in shown["waiters"]]) == ("held", ["web-2"])
    shown_rows = tocsin.ok("locks", "show", "nightly")
    assert (shown_rows.row("1")[1], "holder" in shown_rows.out, "[{" in shown_rows.out) == ("web-2", True, False)
    assert_text("locks.revoked", tocsin.ok("locks", "revoke", "nightly", "--note", "it hangs").lines, lock="nightly", seconds=12.2)
    assert tocsin.ok("locks", "list").row("nightly")[1] == "revoked"
    token = str(held["token"])
    wrong = tocsin("locks", "release", "nightly", "--token", str(held["token"] + 1), "--yes")
    assert (wrong.code, wrong.out) == (Exit.REFUSED, "") and f"web-1 does, with token {token}" in wrong.err
    assert "confirmation" in tocsin("locks", "release", "nightly", "--token", token).err
    [freed] = tocsin.ok("locks", "release", "nightly", "--token", token, "--yes", "--json").documents
    assert freed == {"lock": "nightly", "token": held["token"], "released": True}
    assert tocsin.ok("locks", "list").row("nightly")[1] == "free"
    assert_text("locks.free", tocsin.ok("locks", "revoke", "nightly", "--note", "again").lines, lock="nightly")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("show", "missing"), Exit.REFUSED, "lock"),
        (("revoke", "missing", "--note", "n"), Exit.REFUSED, "lock"),
        (("run", "bad/name", "--", "true"), Exit.USAGE, "is not the name of a lock"),
        (("run", "", "--", "true"), Exit.USAGE, "is not the name of a lock"),
        (("run", "x", "--ttl", "1s", "--", "true"), Exit.USAGE, "from 2 seconds to 1 hour"),
        (("run", "x", "--wait", "soon", "--", "true"), Exit.USAGE, "is not a duration"),
    ],
)
def test_wrong_calls_say_why(tocsin: Command, words: tuple[str, ...], code: int, text: str) -> None:
    result = tocsin("locks", *words)
    assert (result.code, result.out) == (code, "") and text in result.err
