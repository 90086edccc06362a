"""Checks that the account can be reached and used before anything else is done, and explains what to do if not."""

from __future__ import annotations

from devhost.conformance.access import CONNECTION, StorageAccess
from devhost.conformance.naming import QUEUES, TABLES
from devhost.conformance.removal import Housekeeper
from shared.core.errors import StorageError
from shared.storage.azure.account import Service
from shared.storage.azure.transport import TransportPolicy

QUICK = TransportPolicy(attempts=2, total=10.0)
"""A wrong name must not take half a minute."""
_ROLES = {"table": "Storage Table Data Contributor", "queue": "Storage Queue Data Contributor"}


class NoAccess(Exception):
    """The account cannot be used; the message says why and what to do. `created`: a table may have been created before."""

    def __init__(self, message: str, *, created: bool = False) -> None:
        super().__init__(message)
        self.created = created


async def check_access(access: StorageAccess) -> None:
    """List, and create one table and one queue. Raises `NoAccess`."""
    housekeeper = Housekeeper(access, QUICK)
    tables, queues = access.tables(policy=QUICK), access.queues(policy=QUICK)
    service: Service = "table"
    created = False
    try:
        await housekeeper.list_tables(TABLES)
        created = True
        await tables.ensure(["Access"])
        service = "queue"
        await housekeeper.list_queues(QUEUES)
        await queues.ensure(["access"])
    except StorageError as error:
        raise NoAccess(explain(access, service, str(error)), created=created) from None
    finally:
        await tables.close()
        await queues.close()
        await housekeeper.close()


def explain(access: StorageAccess, service: Service, error: str) -> str:
    """Return what is wrong and what to do, for a failed request to one service."""
    address = access.address(service)
    if error.startswith("no token"):
        return f"{error}. Sign in with `az login`, or set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET."
    if "failed" in error:
        return f"{address} does not answer ({error}). Is the account's name right, and may this machine reach it through its firewall?"
    code = error.partition(" ")[0].rstrip(":,")
    if code == "KeyBasedAuthenticationNotPermitted":
        return f"{address} refuses keys. Use an identity: --account NAME."
    if code in ("AuthorizationPermissionMismatch", "InsufficientAccountPermissions", "AuthorizationPermissionDenied"):
        role = f"az role assignment create --role '{_ROLES[service]}' --assignee USER --scope ID_OF_THE_ACCOUNT"
        wanted = role if access.identity else f"the signature in {CONNECTION} must allow to list, create, read, write and delete"
        return f"{address} refuses the request ({error}), because rights are missing: {wanted}. A new role takes effect after some minutes."
    wrong_key = f"the key in {CONNECTION} is not this account's"
    if code == "AuthorizationFailure":
        other = "" if access.identity else f", or {wrong_key}"
        return f"{address} refuses the request ({error}): its network rules do not allow this machine's address{other}."
    if "401" in error or "403" in error:
        what = "the identity belongs to another tenant than the account" if access.identity else wrong_key
        return f"{address} refuses the request ({error}): perhaps {what}, or this machine's clock is wrong by minutes."
    return f"{address} refuses the request: {error}."
