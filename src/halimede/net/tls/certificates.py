"""Certificates and keys in files, and what is wrong with them."""

import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_KEY: Final = "-----BEGIN [A-Z ]*PRIVATE KEY-----"
_SOON: Final = timedelta(days=14)
"""How long before its end a certificate is warned of."""

_VERSION_TAG, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18


class CertificateError(Exception):
    """Files do not hold what TLS needs; the text says which, and why."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where a listener's certificate and key are, in PEM.

    Attributes:
        certificate: the server's certificate, followed by those that lead to its root.
        key: the certificate's key.
        clients: certificates that vouch for those of clients, who must then show one; None to ask for none.
    """

    certificate: Path
    key: Path
    clients: Path | None = None

    @property
    def paths(self) -> list[Path]:
        """All of them."""
        return [path for path in (self.certificate, self.key, self.clients) if path is not None]


def load_context(files: TlsFiles, protocol: str) -> ssl.SSLContext:
    """TLS 1.2 and later, as the files say.

    Args:
        files: the files.
        protocol: what is spoken inside, by its name in ALPN.

    Raises:
        CertificateError: a file does not hold what it should.
    """
    _check_contents(files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols([protocol])

    def no_passphrase() -> str:
        msg = f"the key '{files.key}' has a passphrase; remove it with: openssl pkey -in {files.key} -out KEY"
        raise CertificateError(msg)

    try:
        context.load_cert_chain(files.certificate, files.key, no_passphrase)
    except (OSError, ssl.SSLError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            msg = f"the key '{files.key}' does not belong to the certificate '{files.certificate}'"
        else:
            msg = f"cannot use the certificate '{files.certificate}' with the key '{files.key}': {_reason(error)}"
        raise CertificateError(msg) from error
    if files.clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(files.clients)
        except (OSError, ssl.SSLError) as error:
            msg = f"cannot use the certificates '{files.clients}': {_reason(error)}"
            raise CertificateError(msg) from error
    return context


def _check_contents(files: TlsFiles) -> None:
    """Refuse what OpenSSL would refuse without saying which file it is, or what it lacks."""
    needed = [(files.certificate, _CERTIFICATE, "certificate"), (files.key, _KEY, "private key")]
    if files.clients is not None:
        needed.append((files.clients, _CERTIFICATE, "certificate"))
    for path, beginning, what in needed:
        try:
            text = path.read_text("latin-1")
        except OSError as error:
            msg = f"cannot read '{path}': {error.strerror}"
            raise CertificateError(msg) from error
        if not re.search(beginning, text):
            msg = f"'{path}' holds no {what} in PEM"
            raise CertificateError(msg)


def _reason(error: OSError) -> str:
    """What OpenSSL calls the fault, in lower case; it has names such as EE_KEY_TOO_SMALL."""
    name = getattr(error, "reason", None)
    return name.replace("_", " ").lower() if isinstance(name, str) else str(error)


def validity_remark(path: Path, now: datetime) -> str:
    """What to warn of: that the server's certificate is not valid yet, or any more, or not for long; "" for nothing."""
    try:
        first, last = read_validity(path.read_text("latin-1"))
    except (OSError, ValueError):  # OpenSSL has just accepted it
        return ""
    if now < first:
        return f"the certificate '{path}' is valid from {_shown(first)} only; clients refuse it until then"
    if now > last:
        return f"the certificate '{path}' expired at {_shown(last)}; clients refuse it"
    if last - now < _SOON:
        return f"the certificate '{path}' expires at {_shown(last)}"
    return ""


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def read_validity(pem: str) -> tuple[datetime, datetime]:
    """From when to when the first certificate of a PEM text is valid.

    Raises:
        ValueError: there is none, or none of X.509.
    """
    start, end = pem.find(_CERTIFICATE), pem.find(_END)
    if start < 0 or end < start:
        raise ValueError("no certificate in PEM")
    der = ssl.PEM_cert_to_DER_cert(pem[start : end + len(_END)])
    _, position, _ = _element(der, 0)  # the certificate
    _, position, _ = _element(der, position)  # what is signed
    tag, _, end = _element(der, position)
    before = ("serial number", "algorithm", "issuer") if tag == _VERSION_TAG else ("algorithm", "issuer")
    for _ in before:
        _, _, end = _element(der, end)
    _, position, _ = _element(der, end)
    first_tag, start, end = _element(der, position)
    last_tag, last_start, last_end = _element(der, end)
    return _time(first_tag, der[start:end]), _time(last_tag, der[last_start:last_end])


def _element(der: bytes, position: int) -> tuple[int, int, int]:
    """Tag, begin and end of the content of the DER element at a position."""
    header = der[position : position + 2]
    if len(header) < 2:
        raise ValueError("the certificate is cut off")
    tag, length = header
    begin = position + 2
    if length > 0x7F:
        digits = length & 0x7F
        length = int.from_bytes(der[begin : begin + digits], "big")
        begin += digits
    if begin + length > len(der):
        raise ValueError("the certificate is cut off")
    return tag, begin, begin + length


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # RFC 5280: two digits from 50 on are of the last century
        text = ("19" if text >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("the certificate has no validity where it should be")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
