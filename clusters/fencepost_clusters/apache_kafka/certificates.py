"""Certificates of one run: an authority, and whom it signs. All keys are on the curve P-256.

They are made anew for each run, and are good for some days, so that nobody is tempted to keep them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Self, final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

GOOD_FOR = timedelta(days=30)
"""Longer than any run."""
_EARLIER = timedelta(days=1)
"""A container's clock may be behind."""


@final
@dataclass(frozen=True, slots=True)
class Authority:
    """A key that signs, and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, name: str, now: datetime) -> Self:
        """A new authority of that name; `now` is the time."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _begun(name, key.public_key(), now).issuer_name(_named(name))
        made = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return cls(key, made.sign(key, hashes.SHA256()))

    def pem(self) -> str:
        """The certificate alone, by which others check what it signed."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(self, name: str, hosts: Sequence[str], now: datetime) -> str:
        """A new key and its certificate as PEM, for a server and a client of that common name.

        `hosts` are the addresses and names at which the server is reached.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        made = (
            _begun(name, key.public_key(), now)
            .issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return (private + made.public_bytes(Encoding.PEM)).decode()


def _begun(name: str, key: ec.EllipticCurvePublicKey, now: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - _EARLIER)
        .not_valid_after(now.astimezone(UTC) + GOOD_FOR)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
