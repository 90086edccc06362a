"""After a deployment: has the app read its keys, waits until it is ready, and prints its URL and a first call."""

from __future__ import annotations

import os
import sys
import time

from azure_calls import Reply, app_path, arm, call, printed, seconds, token

PATIENCE = 660.0
"""Seconds to wait for a ready app: a role takes up to ten minutes to become effective."""
LOOK_EVERY = 10.0
REFRESH_EVERY = 60.0


def after_deploy() -> int:
    """Wait for the app and tell how to call it; return the exit code."""
    url = os.environ.get("TOCSIN_URL", "")
    if not url:
        print("after-deploy: azd has no TOCSIN_URL; run azd provision first", file=sys.stderr)
        return 1
    refresh(restart=False)
    began = refreshed = time.monotonic()
    said = ""
    print(f"Waiting for {url}/api/readyz. A first deployment takes some minutes.", flush=True)
    while True:
        found = call("GET", f"{url}/api/readyz")
        if found.status == 200:
            print(f"Tocsin {found.member('version')} answers at {url}")
            print("\n".join(first_call(url)))
            return 0
        if time.monotonic() - began > PATIENCE or "CERTIFICATE_VERIFY_FAILED" in found.text:
            break
        if _reason(found) != said:
            said = _reason(found)
            print(f"Not ready yet: {said}", flush=True)
        # The app has read a reference before its role was effective, and the platform keeps that answer for a day.
        if "start-refused" in str(found.member("type")) and time.monotonic() - refreshed >= seconds(REFRESH_EVERY):
            refresh(restart=True)
            refreshed = time.monotonic()
        time.sleep(seconds(LOOK_EVERY))
    print(f'{url} is deployed and not ready: {_reason(found)}. See "If it does not work" in docs/how-to/deploy.md.', file=sys.stderr)
    return 1


def _reason(found: Reply) -> str:
    return f"{found.status} {found.member('detail') or found.text[:500]}" if found.status else found.text


def refresh(*, restart: bool) -> None:
    """Have the platform read the app's references to the vault again. restart: have the instances take what it has read, too."""
    app, bearer = app_path(), token()
    if not app or not bearer:
        print("after-deploy: the references to the vault were not refreshed: nobody is logged in, or azd provision has not run")
        return
    wanted = [f"{app}/config/configreferences/appsettings/refresh?api-version=2022-03-01"]
    if restart:
        wanted.append(f"{app}/restart?api-version=2024-11-01")
    for path in wanted:
        answer = call("POST", arm(path), bearer, b"")
        if answer.status >= 300 or not answer.status:
            print(f"after-deploy: {path.rpartition('/')[2].partition('?')[0]} was refused: {answer.status} {answer.text[:300]}")


def _is_admin(url: str, key: str) -> bool:
    """Return True if the app takes this key: the one that azd generated, unless the vault had another or got one since."""
    return bool(key) and call("GET", f"{url}/api/v1/tenants?limit=1", key).status == 200


def first_call(url: str) -> list[str]:
    """Return the lines of a first call, for the shell of this system. The admin key stands in none of them."""
    shell = "powershell" if os.name == "nt" else "sh"
    if os.environ.get("TOCSIN_ADMIN_KEY"):
        about = "The admin key is the one that you gave as TOCSIN_ADMIN_KEY."
        key = {"powershell": "$env:TOCSIN_ADMIN_KEY", "sh": '"$TOCSIN_ADMIN_KEY"'}
    elif not _is_admin(url, printed("azd", ["env", "config", "get", "infra.parameters.firstAdminKey"]).strip().strip('"')):
        ask = f"az keyvault secret show --vault-name {os.environ.get('TOCSIN_VAULT', 'VAULT')} -n tocsin-admin-key --query value -o tsv"
        about = "The admin key is in the vault. You need the role Key Vault Secrets User on it."
        key = {"powershell": f"({ask})", "sh": f"$({ask})"}
    else:
        ask = "azd env config get infra.parameters.firstAdminKey"
        about = f"azd has made the admin key; the vault {os.environ.get('TOCSIN_VAULT', '')} holds it as tocsin-admin-key."
        key = {"powershell": f"({ask}).Trim('\"')", "sh": f"$({ask} | tr -d '\"')"}
    if shell == "powershell":
        lines = [f"$key = {key[shell]}", f'Invoke-RestMethod {url}/api/v1/tenants -Headers @{{Authorization = "Bearer $key"}}']
    else:
        lines = [f"key={key[shell]}", f"printf 'Authorization: Bearer %s\\n' \"$key\" | curl -s -H @- {url}/api/v1/tenants"]
    lines = [f"  {line}" for line in lines]
    return [
        "",
        about,
        "A first call, which lists no tenants yet:",
        "",
        *lines,
        "",
        "More: docs/how-to/deploy.md. To check all of it: tocsin check-deployment.",
    ]
