"""`tocsin check-receiver`: the command and its screen."""

from __future__ import annotations

import asyncio
import os
import secrets as random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ...core.readable import count_of
from ..exits import SIGNALLED, Exit
from ..failures import CommandFailed
from ..findings import Line, draw_lines, faults_of
from ..help import add_command
from ..terminal.documents import to_json
from ..terminal.output import Activity, Screen
from .plan import IDLE, Check, CheckPlan, requests_of

if TYPE_CHECKING:
    from ...delivery.egress_guard import Egress
    from .endpoint import Endpoint
    from .requests import Requests
    from .run import ReceiverRun
    from .seen import ReceiverSeen

SECRET_VARIABLE: Final = "TOCSIN_SECRET"
HERE: Final = ("localhost", "127.0.0.0/8", "::1/128")
DEFAULT_PAYLOAD: Final = b'{"tocsin_check":true}'
_MOST_PAYLOAD: Final = 128 * 1024
_INSTALL: Final = "Install the wheel with its extra `dev`: pip install './dist/tocsin-….whl[dev]' (`make wheel` builds it)."
_URL_HELP: Final = "Address of the endpoint, as a channel would have it."
_SECRET_HELP: Final = "Secret of the endpoint, whsec_ and base64. Other users of this machine can see it; prefer TOCSIN_SECRET."
_OWN_HELP: Final = "Confirm that the endpoint is yours, where it cannot answer with the token."
_TOKEN_HELP: Final = "Print the token that the endpoint must show, and exit."
_LOCAL_HELP: Final = "Allow an endpoint on this machine, also by plain http."
_ALLOW_HELP: Final = "Allow this host, or the addresses of this network, such as 10.1.0.0/16, though they are private. May be repeated."
_METHOD_HELP: Final = "Method of the deliveries, POST, PUT or PATCH."
_HEADER_HELP: Final = "Header of each request, as NAME=VALUE, such as x-functions-key=... May be repeated."
_PAYLOAD_HELP: Final = "File with a JSON payload that the endpoint accepts."
_COUNT_HELP: Final = "Address on the endpoint's host that answers a GET with how often the work of event {id} was done."
_TIMEOUT_HELP: Final = "Time limit of an answer in seconds, as in the channel's settings."
_RATE_HELP: Final = "Most requests per second, on average."
_LATE_HELP: Final = "Seconds from the first delivery to its late retry."
_LARGEST_HELP: Final = "Size in bytes of the largest payload of your events."
_ONLY_HELP: Final = f"Run this check alone, besides two valid deliveries: {', '.join(Check)}. May be repeated."
_SEED_HELP: Final = "Text in the ids of the events, so that a run can be repeated with the same ids. Default: a random text."
_AGAIN_HELP: Final = "Only check that the receiver still knows the events of an earlier run with this --seed, as after a restart."
_STRICT_HELP: Final = "Also exit with code 1 for lines that are look or unseen."


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "check-receiver", check_receiver)


def check_receiver(
    url: Annotated[str, typer.Argument(help=_URL_HELP)],
    secret: Annotated[str, typer.Option("--secret", metavar="TEXT", help=_SECRET_HELP, show_default=False)] = "",
    i_own_it: Annotated[bool, typer.Option("--i-own-it", help=_OWN_HELP)] = False,
    print_token: Annotated[bool, typer.Option("--print-token", help=_TOKEN_HELP)] = False,
    local: Annotated[bool, typer.Option("--local", help=_LOCAL_HELP)] = False,
    allow: Annotated[list[str] | None, typer.Option("--allow", metavar="HOST", help=_ALLOW_HELP, show_default=False)] = None,
    method: Annotated[str, typer.Option("--method", metavar="NAME", help=_METHOD_HELP)] = "POST",
    header: Annotated[list[str] | None, typer.Option("--header", help=_HEADER_HELP, show_default=False)] = None,
    payload: Annotated[Path | None, typer.Option("--payload", help=_PAYLOAD_HELP, show_default=False)] = None,
    count_url: Annotated[str, typer.Option("--count-url", metavar="URL", help=_COUNT_HELP, show_default=False)] = "",
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, max=60, metavar="SECONDS", help=_TIMEOUT_HELP)] = 15.0,
    rate: Annotated[float, typer.Option("--rate", min=0.1, max=50, metavar="N", help=_RATE_HELP)] = 10.0,
    late: Annotated[float, typer.Option("--late", min=0, max=3_600, metavar="SECONDS", help=_LATE_HELP)] = 16.0,
    largest: Annotated[int, typer.Option("--largest", min=1, max=256 * 1024, metavar="N", help=_LARGEST_HELP)] = 256 * 1024,
    only: Annotated[list[Check] | None, typer.Option("--only", metavar="NAME", help=_ONLY_HELP, show_default=False)] = None,
    seed: Annotated[str, typer.Option("--seed", metavar="TEXT", help=_SEED_HELP, show_default=False)] = "",
    again: Annotated[bool, typer.Option("--again", help=_AGAIN_HELP)] = False,
    strict: Annotated[bool, typer.Option("--strict", help=_STRICT_HELP)] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs, one document a line.")] = False,
) -> None:
    """Check a receiver in half a minute: signatures, duplicates, time to answer, sizes, connections. Needs no service.

    It sends signed deliveries as the service would, with a payload of yours: use an endpoint on which their work does no harm. The endpoint
    shows that it is yours by answering a GET of /.well-known/tocsin-check with a token; one on this machine needs none.

    Duplicates are seen by --count-url, or by a header of its answers, tocsin-duplicate: yes or no.

    Exit code: 0 no fault was found, 1 a line is bad, 3 the endpoint was not allowed or did not show the token, 4 it cannot be reached.

    Examples:
        tocsin check-receiver http://localhost:8000/hooks/reminders --local
        tocsin check-receiver https://app.example/hook --payload order.json --only duplicates --only parallel
        tocsin check-receiver https://app.example/hook --count-url 'https://app.example/done?event={id}' --strict --json
    """
    try:
        from . import requests, run
        from .rules import judge
        from .seen import ReceiverSeen
    except ImportError as missing:
        raise CommandFailed(f"tocsin check-receiver needs {missing.name}", advice=_INSTALL) from None
    key = _secret(secret)
    if again and (not seed or only):
        raise _usage("--again needs the --seed of an earlier run, and has no other checks", "--again", "Add --seed, and leave --only out.")
    seed = _seed(seed)
    chosen = () if again else tuple(only or Check)
    body = _payload(payload)
    if len(body) > largest:
        raise _usage("the payload is larger than --largest", "--payload", "Give a smaller payload, or a larger --largest.")
    most = requests_of(chosen, token=not i_own_it, counted=bool(count_url))
    total = CheckPlan().total + most / rate
    plan = CheckPlan(timeout=timeout, rate=rate, late=late, idle=min(IDLE, late), largest=largest, again=again, total=total)
    egress = _egress(local=local, allow=allow or ())
    made = _requests(url, key, egress, method, header or (), timeout, seed)
    if count_url:
        _check_count(count_url, url)
    if print_token:
        typer.echo(requests.token_of(key, url))
        return
    seen = ReceiverSeen()
    activity = Activity(f"checking {_place(url)}")
    began = time.monotonic()
    interrupted = False

    async def work() -> None:
        endpoint = _endpoint(url, egress)
        ours = run.ReceiverRun(endpoint, made, body, seen, plan, _progress(activity))
        _tell(f"at most {most} requests to {_place(url)}, {rate:g} a second; seed {seed}")
        await _prepare(endpoint, ours, made, key, url, i_own_it=i_own_it)
        if count_url:
            counter = _endpoint(count_url.replace("{id}", "x"), egress)
            await _resolve(counter)
            ours.count_at(counter, count_url)
        await ours.run(chosen)

    try:
        with activity.during():
            asyncio.run(work())
    except KeyboardInterrupt:
        interrupted = True
        seen.stopped = "interrupted"
    finally:
        activity.hide()
    lines = judge(seen, plan, chosen)
    _show(lines, seen, url, seed, time.monotonic() - began, as_json=json)
    if interrupted:
        raise typer.Exit(SIGNALLED + 2)
    if faults_of(lines) or (strict and any(line.result != "ok" for line in lines)):
        raise typer.Exit(Exit.FAILED)


def _usage(title: str, where: str, advice: str) -> CommandFailed:
    return CommandFailed(title, where=where, advice=advice, status=Exit.USAGE)


def _secret(given: str) -> str:
    """Return the secret that deliveries are signed with. Raises `CommandFailed`, never with the secret in it."""
    from ...core import signing

    # While a secret is rotated, the variable holds two: any of them is right.
    found = (given or os.environ.get(SECRET_VARIABLE, "")).split()
    advice = f"Set {SECRET_VARIABLE} to the secret that the endpoint verifies with: whsec_ and base64."
    if not found:
        raise _usage("there is no secret", SECRET_VARIABLE, advice)
    try:
        for each in found:
            signing.secret_bytes(each)
    except ValueError as error:
        raise _usage(f"the secret is {error}", "--secret" if given else SECRET_VARIABLE, advice) from None
    return found[0]


def _seed(given: str) -> str:
    text = given or random.token_hex(4)
    if not text.isascii() or not all(sign.isalnum() or sign in "_-" for sign in text) or len(text) > 40:
        raise _usage("the seed has other characters, or too many", "--seed", "Give 1 to 40 of A-Z a-z 0-9 _ and -, such as --seed run-17.")
    return text


def _payload(file: Path | None) -> bytes:
    from .requests import compact

    if file is None:
        return DEFAULT_PAYLOAD
    try:
        with file.open("rb") as opened:
            text = opened.read(_MOST_PAYLOAD + 1)
        if len(text) > _MOST_PAYLOAD:
            raise _usage(
                "the payload is too large",
                "--payload",
                f"Give one of at most {_MOST_PAYLOAD // 1024} KiB; sizes are checked by themselves.",
            )
        return compact(text)
    except OSError as error:
        raise _usage(f"the file cannot be read: {error.strerror}", "--payload", "Name a file with JSON.") from None
    except ValueError:
        raise _usage("the file holds no JSON", "--payload", 'Give a file with one document, such as {"order": 17}.') from None


def _egress(*, local: bool, allow: Sequence[str]) -> Egress:
    from ...core.errors import UnsafeSettings
    from ...delivery.egress_guard import Egress

    try:
        return Egress([*(HERE if local else ()), *allow])
    except UnsafeSettings as error:
        title = str(error).removeprefix("TOCSIN_EGRESS_ALLOW: ")
        raise _usage(title, "--allow", "Give a host such as app.internal, or a network such as 10.1.0.0/16.") from None


def _requests(url: str, secret: str, egress: Egress, method: str, headers: Sequence[str], timeout: float, seed: str) -> Requests:
    """Return the maker of requests. Raises `CommandFailed` for options that no channel could have."""
    from ...delivery.channels.event_target import METHODS
    from ...delivery.channels.http import is_ours, problem_of
    from .requests import Requests

    # The signature covers a body, so there must be one.
    methods = [each for each in METHODS if each != "GET"]
    if method.upper() not in methods:
        raise _usage("the method is none of the possible ones", "--method", f"Give one of {', '.join(methods)}.")
    own: dict[str, str] = {}
    for each in headers:
        name, mark, value = each.partition("=")
        if not mark or not name:
            # The value may be a key, so it is not shown.
            raise _usage("a header has no value", "--header", "Write --header NAME=VALUE.")
        if is_ours(name):
            raise _usage(f"the header {name[:40]} is set by the service", "--header", "Leave it out.")
        own[name] = value
    try:
        made = Requests(url, [secret], egress, method=method.upper(), headers=own, timeout=timeout, seed=seed)
    except ValueError:
        raise _usage("the URL is not valid, or there are too many headers", "URL", "Give a URL such as https://app.example/hook.") from None
    if problem := problem_of(made.spec, egress):
        if problem.startswith("egress refused: "):
            raise _refused(problem.removeprefix("egress refused: "))
        raise _usage(problem, "URL, --header", "Give a URL such as https://app.example/hook, and headers such as x-key=value.")
    return made


def _refused(reason: str) -> CommandFailed:
    advice = "Give --local for an endpoint on this machine, or --allow HOST for a private one that is yours."
    return CommandFailed(f"the endpoint may not be reached: {reason}", where="URL", advice=advice, status=Exit.REFUSED)


def _endpoint(url: str, egress: Egress) -> Endpoint:
    from .endpoint import Endpoint

    return Endpoint(url, egress)


def _check_count(count_url: str, url: str) -> None:
    """Raise `CommandFailed` unless the count's address has the endpoint's host."""
    from yarl import URL

    try:
        found, own = URL(count_url.replace("{id}", "x"), encoded=True), URL(url, encoded=True)
        fits = found.scheme in ("http", "https") and found.raw_host == own.raw_host and bool(found.port)
    except ValueError:
        fits = False
    if not fits or any(sign.isspace() or not sign.isprintable() or not sign.isascii() for sign in count_url):
        advice = "Give a URL with the same host, such as https://HOST/done?event={id}."
        raise _usage("the count is not at the endpoint's host", "--count-url", advice)


async def _resolve(endpoint: Endpoint) -> None:
    from ...delivery.egress_guard import EgressRefused
    from .endpoint import EndpointUnreachable

    try:
        await endpoint.resolve()
    except EgressRefused as error:
        raise _refused(str(error)) from None
    except EndpointUnreachable as error:
        raise _unreachable(str(error)) from None


def _unreachable(reason: str) -> CommandFailed:
    advice = "Check the URL, and that the endpoint runs and this machine can reach it."
    return CommandFailed(f"the endpoint cannot be reached: {reason}", where="URL", advice=advice, status=Exit.UNREACHABLE)


async def _prepare(endpoint: Endpoint, ours: ReceiverRun, made: Requests, secret: str, url: str, *, i_own_it: bool) -> None:
    """Find the endpoint, and make sure that it may be checked. Raises `CommandFailed`."""
    from yarl import URL

    from ...delivery.egress_guard import EgressRefused
    from .endpoint import CertificateRefused, EndpointUnreachable
    from .requests import TOKEN_PATH, token_of

    await _resolve(endpoint)
    try:
        if endpoint.here or i_own_it:
            ours.seen.owner = "it is on this machine" if endpoint.here else "--i-own-it was given"
            await ours.reach()
        else:
            place = URL(url, encoded=True)
            token = token_of(secret, url)
            reason = await ours.answers_token(token, f"{place.scheme}://{place.host_port_subcomponent}{TOKEN_PATH}")
            if reason:
                title = f"the endpoint does not show that it is yours: {reason}"
                advice = f"Let a GET of {TOKEN_PATH} answer 200 with this text: {token} . Or give --i-own-it."
                raise CommandFailed(title, where="URL", advice=advice, status=Exit.REFUSED)
            ours.seen.owner = "it answered with the token"
    except CertificateRefused:
        # The line about the certificate says it.
        return
    except EgressRefused as error:
        raise _refused(str(error)) from None
    except EndpointUnreachable as error:
        raise _unreachable(str(error)) from None


def _place(url: str) -> str:
    """Return scheme, host and port: paths may hold secrets."""
    from yarl import URL

    from ...delivery.channels.http import show

    return show(URL(url, encoded=True))


def _tell(text: str) -> None:
    typer.echo(f"tocsin: {text}", err=True)


def _progress(activity: Activity) -> Callable[[str], None]:
    return activity.update if sys.stderr.isatty() else _tell


def _show(lines: Sequence[Line], seen: ReceiverSeen, url: str, seed: str, seconds: float, *, as_json: bool) -> None:
    if as_json:
        checks = [line.document() for line in lines]
        unseen = sum(line.result == "unseen" for line in lines)
        found: dict[str, Any] = {"url": _place(url), "seconds": round(seconds), "seed": seed, "requests": seen.requests}
        typer.echo(to_json({**found, "faults": faults_of(lines), "unseen": unseen, "checks": checks}))
        return
    screen = Screen()
    draw_lines(screen, lines, seconds, f"{_place(url)}, {count_of(seen.requests, 'request')}, seed {seed}")
    typer.echo(screen.text(), nl=False)
