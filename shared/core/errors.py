"""The one tree of Tocsin's exceptions.

    TocsinError
    +-- UnsafeSettings        a combination of settings the app refuses to start with
    +-- Problem               an answer to a caller: status, code, detail, pointers (RFC 9457)
    +-- Refused, Unreachable, ...   what calls of the client raise: client/errors.py
    +-- StorageError          storage could not do what was asked
        +-- Unavailable       certainly not applied: throttled or never reached, retries used up
        +-- Rejected          certainly not applied: the request itself is wrong (size, name, rights)
        +-- OutcomeUnknown    a write that may or may not have been applied (lost answer, 5xx, time-out)

A lost race is no exception: transitions return values (`Applied | WriteRefused`). Exceptions are for unexpected failures.
"""

from __future__ import annotations

from typing import Any, Literal

type Outcome = Literal["unknown", "unchanged"]
"""The effect of a call that failed: it may have been applied, or certainly nothing was changed."""


class TocsinError(Exception):
    """Root of everything Tocsin raises on purpose."""


class UnsafeSettings(TocsinError):
    """Settings with which the app must not run. The message names them and says what to set instead.

    Not a ValueError on purpose: pydantic must not fold it into a ValidationError that echoes secrets.
    """


class Problem(TocsinError):
    """An answer with an RFC 9457 body. `errors` holds `{"pointer", "detail"}` pairs; nothing in it may be a secret.

    limit: the name of the tenant's limit that refused the call, such as `open_events`; '' for any other reason. It is not in the body.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        title: str | None = None,
        errors: list[dict[str, str]] | None = None,
        headers: dict[str, str] | None = None,
        outcome: Outcome | None = None,
        limit: str = "",
    ) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status, self.code, self.detail = status, code, detail
        self.title = title or code.replace("-", " ").capitalize()
        self.errors = errors or []
        self.headers = headers or {}
        self.outcome, self.limit = outcome, limit

    def body(self, instance: str = "") -> dict[str, Any]:
        """Return the problem document. Its `type` ends in the code."""
        out: dict[str, Any] = {
            "type": f"https://tocsin.dev/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if instance:
            out["instance"] = instance
        if self.outcome:
            out["outcome"] = self.outcome
        if self.errors:
            out["errors"] = self.errors
        return out


class StorageError(TocsinError):
    """Storage did not do what was asked."""

    account: str = ""
    """The account, where there are several: a number or "second", never a name that only operators may know."""


class Unavailable(StorageError):
    """Certainly not applied: throttled, or the connection was never made, until the retries ran out."""


class Rejected(StorageError):
    """Certainly not applied, and would not be on a second try: a limit, a name, missing rights."""


class OutcomeUnknown(StorageError):
    """A write whose answer was lost: it may have been applied, or may still be. Fence, read back, then decide."""

    retry_after: float | None = None
    """Seconds that the service asked to wait, as throttling answers do. Wait before the fence too: it is a request like any other."""


def text_of(error: BaseException) -> str:
    """Return why a call had no good answer. The `TimeoutError` of `asyncio.timeout` has no text of its own."""
    return str(error) or "no answer came in time"


def missing_extra(part: str, missing: ModuleNotFoundError, extra: str = "testing") -> ImportError:
    """Return the error that names the missing library and says how to install it. The wheel is named as a file: no index has it."""
    how = f'pip install "$(ls dist/tocsin-*.whl)[{extra}]" (`make wheel` builds it)'
    return ImportError(f"{part} needs {missing.name}: install the wheel with its extra `{extra}`: {how}", name=missing.name)
