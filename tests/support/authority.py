"""A certificate authority for tests of TLS."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


class Authority:
    """Signs certificates, in files of a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._signed(self.name, self.key).public_bytes(serialization.Encoding.PEM))

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, address: str = "127.0.0.1"
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        is_own = subject == self.name
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_own, path_length=None), critical=True)
            # Python 3.13 refuses certificates without these (RFC 5280).
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .add_extension(_usage(signs_certificates=is_own), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def certificate(self, name: str, address: str = "127.0.0.1") -> tuple[str, str]:
        """The files of a certificate for an address, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self._signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key, address)
        files = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return str(files[0]), str(files[1])
