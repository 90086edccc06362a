"""A certificate with its private key, in the forms in which vaults keep it: PEM, or PKCS#12 in base64 without a password."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import ssl
import tempfile
from dataclasses import dataclass, field

from ...core.clock import Millis
from .sources import CertificateFault

_OPEN_FILES = "/proc/self/fd/"
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----.*?-----END \1-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A private key, its certificate and the chain above it. Times in milliseconds."""

    pem: bytes = field(repr=False)
    not_before: Millis
    not_after: Millis


def parse_bundle(text: str) -> Bundle:
    """Return the key and certificates in a text. Raises CertificateFault, whose message holds nothing of the text."""
    # Imported here, because an app without client certificates need not spend the time.
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        if "-----BEGIN " in text:
            blocks = [(found[1], found[0].encode()) for found in _BLOCK.finditer(text)]
            keys = [block for label, block in blocks if label.endswith("PRIVATE KEY")]
            if len(keys) > 1:
                raise CertificateFault("it has several private keys")
            key = serialization.load_pem_private_key(keys[0], None) if keys else None
            certificates = [x509.load_pem_x509_certificate(block) for label, block in blocks if label == "CERTIFICATE"]
        else:
            data = base64.b64decode(text, validate=True)
            try:
                bundle = pkcs12.load_pkcs12(data, None)
            except ValueError:
                # Some writers take no password for an empty one.
                bundle = pkcs12.load_pkcs12(data, b"")
            key = bundle.key
            certificates = [each.certificate for each in (bundle.cert, *bundle.additional_certs) if each is not None]
        if key is None or not certificates:
            raise CertificateFault(f"it has no {'private key' if key is None else 'certificate'}")
        own = next((each for each in certificates if each.public_key() == key.public_key()), None)
        if own is None:
            raise CertificateFault("its private key belongs to none of its certificates")
        form = serialization.Encoding.PEM
        parts = [key.private_bytes(form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())]
        parts += [each.public_bytes(form) for each in (own, *[other for other in certificates if other is not own])]
    except CertificateFault:
        raise
    except (binascii.Error, UnicodeEncodeError):
        raise CertificateFault("it is neither PEM nor PKCS#12 in base64") from None
    except Exception as error:
        # Whatever the library finds wrong; its text may quote the input.
        raise CertificateFault(f"it cannot be read ({type(error).__name__}); a key with a password is not supported") from None
    return Bundle(b"".join(parts), round(own.not_valid_before_utc.timestamp() * 1000), round(own.not_valid_after_utc.timestamp() * 1000))


def load_bundle(context: ssl.SSLContext, bundle: Bundle) -> None:
    """Make the context present this certificate. Raises CertificateFault."""
    file, path = _open_private()
    try:
        with os.fdopen(file, "wb", closefd=False) as writer:
            writer.write(bundle.pem)
        context.load_cert_chain(path)
    except (OSError, ValueError) as error:
        raise CertificateFault(f"TLS does not take it ({type(error).__name__})") from None
    finally:
        os.close(file)
        if not path.startswith(_OPEN_FILES):
            os.unlink(path)


def _open_private() -> tuple[int, str]:
    """Return a file that only this process can read, and its path: the module for TLS reads files only."""
    if hasattr(os, "memfd_create") and os.path.isdir(_OPEN_FILES):
        with contextlib.suppress(OSError):
            # It is in memory, has no name that another process could open, and leaves nothing on a disk.
            file = os.memfd_create("certificate", os.MFD_CLOEXEC)
            return file, f"{_OPEN_FILES}{file}"
    return tempfile.mkstemp()
