"""Calls of Azure with the token of whoever is logged in, with the standard library alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from typing import NamedTuple

ARM = "https://management.azure.com"
"""Azure Resource Manager of the public cloud. The template names that of another cloud in TOCSIN_ARM_ENDPOINT."""


class Reply(NamedTuple):
    """The status and the text of an answer. status: 0 if none came; the text is the reason then."""

    status: int
    text: str

    def member(self, name: str) -> object:
        """Return a member of the JSON object that the text is; None if it is none, or has none of this name."""
        try:
            found = json.loads(self.text)
        except ValueError:
            # A page of the platform, which has no members.
            return None
        return found.get(name) if isinstance(found, dict) else None


def seconds(default: float) -> float:
    """Return a time to wait: `default`, unless TOCSIN_HOOK_WAIT says otherwise, as tests do."""
    return float(os.environ.get("TOCSIN_HOOK_WAIT") or default)


def call(method: str, url: str, token: str = "", body: bytes | None = None, kind: str = "", timeout: float = 60) -> Reply:
    """Send a request; an answer of any status is returned, and so is the reason if there is none."""
    request = urllib.request.Request(url, data=body, method=method, headers={"Accept": "application/json"})
    if kind:
        request.add_header("Content-Type", kind)
    if token:
        # Not sent on to another host if this one redirects.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return Reply(answer.status, answer.read().decode(errors="replace"))
    except urllib.error.HTTPError as refusal:
        return Reply(refusal.code, refusal.read().decode(errors="replace"))
    except OSError as error:
        return Reply(0, str(error))


def token() -> str:
    """Return a token for Azure's management, from azd or az; '' if neither has one."""
    manager = os.environ.get("TOCSIN_ARM_ENDPOINT") or ARM
    scope = ["auth", "token", "--scope", f"{manager}/.default", "--output", "json"]
    found = Reply(0, printed("azd", scope)).member("token")
    if isinstance(found, str) and found:
        return found
    return printed("az", ["account", "get-access-token", "--resource", f"{manager}/", "--query", "accessToken", "--output", "tsv"]).strip()


def printed(program: str, arguments: list[str]) -> str:
    """Return what a program prints; '' if it fails or does not exist."""
    place = shutil.which(program)
    if place is None:
        return ""
    try:
        done = subprocess.run([place, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        # The other program is asked.
        return ""
    return done.stdout if done.returncode == 0 else ""


def arm(path: str) -> str:
    """Return the URL of a path of Azure's management."""
    return (os.environ.get("TOCSIN_HOOK_ARM") or os.environ.get("TOCSIN_ARM_ENDPOINT") or ARM) + path


def app_path() -> str:
    """Return the path of the app of this environment; '' if azd has not said which it is."""
    names = [os.environ.get(each, "") for each in ("AZURE_SUBSCRIPTION_ID", "AZURE_RESOURCE_GROUP", "TOCSIN_APP")]
    if not all(names):
        return ""
    return "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Web/sites/{}".format(*names)
