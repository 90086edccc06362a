"""Requests with a token: the checks of a channel that need no list, and the way to a delivery's token."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from ...core.web_urls import HostOfUrl
from .audiences import refusal
from .grants import EntraAudience, refused_target
from .tokens import EntraTokens, NoToken

NO_IDENTITY = "this service has no identity for tokens; its operator sets TOCSIN_TOKEN_CLIENT_ID"


class UrlWithLogin(HostOfUrl, Protocol):
    """A parsed address that may hold a user and a password."""

    @property
    def user(self) -> str | None:
        """The user."""

    @property
    def password(self) -> str | None:
        """The password."""


class NotSent(Exception):
    """Raised if a delivery must not be sent, because it has no token. Its text is the cause. It may succeed later."""


def channel_faults(audience: str, url: UrlWithLogin, headers: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the reasons why a channel with this audience can never deliver, as (pointer, detail). headers: names of its own."""
    if (reason := refusal(audience)) is not None:
        yield "/entra_audience", reason
    if url.scheme != "https":
        yield "/url", "must be https, because deliveries carry a token of Entra"
    if url.user is not None or url.password is not None:
        yield "/url", "must not hold a user or password, because deliveries carry a token of Entra"
    for name in headers:
        if name.lower() in ("authorization", "proxy-authorization"):
            yield f"/headers/{name}", "cannot be set beside entra_audience, which sets Authorization"


def grant_faults(audience: str, url: HostOfUrl, rules: Sequence[EntraAudience], *, has_identity: bool) -> Iterator[tuple[str, str]]:
    """Yield the reasons why a channel cannot be stored now, as (pointer, detail)."""
    if not has_identity:
        yield "/entra_audience", f"cannot be used: {NO_IDENTITY}"
    elif (reason := refused_target(rules, audience, url.raw_host or "", url.port or 0)) is not None:
        yield "/entra_audience", f"is not permitted: {reason}"


async def token_for(
    tokens: EntraTokens | None, rules: Sequence[EntraAudience], audience: str, place: tuple[str, int], deadline: float
) -> str:
    """Return the token of a delivery. Raises `NotSent`.

    The rules are checked for each delivery: the operator may have changed them since the channel was stored. place: the host and port that
    the request is sent to. deadline: loop time.
    """
    if (reason := refused_target(rules, audience, *place)) is not None:
        raise NotSent(f"no token of Entra: {reason}")
    if tokens is None:
        raise NotSent(f"no token of Entra: {NO_IDENTITY}")
    try:
        async with asyncio.timeout_at(deadline):
            return await tokens.get(audience)
    except TimeoutError:
        raise NotSent("no token of Entra: the identity endpoint did not answer in time") from None
    except NoToken as error:
        raise NotSent(f"no token of Entra for {audience}: {error}") from None
