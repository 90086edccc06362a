"""Deploys build/app.zip to an app on Flex Consumption, which stores it in its deployment container as the app's identity.

Minutes after that identity got its role, storage may still refuse it. Then the deployment ends with 403, and a minute later it succeeds.
This error alone is tried again. azd does not do so, so at the first deployment the hook `before-deploy` deploys the package beforehand.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from azure_calls import Reply, call, seconds, token

TRIES = 4
"""The first one, and three more."""
BETWEEN = 60.0
"""Seconds between two tries."""
LOOK_EVERY = 5.0
PATIENCE = 600.0
"""Seconds for which a deployment may go on."""
SUCCEEDED, FAILED = (4,), (-1, 3, 5, 6)
"""Values of `status` of a deployment that has ended."""
ROLE = re.compile(r"(InaccessibleStorage|BlobUploadFailed|upload blob).*\b403\b", re.DOTALL)
"""The error of a role that is not effective yet."""


def scm_url(url: str) -> str:
    """Return where the app at `url` takes deployments. Raises `ValueError` for what is no URL of an app."""
    if given := os.environ.get("TOCSIN_HOOK_SCM"):
        return given
    parts = urlsplit(url)
    name, dot, rest = (parts.hostname or "").partition(".")
    if parts.scheme != "https" or not dot:
        raise ValueError(f"{url!r} is not the URL of an app, such as https://func-tocsin-abc.azurewebsites.net")
    return f"https://{name}.scm.{rest}"


def publish(root: Path, url: str) -> int:
    """Deploy build/app.zip to the app at `url`; return the exit code."""
    file = root / "build" / "app.zip"
    if not file.exists():
        print("publish: there is no build/app.zip; make it by: python3 infra/hooks package", file=sys.stderr)
        return 1
    try:
        scm = scm_url(url)
    except ValueError as error:
        print(f"publish: {error}", file=sys.stderr)
        return 2
    bearer = token()
    if not bearer:
        print("publish: nobody is logged in; run azd auth login, or az login", file=sys.stderr)
        return 1
    for left in reversed(range(TRIES)):
        failure = _deploy(scm, bearer, file.read_bytes())
        if not failure:
            print(f"publish: build/app.zip is deployed to {url}")
            return 0
        if not ROLE.search(failure) or not left:
            break
        print(f"publish: the app's role on its deployment container is not effective yet; {left} more tries, a minute apart", flush=True)
        time.sleep(seconds(BETWEEN))
    print(f"publish: the deployment failed: {failure[:2000]}", file=sys.stderr)
    return 1


def _deploy(scm: str, bearer: str, package: bytes) -> str:
    """Deploy once; return the reason of the failure, '' if there is none."""
    begun = call("POST", f"{scm}/api/publish?RemoteBuild=false", bearer, package, "application/zip", timeout=PATIENCE)
    if begun.status not in (200, 202):
        return f"{begun.status} {begun.text}"
    until = time.monotonic() + PATIENCE
    seen = Reply(0, "it has not been begun")
    while time.monotonic() < until:
        found = call("GET", f"{scm}/api/deployments/{begun.text.strip().strip(chr(34)) or 'latest'}", bearer)
        if found.status == 404 and seen.status == 200:
            # The worker that carried it out is gone: azd takes this for the end of a success too.
            return ""
        if found.status == 200:
            seen = found
            status = found.member("status")
            if status in SUCCEEDED:
                return ""
            if status in FAILED:
                return str(found.member("status_text") or found.member("message") or found.text)
        time.sleep(seconds(LOOK_EVERY))
    return f"no end within {PATIENCE:.0f} s: {seen.status} {seen.text}"


def before_deploy(root: Path) -> int:
    """Deploy beforehand if the app has no package yet, so that azd's own deployment finds an effective role; return the exit code.

    Whatever fails here is left to azd, which deploys next and reports it.
    """
    url = os.environ.get("TOCSIN_URL", "")
    if not url:
        print("before-deploy: azd has no TOCSIN_URL; run azd provision first")
        return 0
    if call("GET", f"{url}/api/healthz").status == 200:
        return 0
    print("before-deploy: the app has no package yet. Deploying it, and waiting for the app's role if necessary.", flush=True)
    publish(root, url)
    return 0
