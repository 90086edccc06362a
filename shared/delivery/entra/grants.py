"""The operator's list: which audiences a tenant may use, and with which hosts. Decisions are pure.

A rule names hosts as a channel's URL has them: `orders.example.com`, or `orders.example.com:8443` for another port than 443. One label may
be open: `*.orders.example.com` is every name directly below `orders.example.com`, and neither that name itself nor deeper ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from ...web.fields.error_texts import Shaped
from ...web.fields.types import Strict
from .audiences import AUDIENCE, FORM_TEXT, MAX_AUDIENCE, refusal

MOST_AUDIENCES: Final = 20
"""Audiences of a tenant."""
MOST_HOSTS: Final = 20
"""Hosts of an audience."""
MIN_SUFFIX_LABELS: Final = 3
"""Labels behind the open one. With fewer, the suffix may be one below which anybody can register a name, such as `co.uk`."""
HTTPS_PORT: Final = 443

Audience = Annotated[str, StringConstraints(pattern=AUDIENCE, max_length=MAX_AUDIENCE), Shaped(FORM_TEXT)]
Host = Annotated[
    str,
    # Like the form of audiences, it never becomes narrower.
    StringConstraints(pattern=r"^(?:\*\.)?[a-z0-9-]+(?:\.[a-z0-9-]+)*(?::[0-9]{1,5})?$", max_length=261),
    Shaped("a host in lower case, such as orders.example.com, orders.example.com:8443 or *.orders.example.com, without https://"),
]

SHARED_DOMAINS: Final = frozenset(
    (
        *("azurewebsites.net", "azurewebsites.us", "chinacloudsites.cn", "azurestaticapps.net", "azurecontainerapps.io", "azurefd.net"),
        *("azureedge.net", "azure-api.net", "azure-api.us", "azure-api.cn", "trafficmanager.net", "azure.com", "azure.net", "azure.us"),
        *("azure.cn", "windows.net", "chinacloudapi.cn", "usgovcloudapi.net", "amazonaws.com", "cloudfront.net", "on.aws", "awsapps.com"),
        *("googleapis.com", "run.app", "web.app", "appspot.com", "cloudfunctions.net", "firebaseapp.com", "herokuapp.com", "vercel.app"),
        *("netlify.app", "workers.dev", "pages.dev", "github.io", "gitlab.io", "ngrok.io", "ngrok.app", "ngrok-free.app", "fly.dev"),
        *(
            "onrender.com",
            "railway.app",
            "devtunnels.ms",
            "loca.lt",
            "nip.io",
            "sslip.io",
            "azurecontainer.io",
            "github.dev",
            "githubpreview.dev",
        ),
        *("pipedream.net", "auth0.com", "okta.com", "trycloudflare.com", "duckdns.org", "ts.net", "deno.dev", "replit.app", "replit.dev"),
        *("glitch.me", "surge.sh", "supabase.co", "ondigitalocean.app", "webhook.site", "beeceptor.com", "localhost.run", "serveo.net"),
    )
)
"""Domains below which anybody can get a name from a provider. Rules name hosts there one by one."""
_NAME = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""A host name. Its last label begins with a letter, so that no address has this form."""


class EntraAudience(Strict):
    """An audience for which a tenant's channels may get tokens, and the hosts that may get them."""

    audience: Audience = Field(examples=["api://orders"])
    hosts: list[Host] = Field(min_length=1, max_length=MOST_HOSTS, examples=[["orders.example.com"]])


def rule_faults(rules: Sequence[EntraAudience]) -> Iterator[tuple[str, str]]:
    """Yield the reasons why an operator's list is refused, as (pointer, detail). The pointers begin below the list."""
    seen: set[str] = set()
    for at, rule in enumerate(rules):
        if (reason := refusal(rule.audience)) is not None:
            yield f"/{at}/audience", reason
        elif rule.audience in seen:
            yield f"/{at}/audience", "is named twice; name it once, with all its hosts"
        seen.add(rule.audience)
        for index, host in enumerate(rule.hosts):
            if (reason := _host_fault(host)) is not None:
                yield f"/{at}/hosts/{index}", reason


def _host_fault(host: str) -> str | None:
    name, _, port = host.partition(":")
    wild = name.startswith("*.")
    name = name.removeprefix("*.")
    if not _NAME.fullmatch(name) or len(name) > 253:
        return "must be the name of a host, not an address"
    if port and (port != str(int(port)) or not 1 <= int(port) <= 65_535 or int(port) == HTTPS_PORT):
        return f"must have a port from 1 to 65535, without leading zeros; leave :{HTTPS_PORT} out"
    if not wild:
        return None
    labels = name.split(".")
    if len(labels) < MIN_SUFFIX_LABELS:
        return f"must have at least {MIN_SUFFIX_LABELS} labels behind *., such as *.orders.example.com; or name each host"
    if shared := next((each for at in range(len(labels)) if (each := ".".join(labels[at:])) in SHARED_DOMAINS), None):
        return f"must name each host: anybody can get a name below {shared}"
    return None


def refused_target(rules: Iterable[EntraAudience], audience: str, host: str, port: int) -> str | None:
    """Return the reason why a tenant with these rules gets no token of an audience for a host, or None.

    host: as in the URL that is connected to. Names with a dot at their end, and addresses, match no rule.
    """
    if (reason := refusal(audience)) is not None:
        return f"the audience {audience} {reason}"
    rule = next((each for each in rules if each.audience == audience), None)
    if rule is None:
        return f"the operator's list (entra_audiences of the tenant) does not have the audience {audience}"
    if not any(_fits(each, host, port) for each in rule.hosts):
        shown = host if port == HTTPS_PORT else f"{host}:{port}"
        return f"the operator's list (entra_audiences of the tenant) does not have the host {shown[:100]} for the audience {audience}"
    return None


def _fits(rule: str, host: str, port: int) -> bool:
    if _host_fault(rule) is not None or not _NAME.fullmatch(host):
        return False
    name, _, own_port = rule.partition(":")
    if int(own_port or HTTPS_PORT) != port:
        return False
    if not name.startswith("*."):
        return host == name
    label, _, rest = host.partition(".")
    return bool(label) and rest == name.removeprefix("*.")
