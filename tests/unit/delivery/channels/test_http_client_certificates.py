"""Client certificates of http channels, against a server with TLS that demands one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from shared.core.clock import SettableClock
from shared.core.errors import UnsafeSettings
from shared.core.http_exchange import HttpReply, TransportFailure
from shared.core.settings import Settings
from shared.delivery.channels.http import HttpSender
from shared.delivery.channels.model import HttpChannel
from shared.delivery.channels.ports import Target, Verdict
from shared.delivery.channels.validation import find_faults
from shared.delivery.client_certificates import sources
from shared.delivery.client_certificates.bundle import Bundle, load_bundle, parse_bundle
from shared.delivery.client_certificates.sources import CertificateFault, parse_certificates, reader
from shared.delivery.client_certificates.store import RENEWED_AFTER, RETRIED_AFTER, ClientCertificates
from shared.delivery.egress_guard import Egress
from shared.delivery.listed_tenants import TenantIdentity
from tests.certificates import make_certificate
from tests.texts import assert_text

from .conftest import NOW, OK, Listen, Receiver, Request, deployed_settings, make_delivery, make_settings

PEM, PLAIN = serialization.Encoding.PEM, serialization.NoEncryption()
DAY = 86_400_000


class Issued(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate_pem + self.key_pem

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(PEM).decode()

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, PLAIN).decode()

    @property
    def pkcs12(self) -> str:
        return base64.b64encode(pkcs12.serialize_key_and_certificates(None, self.key, self.certificate, None, PLAIN)).decode()


def issue(name: str, authority: Issued | None = None, *, first: int = NOW - DAY, last: int = NOW + DAY) -> Issued:
    """Issue a certificate; without an authority, one that signs itself and others."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.certificate.subject if authority else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime.fromtimestamp(first // 1000, datetime.UTC))
        .not_valid_after(datetime.datetime.fromtimestamp(last // 1000, datetime.UTC))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .sign(authority.key if authority else key, hashes.SHA256())
    )
    return Issued(made, key)


def far(name: str, authority: Issued | None = None) -> Issued:
    """Issue a certificate that is valid by the machine's clock, which a server uses, and by the clock of the tests."""
    return issue(name, authority, first=1_577_836_800_000, last=NOW + 365 * DAY)


AUTHORITY = far("clients")
UID, OTHER_UID = "0123456789abcdef", "fedcba9876543210"


class Bank:
    """A server that demands a client certificate of `AUTHORITY`, and the vault that the sender reads."""

    def __init__(self, server: Receiver, clock: SettableClock, trusting: Callable[[], ssl.SSLContext]) -> None:
        self.server, self.clock = server, clock
        self.vault: dict[str, str | CertificateFault] = {}
        self.reads: list[str] = []
        self.certificates = ClientCertificates(
            {("a", "bank"): "a's", ("b", "bank"): "b's", (f"shop@{UID}", "bank"): "shop's"}, clock, self.read, context=trusting
        )
        self.sender = HttpSender(make_settings("127.0.0.0/8"), clock, lookup=loopback, tls=trusting(), certificates=self.certificates)
        self.seen: list[tuple[str, str]] = []
        """The tenant of each request, and the name in the certificate of its connection."""

    async def read(self, source: str) -> str:
        self.reads.append(source)
        found = self.vault.get(source, CertificateFault("the vault has no such certificate or secret"))
        if isinstance(found, CertificateFault):
            raise found
        return found

    async def send(self, tenant: str, certificate: str | None = "bank", event: str = "ev-1", uid: str = "") -> Verdict:
        spec = HttpChannel(type="http", url=f"https://bank.example:{self.server.port}/hook?token=s3cret", client_certificate=certificate)
        return await self.sender.send(Target(tenant, "default", spec, uid=uid), make_delivery(event))


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture
async def bank(listen: Listen, tmp_path: Path) -> AsyncIterator[Bank]:
    pem = make_certificate(tmp_path, "bank.example")
    demanding = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    demanding.load_cert_chain(pem)
    demanding.verify_mode = ssl.CERT_REQUIRED
    demanding.load_verify_locations(cadata=AUTHORITY.certificate_pem)
    made: list[Bank] = []

    async def handle(request: Request, writer: asyncio.StreamWriter) -> None:
        [[(_, name)]] = writer.get_extra_info("peercert")["subject"]
        made[0].seen.append((request.headers["ce-source"].split("/")[2], name))
        writer.write(OK)

    server = await listen(handle, tls=demanding)
    made.append(Bank(server, SettableClock(NOW), lambda: ssl.create_default_context(cafile=str(pem))))
    yield made[0]
    await made[0].sender.close()


async def test_two_tenants_certificates_never_mix(bank: Bank) -> None:
    bank.vault = {"a's": far("alice", AUTHORITY).pem, "b's": far("bob", AUTHORITY).pkcs12}
    for _ in range(4):
        verdicts = await asyncio.gather(*[bank.send(tenant, event=f"ev-{n}") for n in range(4) for tenant in "ab"])
        assert {verdict.outcome for verdict in verdicts} == {"delivered"}
    assert sorted(set(bank.seen)) == [("a", "alice"), ("b", "bob")] and len(bank.seen) == 32
    assert bank.server.connections < 32  # connections are kept, each for its own tenant
    assert sorted(bank.reads) == ["a's", "b's"]
    unlisted = await bank.send("c")
    assert unlisted.outcome == "retry"
    assert_text("certificate.not-listed", unlisted.error, url=f"https://bank.example:{bank.server.port}")
    assert len(bank.seen) == 32


async def test_tenants_with_the_same_certificate_have_connections_of_their_own(bank: Bank) -> None:
    same = far("shared", AUTHORITY).pem
    bank.vault = {"a's": same, "b's": same}
    for tenant in "abab":
        assert (await bank.send(tenant)).outcome == "delivered"
    assert bank.server.connections == 2


async def test_a_renewed_certificate_is_used_within_the_stated_time_and_meanwhile_the_former_one(bank: Bank) -> None:
    bank.vault["a's"] = far("first", AUTHORITY).pem
    assert (await bank.send("a")).outcome == "delivered"
    bank.vault["a's"] = far("second", AUTHORITY).pem
    await bank.clock.advance(RENEWED_AFTER - 1)
    assert (await bank.send("a")).outcome == "delivered" and len(bank.reads) == 1
    await bank.clock.advance(1)
    while ("a", "second") not in bank.seen:
        assert (await bank.send("a")).outcome == "delivered"
    assert (await bank.send("a")).outcome == "delivered" and bank.seen[-1] == ("a", "second")
    assert bank.seen[:2] == [("a", "first")] * 2 and len(bank.reads) == 2


async def test_a_vault_that_fails_or_holds_garbage_leaves_the_former_certificate_in_use(
    bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    issued = far("first", AUTHORITY)
    bank.vault["a's"] = issued.pem
    assert (await bank.send("a")).outcome == "delivered"
    for count, bad in enumerate(
        [CertificateFault("the vault cannot be reached"), issued.key_pem, issue("later", AUTHORITY, first=NOW + DAY // 2).pem], 2
    ):
        bank.vault["a's"] = bad
        await bank.clock.advance(RENEWED_AFTER)
        while len(bank.reads) < count or not all(kept.reading is None or kept.reading.done() for kept in bank.certificates._kept.values()):
            assert (await bank.send("a")).outcome == "delivered"
        assert (await bank.send("a")).outcome == "delivered"
    assert set(bank.seen) == {("a", "first")}
    unread = [record for record in caplog.records if getattr(record, "action", "") == "client_certificate_unread"]
    assert len(unread) == 2 and "PRIVATE" not in caplog.text


async def test_a_certificate_that_cannot_be_read_fails_the_attempt_and_is_not_asked_for_each_time(bank: Bank) -> None:
    for _ in range(3):
        verdict = await bank.send("a")
        error = f"https://bank.example:{bank.server.port}: client certificate bank: the vault has no such certificate or secret"
        assert verdict == Verdict("retry", None, error)
    assert len(bank.reads) == 1 and bank.server.connections == 0
    bank.vault["a's"] = far("alice", AUTHORITY).pem
    await bank.clock.advance(RETRIED_AFTER)
    assert (await bank.send("a")).outcome == "delivered"


async def test_an_expired_certificate_is_named_and_its_renewal_is_found(bank: Bank, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bank.vault["a's"] = issue("alice", AUTHORITY, last=NOW + 1000).pem
    await bank.clock.advance(1)
    verdict = await bank.send("a")
    assert verdict.outcome == "retry"
    assert_text("certificate.expired", verdict.error, url=f"https://bank.example:{bank.server.port}", at="2027-01-15T08:00:01.000Z")
    assert bank.server.connections == 0
    bank.vault["a's"] = far("alice", AUTHORITY).pem
    await bank.clock.advance(RENEWED_AFTER)
    assert (await bank.send("a")).outcome == "delivered"
    assert "PRIVATE" not in caplog.text and "s3cret" not in caplog.text


async def test_a_certificate_that_the_server_refuses_is_one_clear_error(bank: Bank) -> None:
    bank.vault["a's"] = far("mallory", far("another authority")).pem
    verdict = await bank.send("a")
    assert verdict.outcome == "retry" and verdict.status is None
    assert "client certificate" in (verdict.error or "") and "s3cret" not in (verdict.error or "")
    without = await bank.send("a", None)
    assert without.outcome == "retry" and "client certificate" not in (without.error or "")
    assert bank.seen == []


def test_a_bundle_is_read_in_every_form_that_vaults_keep() -> None:
    issued = far("alice", AUTHORITY)
    chain = base64.b64encode(
        pkcs12.serialize_key_and_certificates(b"name", issued.key, issued.certificate, [AUTHORITY.certificate], PLAIN)
    ).decode()
    traditional = issued.key.private_bytes(PEM, serialization.PrivateFormat.TraditionalOpenSSL, PLAIN).decode()
    for text in (
        issued.pem,
        issued.key_pem + issued.certificate_pem,
        f"text\r\n{traditional}\n{AUTHORITY.certificate_pem}\n{issued.certificate_pem}",
        issued.pkcs12,
        chain,
    ):
        bundle = parse_bundle(text)
        assert bundle.pem.index(issued.key_pem.encode()) == 0 and bundle.pem.index(issued.certificate_pem.encode()) == len(issued.key_pem)
        assert bundle.not_after == (NOW + 365 * DAY) // 1000 * 1000 and "PRIVATE" not in repr(bundle)


def test_where_the_system_has_no_files_in_memory_none_is_left_on_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> int:
        raise OSError

    monkeypatch.setattr("os.memfd_create", refuse, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    issued = far("alice")
    for text, taken in ((issued.pem, True), (issued.pem.replace(issued.key_pem, far("bob").key_pem), False)):
        bundle = Bundle(text.encode(), 0, 0)
        with contextlib.nullcontext() if taken else pytest.raises(CertificateFault, match="TLS does not take it"):
            load_bundle(ssl.create_default_context(), bundle)
    assert list(tmp_path.iterdir()) == []


def bad_bundles() -> dict[str, str]:
    issued, other = far("alice"), far("bob")
    secret = serialization.BestAvailableEncryption(b"s3cret")
    return {
        "it is neither PEM": "s3cret?",
        "it has no private key": issued.certificate_pem,
        "it has no certificate": issued.key_pem,
        "it has several private keys": issued.pem + other.key_pem,
        "its private key belongs to none": issued.certificate_pem + other.key_pem,
        "a key with a password is not supported": issued.certificate_pem
        + issued.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, secret).decode(),
        "it cannot be read": "-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----",
        "it cannot be read (ValueError)": base64.b64encode(b"s3cret").decode(),
    }


def test_what_is_no_bundle_is_refused_without_a_word_of_it() -> None:
    for fault, text in bad_bundles().items():
        with pytest.raises(CertificateFault) as raised:
            parse_bundle(text)
        assert fault in str(raised.value) and "s3cret" not in str(raised.value)
        assert raised.value.__cause__ is None


LISTED = "a/bank=https://kv1.vault.azure.net/secrets/bank-a, a/pay=https://KV1.vault.azure.net/certificates/pay, b/bank=env:BANK_PEM,"


def listed(text: str) -> Settings:
    return Settings(storage="UseDevelopmentStorage=true", client_certificates=text)


@pytest.mark.parametrize(
    "entry",
    [
        "bank=https://kv1.vault.azure.net/secrets/x",
        "a/bank",
        "-----BEGIN PRIVATE KEY-----",
        "a/bank=https://kv1.vault.azure.net/secrets/x/0123456789abcdef",
        "a/bank=https://kv1.vault.azure.net.evil.example/secrets/x",
        "a/bank=https://evil.example/secrets/x",
        "a/bank=https://evil.example/?.vault.azure.net/secrets/x",
        "a/bank=http://kv1.vault.azure.net/secrets/x",
        "a/bank=https://kv1.vault.azure.net/secrets/../keys/x",
        "a/bank=-----BEGIN PRIVATE KEY-----",
        "a/bank=env:X, a/bank=env:Y",
    ],
)
def test_an_entry_that_is_none_stops_the_start(entry: str) -> None:
    with pytest.raises(UnsafeSettings, match="TOCSIN_CLIENT_CERTIFICATES") as raised:
        parse_certificates(listed(entry))
    assert "BEGIN" not in str(raised.value)


def test_a_channel_names_a_certificate_of_its_own_tenant_and_https() -> None:
    certificates = parse_certificates(listed(LISTED))
    assert set(certificates) == {("a", "bank"), ("a", "pay"), ("b", "bank")}

    def ask(tenant: str, name: str, url: str = "https://bank.example/") -> list[str]:
        spec = HttpChannel(type="http", url=url, client_certificate=name)
        return [
            pointer for pointer, _ in find_faults(spec, Egress(["bank.example"]), frozenset(), TenantIdentity(tenant, UID), certificates)
        ]

    assert ask("a", "pay") == ask("b", "bank") == []
    assert ask("b", "pay") == ask("c", "bank") == ask("a", "tocsin-admin-key") == ["/client_certificate"]
    assert ask("a", "pay", "http://bank.example/") == ["/client_certificate"]


@pytest.mark.parametrize("entry", ["a/bank=env:X", "a@1/bank=env:X", f"@{UID}/bank=env:X", f"a@{UID}@{UID}/bank=env:X"])
def test_a_deployed_app_does_not_start_with_a_certificate_of_a_tenant_without_its_uid(entry: str) -> None:
    with pytest.raises(UnsafeSettings, match="TOCSIN_CLIENT_CERTIFICATES"):
        parse_certificates(deployed_settings(client_certificates=entry))


async def test_a_later_tenant_of_the_same_name_does_not_get_the_certificate(bank: Bank) -> None:
    bank.vault["shop's"] = far("shop", AUTHORITY).pem
    assert (await bank.send("shop", uid=UID)).outcome == "delivered"
    reads = list(bank.reads)
    for uid in (OTHER_UID, ""):
        refused = await bank.send("shop", uid=uid)
        assert refused.outcome == "retry" and "not listed it for this tenant" in (refused.error or "")
    assert bank.seen == [("shop", "shop")] and bank.reads == reads


async def test_a_stored_channel_without_tls_sends_nothing(listen: Listen) -> None:
    receiver = await listen()
    certificates = ClientCertificates({}, SettableClock(NOW), reader(Tokens()))
    sender = HttpSender(make_settings("127.0.0.0/8"), SettableClock(NOW), certificates=certificates)
    spec = HttpChannel(type="http", url=f"http://127.0.0.1:{receiver.port}/", client_certificate="bank")
    verdict = await sender.send(Target("a", "default", spec), make_delivery())
    assert verdict == Verdict("final", None, verdict.error)
    assert_text("certificate.needs-https", verdict.error)
    assert receiver.connections == 0
    await sender.close()


class Tokens:
    async def get(self) -> str:
        return "s3cret-token"

    def refused(self) -> None:
        pass

    async def close(self) -> None:
        pass


async def test_the_newest_version_is_read_from_the_listed_vault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, str, Any]] = []
    reply: list[HttpReply | TransportFailure] = [HttpReply(200, json.dumps({"value": "PEM"}).encode())]

    def exchange(method: str, url: str, *, headers: dict[str, str], **rest: Any) -> HttpReply | TransportFailure:
        asked.append((method, url, headers))
        return reply[0]

    monkeypatch.setattr(sources, "exchange", exchange)
    read = reader(Tokens())
    assert await read("https://KV1.vault.azure.net/certificates/bank-a") == "PEM"
    assert asked == [("GET", "https://kv1.vault.azure.net/secrets/bank-a?api-version=7.4", {"Authorization": "Bearer s3cret-token"})]
    for bad, fault in [
        (HttpReply(403, b"s3cret"), "Key Vault Secrets User"),
        (HttpReply(404, b"s3cret"), "no such certificate"),
        (HttpReply(500, b"s3cret"), "answered 500"),
        (HttpReply(200, b"s3cret"), "no value"),
        (HttpReply(200, b'{"value": 1}'), "no value"),
        (TransportFailure("s3cret", timed_out=True), "in time"),
        (TransportFailure("s3cret"), "cannot be reached"),
    ]:
        reply[0] = bad
        with pytest.raises(CertificateFault, match=fault) as raised:
            await read("https://kv1.vault.azure.net/secrets/bank-a")
        assert "s3cret" not in str(raised.value)
    issued = far("alice")
    (tmp_path / "a.pem").write_text(issued.pem)
    (tmp_path / "a.pfx").write_bytes(base64.b64decode(issued.pkcs12))
    monkeypatch.setenv("BANK_PEM", issued.pem)
    for source in (f"file:{tmp_path}/a.pem", f"file:{tmp_path}/a.pfx", "env:BANK_PEM"):
        assert parse_bundle(await read(source)).not_after
    for source in (f"file:{tmp_path}/none", "env:BANK_NONE"):
        with pytest.raises(CertificateFault):
            await read(source)
