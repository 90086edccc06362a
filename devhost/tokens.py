"""Tokens on this machine (TOKENS=1): a fake identity endpoint, and a certificate with which the receiver serves https.

The endpoint speaks the protocol of App Service. Its tokens have the form of Entra's and a signature that is none, so no API takes them.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import ssl
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

CLIENT_ID = "00000000-1111-4222-8333-444444444444"
"""Client id of the fake identity, as in TOCSIN_TOKEN_CLIENT_ID."""
SECONDS = 3600
"""Life of a token."""


class FakeIdentity:
    """Answers `GET /msi/token?resource=..&client_id=..` with a token of the fake identity, and every other identity's call with 400."""

    def __init__(self) -> None:
        """Call inside a running loop."""
        self._header = secrets.token_hex(16)
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=1.0)

    async def start(self) -> dict[str, str]:
        """Listen on a free port of this machine; return the environment in which the app finds the endpoint."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/msi/token"
        return {"IDENTITY_ENDPOINT": url, "IDENTITY_HEADER": self._header, "TOCSIN_TOKEN_CLIENT_ID": CLIENT_ID}

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        query = request.query
        if request.headers.get("x-identity-header") != self._header or query.get("client_id") != CLIENT_ID or "resource" not in query:
            return web.json_response({"error": "invalid_request"}, status=400)
        expires = int(time.time()) + SECONDS
        token = fake_token(query["resource"], expires)
        return web.json_response({"access_token": token, "expires_on": str(expires), "token_type": "Bearer", "client_id": CLIENT_ID})


def fake_token(audience: str, expires: int) -> str:
    """Return a token that nobody has signed. expires: seconds since 1970."""
    claims = {"aud": audience, "iss": "https://devhost.invalid/", "appid": CLIENT_ID, "oid": CLIENT_ID, "exp": expires}
    return f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(claims)}.devhost"


def _part(content: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


class LocalCertificate:
    """A certificate of localhost that lasts as long as the devhost, in a folder of its own."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tocsin-devhost-"))
        own = make_certificate(self._folder, "localhost")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """For the server."""
        self.context.load_cert_chain(own)
        known = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
        self.trusted = self._folder / "trusted.pem"
        """The authorities of this machine, and the certificate; without its key."""
        certificate = own.read_text().partition("-----BEGIN CERTIFICATE-----")
        self.trusted.write_text(f"{Path(known).read_text() if known else ''}\n{certificate[1]}{certificate[2]}")

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)


def make_certificate(folder: Path, *names: str, alternative: bool = True) -> Path:
    """Write a key and a certificate that it signs itself, valid for these names and a month, to one file. Return the file.

    alternative: False for a certificate without subjectAltName, whose common name is the first name.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
    )
    if alternative:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    path = folder / "server.pem"
    plain = serialization.NoEncryption()
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path
