import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.net.tls.certificates import (
    CertificateError,
    TlsFiles,
    load_context,
    read_validity,
    validity_remark,
)
from tests.support.certificates import Authority, make_certificate


def refusal(certificate: Path, key: Path, clients: Path | None = None) -> str:
    with pytest.raises(CertificateError) as refused:
        load_context(TlsFiles(certificate, key, clients), "http/1.1")
    return str(refused.value)


def test_only_tls_from_1_2_without_renegotiation_is_spoken(tmp_path: Path) -> None:
    context = load_context(TlsFiles(*make_certificate(tmp_path, "server")), "http/1.1")
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.verify_mode == ssl.CERT_NONE


def test_roots_make_clients_show_certificates(tmp_path: Path) -> None:
    files = make_certificate(tmp_path, "server")
    assert load_context(TlsFiles(*files, files[0]), "h2").verify_mode == ssl.CERT_REQUIRED


def test_what_is_wrong_with_files_is_told_by_name(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "server")
    _, other_key = make_certificate(tmp_path, "other")
    wrong, missing = tmp_path / "wrong", tmp_path / "missing"
    wrong.write_bytes(b"\xff no certificate")
    assert refusal(certificate, other_key) == (
        f"the key '{other_key}' does not belong to the certificate '{certificate}'"
    )
    assert refusal(missing, key) == f"cannot read '{missing}': No such file or directory"
    assert refusal(wrong, key) == f"'{wrong}' holds no certificate in PEM"
    assert refusal(certificate, certificate) == f"'{certificate}' holds no private key in PEM"
    assert refusal(certificate, key, wrong) == f"'{wrong}' holds no certificate in PEM"


def test_a_damaged_certificate_is_refused(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "server")
    damaged = tmp_path / "damaged"
    damaged.write_text(certificate.read_text().replace("MII", "AAA", 1))
    assert refusal(damaged, key).startswith(f"cannot use the certificate '{damaged}' with the key '{key}': ")
    assert refusal(certificate, key, damaged).startswith(f"cannot use the certificates '{damaged}': ")


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "server")
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:secret", "-out", locked], check=True
    )
    assert refusal(certificate, locked) == (
        f"the key '{locked}' has a passphrase; remove it with: openssl pkey -in {locked} -out KEY"
    )


def test_a_certificate_is_warned_of_before_during_and_after_its_last_days(tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path, "server")
    first, last = read_validity(certificate.read_text())
    assert last - first == timedelta(days=30)
    assert abs(datetime.now(UTC) - first) < timedelta(hours=1)
    shown = f"{last:%Y-%m-%d %H:%M:%S} UTC"
    assert validity_remark(certificate, first) == ""
    assert (
        validity_remark(certificate, last - timedelta(days=13))
        == f"the certificate '{certificate}' expires at {shown}"
    )
    assert validity_remark(certificate, last + timedelta(seconds=1)) == (
        f"the certificate '{certificate}' expired at {shown}; clients refuse it"
    )
    assert validity_remark(certificate, first - timedelta(days=1)) == (
        f"the certificate '{certificate}' is valid from {first:%Y-%m-%d %H:%M:%S} UTC only; "
        "clients refuse it until then"
    )


@pytest.mark.parametrize("days", [10, 365 * 30])
def test_dates_are_read_as_openssl_reads_them(tmp_path: Path, days: int) -> None:
    certificate, _ = Authority(tmp_path).issue("server", days)
    printed = subprocess.run(
        ["openssl", "x509", "-in", certificate, "-noout", "-enddate"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    _, last = read_validity(certificate.read_text())
    assert last.timestamp() == ssl.cert_time_to_seconds(printed.strip().removeprefix("notAfter="))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_certificate_have_no_validity(der: bytes) -> None:
    with pytest.raises(ValueError, match="the certificate"):
        read_validity(ssl.DER_cert_to_PEM_cert(der))


@given(st.data())
def test_a_damaged_certificate_has_a_validity_or_is_refused(data: st.DataObject) -> None:
    der = bytearray(ssl.PEM_cert_to_DER_cert(_PEM))
    for _ in range(data.draw(st.integers(1, 5))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    refused = ""
    first = last = None
    try:
        first, last = read_validity(ssl.DER_cert_to_PEM_cert(bytes(der)))
    except ValueError as error:
        refused = str(error)
    assert refused or (first and last and first.tzinfo and last.tzinfo)


_PEM = """-----BEGIN CERTIFICATE-----
MIIBfDCCASOgAwIBAgIUK3pym8XOmRECdI1Kohu226Ophk4wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MB4XDTI2MTEyNDAwMjAyN1oXDTI2MTIyNDAw
MjAyN1owFDESMBAGA1UEAwwJbG9jYWxob3N0MFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAE5PSZZAohQWemmmJsIX9OtAkLnUC4qYAilwdYSRXCxSmBua2lMT+PgzO4
mNvbqT2zwKhYcX5xKwcCnwnMX2LElKNTMFEwHQYDVR0OBBYEFNI87BT2sapc0job
s8KJvK/Q5xMtMB8GA1UdIwQYMBaAFNI87BT2sapc0jobs8KJvK/Q5xMtMA8GA1Ud
EwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgfdrTkfweuMSb6pFfWwuU0wfM
+MUZLB+EjYxPrm9owBICIG8hVWI+Kr68u6qHd/+tYAF9cB5uyk1T0WF5Jrmi0LZj
-----END CERTIFICATE-----"""
