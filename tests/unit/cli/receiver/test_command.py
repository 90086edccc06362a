"""`tocsin check-receiver`: its options, what it refuses to look at, what it prints, and its exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.cli.exits import Exit
from shared.cli.main import main
from shared.cli.receiver.endpoint import CertificateRefused, Endpoint
from shared.cli.receiver.plan import Check, CheckPlan
from shared.cli.receiver.requests import Requests, token_of
from shared.cli.receiver.rules import judge
from shared.cli.receiver.run import ReceiverRun
from shared.cli.receiver.seen import ReceiverSeen
from shared.delivery.egress_guard import Egress, EgressRefused
from tests.certificates import make_certificate
from tests.paths import ROOT

from . import receivers
from .receivers import SECRET, Good, running

FAST = ("--rate", "50", "--late", "0.2", "--only", "duplicates")


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_SECRET", SECRET)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run the command; return the exit code, standard output and standard error. The secret is never printed."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["check-receiver", *words])
    printed = capsys.readouterr()
    assert SECRET[6:] not in printed.out + printed.err
    assert "\x1b" not in printed.out + printed.err
    return int(ended.value.code or 0), printed.out, printed.err


def test_receiver_without_a_fault_ends_with_0_and_the_number_of_requests_is_said_first(capsys: pytest.CaptureFixture[str]) -> None:
    with running(Good()) as port:
        code, out, err = run(capsys, f"http://127.0.0.1:{port}/secret-path", "--local", *FAST, "--seed", "s17")
    assert code == 0 and "no fault was found" in out
    assert f"at most 6 requests to http://127.0.0.1:{port}, 50 a second; seed s17" in err.splitlines()[0]
    assert "secret-path" not in out + err


def test_programs_get_one_document_with_faults_and_unseen_checks(capsys: pytest.CaptureFixture[str]) -> None:
    with running(receivers.NoDedup()) as port:
        code, out, _ = run(capsys, f"http://127.0.0.1:{port}/hook", "--local", *FAST, "--only", "late", "--json")
    document = json.loads(out)
    assert code == Exit.FAILED
    assert (document["faults"], document["unseen"], document["url"]) == (1, 1, f"http://127.0.0.1:{port}")
    [bad] = [each for each in document["checks"] if each["result"] == "bad"]
    assert bad["check"] == "duplicates" and bad["effects"] == 1 and bad["means"] and bad["do"]


def test_checks_that_cannot_be_judged_count_as_faults_only_with_strict(capsys: pytest.CaptureFixture[str]) -> None:
    with running(receivers.Silent()) as port:
        words = (f"http://127.0.0.1:{port}/hook", "--local", *FAST)
        assert run(capsys, *words)[0] == 0
        assert run(capsys, *words, "--strict")[0] == Exit.FAILED


def test_count_url_without_an_id_counts_all_effects(capsys: pytest.CaptureFixture[str]) -> None:
    class Total(receivers.Silent):
        def shown(self, request: receivers.Request) -> receivers.Reply:
            return receivers.Reply(body=json.dumps({"count": self.effects.total()}).encode())

    with running(Total()) as port:
        url = f"http://127.0.0.1:{port}"
        code, out, _ = run(capsys, f"{url}/hook", "--local", *FAST, "--count-url", f"{url}/total", "--json", "--strict")
    assert code == 0, out
    assert {"effect", "duplicates", "same payload"} <= {each["check"] for each in json.loads(out)["checks"]}


def test_same_seed_sends_the_same_ids_so_that_a_restarted_receiver_can_be_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    receiver = Good()
    with running(receiver) as port:
        words = (f"http://127.0.0.1:{port}/hook", "--local", "--seed", "s1")
        assert run(capsys, *words, *FAST)[0] == 0
        before = receiver.effects.copy()
        code, out, _ = run(capsys, *words, "--again", "--json")
        assert (code, receiver.effects) == (0, before)
        assert {each["check"]: each["result"] for each in json.loads(out)["checks"]}["again"] == "ok"
        receiver.known.clear()
        code, out, _ = run(capsys, *words, "--again", "--json")
    assert code == Exit.FAILED
    assert [each["check"] for each in json.loads(out)["checks"] if each["result"] == "bad"] == ["again"]


def test_count_that_does_not_know_an_earlier_run_says_nothing_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    with running(receivers.NoEffect()) as port:
        url = f"http://127.0.0.1:{port}"
        words = (f"{url}/hook", "--local", "--seed", "s1", "--again", "--json", "--count-url", url + "/done?event={id}")
        code, out, _ = run(capsys, *words, "--rate", "50")
    assert code == 0 and {each["check"]: each["result"] for each in json.loads(out)["checks"]}["again"] == "unseen"


def test_same_seed_without_again_is_a_thing_to_know(capsys: pytest.CaptureFixture[str]) -> None:
    with running(Good()) as port:
        words = (f"http://127.0.0.1:{port}/hook", "--local", *FAST, "--seed", "s1", "--json")
        assert run(capsys, *words)[0] == 0
        code, out, _ = run(capsys, *words)
    assert code == 0 and [each["check"] for each in json.loads(out)["checks"] if each["result"] == "look"] == ["delivery"]


@pytest.mark.parametrize("name", ["duplicates", "parallel", "slow", "idle"])
def test_one_check_is_run_alone(capsys: pytest.CaptureFixture[str], name: str) -> None:
    with running(Good()) as port:
        code, out, _ = run(capsys, f"http://127.0.0.1:{port}/hook", "--local", "--rate", "50", "--late", "0.2", "--only", name, "--json")
    checks = {each["check"] for each in json.loads(out)["checks"]}
    assert code == 0 and name in checks and checks.isdisjoint({str(each) for each in Check} - {name})


def test_headers_method_and_payload_are_sent(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    payload = tmp_path / "order.json"
    payload.write_text('{\n  "order": 17\n}\n')
    receiver = Good()
    with running(receiver) as port:
        words = (f"http://127.0.0.1:{port}/hook", "--local", *FAST, "--payload", str(payload), "--method", "put", "--header", "x-key=k=1")
        assert run(capsys, *words)[0] == 0
    first = receiver.requests[0]
    assert (first.method, first.body, first.headers["x-key"]) == ("PUT", b'{"order":17}', "k=1")


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "header without a value": (("--header", "key"), "--header"),
    "header of the service": (("--header", "ce-id=1"), "--header"),
    "header with a line break": (("--header", "x-a=1\r\nx-b: 2"), "URL, --header"),
    "method": (("--method", "GET"), "--method"),
    "payload that is no file": (("--payload", "/nonexistent"), "--payload"),
    "payload that is no JSON": (("--payload", str(Path(__file__))), "--payload"),
    "payload that is endless": (("--payload", "/dev/zero"), "--payload"),
    "network": (("--allow", "10.0.0.0/99"), "--allow"),
    "count at another host": (("--count-url", "http://other.example/done"), "--count-url"),
    "count with a line break": (("--count-url", "http://127.0.0.1/done\r\nx: y"), "--count-url"),
    "seed": (("--seed", "a b"), "--seed"),
    "again without a seed": (("--again",), "--again"),
    "again with other checks": (("--again", "--seed", "s", "--only", "slow"), "--again"),
    "payload beyond the largest": (("--largest", "3"), "--payload"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_option_is_named_and_nothing_is_sent(capsys: pytest.CaptureFixture[str], name: str) -> None:
    words, where = WRONG[name]
    receiver = Good()
    with running(receiver) as port:
        code, out, err = run(capsys, f"http://127.0.0.1:{port}/hook", "--local", *words)
    assert (code, out, receiver.connections) == (Exit.USAGE, "", 0)
    assert f"where: {where}" in err and "do: " in err


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1/", "127.0.0.1:80", "", "http://", "http://[::1", "http://127.0.0.1/a b", "http://2130706433/"]
)
def test_wrong_url_is_refused(capsys: pytest.CaptureFixture[str], url: str) -> None:
    code, out, err = run(capsys, "--local", "--", url)
    assert code in (Exit.USAGE, Exit.REFUSED) and out == "" and "where: URL" in err


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_not base64!", "whsec_\N{LATIN SMALL LETTER E WITH ACUTE}"])
def test_secret_that_lacks_or_is_malformed_is_named_and_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("TOCSIN_SECRET", secret)
    code, _, err = run(capsys, "http://127.0.0.1:1/", "--local")
    assert code == Exit.USAGE and "where: TOCSIN_SECRET" in err and "not base64!" not in err


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/", "http://10.1.2.3/", "https://169.254.169.254/", "https://[::1]/", "http://app.example/"]
)
def test_private_address_and_plain_http_are_refused_unless_they_are_allowed(capsys: pytest.CaptureFixture[str], url: str) -> None:
    code, out, err = run(capsys, url)
    assert (code, out) == (Exit.REFUSED, "") and "--local" in err and "--allow" in err


def test_local_allows_this_machine_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "http://10.1.2.3/", "--local")[0] == Exit.REFUSED


def test_endpoint_that_cannot_be_reached_ends_with_4(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        code, out, err = run(capsys, f"http://127.0.0.1:{unused.getsockname()[1]}/", "--local")
    assert (code, out) == (Exit.UNREACHABLE, "") and "cannot be reached: could not connect" in err


WITHOUT = """
import sys
sys.modules["aiohappyeyeballs"] = None
from shared.cli.main import main
main(["check-receiver", "http://127.0.0.1:1/", "--local"])
"""


def test_missing_library_is_named_with_the_extra_that_brings_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == Exit.FAILED and "Traceback" not in done.stderr
    assert "needs aiohappyeyeballs" in done.stderr and "extra `dev`" in done.stderr


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let addresses of this machine count as those of another."""
    monkeypatch.setattr(Endpoint, "here", False)


@pytest.mark.usefixtures("elsewhere")
def test_endpoint_elsewhere_must_answer_with_the_token(capsys: pytest.CaptureFixture[str]) -> None:
    receiver = Good()
    with running(receiver) as port:
        url = f"http://127.0.0.1:{port}/hook"
        code, out, _ = run(capsys, url, "--local", "--print-token")
        assert code == 0 and out.strip() == token_of(SECRET, url) and not receiver.connections
        receiver.token = out.strip()
        code, out, _ = run(capsys, url, "--local", *FAST)
        assert code == 0 and "it answered with the token" in out
        receiver.token = "another"
        code, out, err = run(capsys, url, "--local", *FAST)
    assert (code, out) == (Exit.REFUSED, "") and token_of(SECRET, url) in err and "--i-own-it" in err
    assert [request.method for request in receiver.requests][-1] == "GET"


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("faulty", [receivers.Redirects, receivers.Escapes, receivers.HeaderBomb, receivers.NotHttp])
def test_hostile_answers_to_the_token_are_refused(capsys: pytest.CaptureFixture[str], faulty: type[Good]) -> None:
    receiver = faulty()
    with running(receiver) as port:
        code, out, _ = run(capsys, f"http://127.0.0.1:{port}/hook", "--local", *FAST)
    assert (code, out, receiver.connections) == (Exit.REFUSED, "", 1)


@pytest.mark.usefixtures("elsewhere")
def test_who_says_that_the_endpoint_is_theirs_needs_no_token(capsys: pytest.CaptureFixture[str]) -> None:
    receiver = Good()
    with running(receiver) as port:
        code, out, _ = run(capsys, f"http://127.0.0.1:{port}/hook", "--local", *FAST, "--i-own-it")
    assert code == 0 and "--i-own-it was given" in out
    assert all(request.method == "POST" for request in receiver.requests)


def endpoint_of(url: str, **given: Any) -> Endpoint:
    return Endpoint(url, Egress(["127.0.0.0/8", "localhost"]), **given)


def test_name_is_looked_up_once_and_a_changed_address_is_not_followed() -> None:
    asked = 0

    async def lookup(host: str, port: int) -> list[str]:
        nonlocal asked
        asked += 1
        return ["127.0.0.1"] if asked == 1 else ["169.254.169.254"]

    async def check(port: int) -> ReceiverSeen:
        url, egress, plan, seen = f"http://rebinding.example:{port}/hook", Egress(["127.0.0.0/8"]), CheckPlan(rate=100), ReceiverSeen()
        endpoint = Endpoint(url, egress, lookup=lookup)
        await endpoint.resolve()
        made = Requests(url, [SECRET], egress, method="POST", headers={}, timeout=5.0, seed="s")
        await ReceiverRun(endpoint, made, b"{}", seen, plan, lambda text: None).run([Check.PARALLEL])
        return seen

    with running(Good()) as port:
        seen = asyncio.run(check(port))
    assert asked == 1 and len(seen.steps["parallel"].answers) == 5


def test_name_with_a_private_address_is_refused() -> None:
    async def lookup(host: str, port: int) -> list[str]:
        return ["10.1.2.3", "169.254.169.254"]

    with pytest.raises(EgressRefused):
        asyncio.run(Endpoint("https://app.example/", Egress(), lookup=lookup).resolve())


def test_certificate_of_the_endpoint_is_checked_and_its_end_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pem = make_certificate(tmp_path, "localhost")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)

    async def look(url: str, tls: ssl.SSLContext) -> float | None:
        endpoint = endpoint_of(url, tls=tls)
        await endpoint.resolve()
        link = await endpoint.connect(60.0)
        found = link.certificate
        link.close()
        await asyncio.sleep(0)
        assert found is not None
        return found.days

    with running(Good(), server) as port:
        trusting = ssl.create_default_context(cafile=str(pem))
        days = asyncio.run(look(f"https://localhost:{port}/", trusting))
        assert days is not None and 28 < days <= 30
        with pytest.raises(CertificateRefused):
            asyncio.run(look(f"https://127.0.0.1:{port}/", trusting))
        # The command does not trust it.
        code, out, _ = run(capsys, f"https://localhost:{port}/hook", "--local", *FAST)
    assert code == Exit.FAILED and "refused: self-signed certificate" in " ".join(out.split())


@pytest.mark.parametrize(("days", "result"), [(3.2, "look"), (80.0, "ok")])
def test_certificate_that_ends_soon_is_a_thing_to_know(days: float, result: str) -> None:
    from shared.cli.receiver.seen import Certificate

    [line] = [each for each in judge(ReceiverSeen(certificate=Certificate(days=days)), CheckPlan(), []) if each.check == "certificate"]
    assert line.result == result


def test_interrupted_run_ends_with_the_lines_so_far() -> None:
    receiver = Good()
    with running(receiver) as port:
        command = [sys.executable, "-m", "shared.cli", "check-receiver", f"http://127.0.0.1:{port}/hook", "--local", "--late", "600"]
        environment = {**os.environ, "TOCSIN_SECRET": SECRET}
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_default_signals
        ) as process:
            assert process.stderr is not None and process.stdout is not None
            for line in process.stderr:
                if "checking text" in line:
                    break
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
    assert process.returncode == 130 and "Traceback" not in err
    shown = {line.split()[0]: line.split()[1] for line in out.splitlines()[1:] if len(line.split()) > 2}
    assert (shown["signature"], shown["slow"]) == ("ok", "unseen") and "interrupted" in out


def _default_signals() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_local_does_not_allow_plain_http_to_a_public_address() -> None:
    async def lookup(host: str, port: int) -> list[str]:
        return ["8.8.8.8", "1.1.1.1"]

    async def connect() -> None:
        endpoint = endpoint_of("http://app.example/", lookup=lookup)
        await endpoint.resolve()
        await endpoint.connect(5.0)

    with pytest.raises(EgressRefused):
        asyncio.run(connect())
