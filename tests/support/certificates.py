"""Certificates for tests of TLS."""

import subprocess
from pathlib import Path


def make_certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """A certificate for itself, and its key; Python 3.13 and later refuse roots without a key usage."""
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-addext", "keyUsage=critical,digitalSignature,keyCertSign", "-out", certificate, "-keyout", key],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


class Authority:
    """Vouches for certificates.

    Attributes:
        certificate: its own.
    """

    def __init__(self, directory: Path, name: str = "root") -> None:
        self._directory = directory
        self.certificate, self._key = make_certificate(directory, name)

    def issue(self, name: str, days: int = 30, subject: str = "localhost") -> tuple[Path, Path]:
        """A certificate for this machine's local names that is valid for so many days from now, and its key."""
        certificate, key = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        request, extensions = self._directory / f"{name}.csr", self._directory / f"{name}.ext"
        extensions.write_text(
            "subjectAltName=DNS:localhost,IP:127.0.0.1\n"
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        subprocess.run(
            ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-subj", f"/CN={subject}", "-out", request, "-keyout", key],
            check=True, capture_output=True,
        )  # fmt: skip
        subprocess.run(
            ["openssl", "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key,
             "-days", str(days), "-extfile", extensions, "-out", certificate],
            check=True, capture_output=True,
        )  # fmt: skip
        return certificate, key
