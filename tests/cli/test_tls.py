"""TLS as clients see it that know nothing of this server: curl, tritonclient over HTTP and gRPC, and openssl."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

from tests.cli.echo import REQUEST
from tests.support.certificates import Authority, make_certificate
from tests.support.server import FRONT_ENDS, ServerProcess, run_command, start_server


def flags(protocol: str, files: tuple[Path, Path], roots: Path | None = None) -> list[str]:
    given = [f"--{protocol}-server-cert={files[0]}", f"--{protocol}-server-key={files[1]}"]
    if roots is None:
        return [f"--{protocol}-use-ssl=true", *given]
    return [f"--{protocol}-use-ssl-mutual=true", *given, f"--{protocol}-root-cert={roots}"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority, echo_repository: Path) -> Iterator[ServerProcess]:
    """A server that shows a certificate over HTTP, gRPC and for metrics."""
    files = authority.issue("server")
    given = [*flags("http", files), *flags("grpc", files), "--metrics-use-ssl=true"]
    with start_server(echo_repository, *given, ready=False) as server:
        server.wait_for("| READY")
        yield server


@pytest.fixture(scope="module")
def mutual(authority: Authority, echo_repository: Path) -> Iterator[ServerProcess]:
    """A server that also asks for certificates."""
    files = authority.issue("server")
    given = [
        *flags("http", files, authority.certificate),
        *flags("grpc", files, authority.certificate),
        "--metrics-use-ssl",
    ]
    with start_server(echo_repository, *given, ready=False) as server:
        server.wait_for("| READY")
        yield server


def curl(authority: Authority, url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["curl", "-sS", "--max-time", "20", "--cacert", authority.certificate, *arguments, url],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def s_client(address: str, *arguments: str) -> str:
    """What openssl tells of a connection, on which nothing is sent."""
    done = subprocess.run(
        ["openssl", "s_client", "-connect", address, *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20, check=False,
    )  # fmt: skip
    return done.stdout.decode("utf-8", "replace")


@pytest.mark.front_ends
def test_curl_infers_over_tls_1_3(server: ServerProcess, authority: Authority) -> None:
    answer = curl(
        authority,
        f"https://{server.http}/v2/models/echo/infer",
        "-d",
        REQUEST.decode(),
        "-w",
        "%{ssl_verify_result}",
    )
    assert json.loads(answer.stdout.removesuffix("0"))["outputs"][0]["data"] == [1.0, 2.0]
    told = curl(authority, f"https://{server.http}/v2/health/ready", "-v").stderr
    assert "TLSv1.3" in told
    assert "ALPN: server accepted http/1.1" in told
    assert "HTTP/1.1 200 OK" in told


@pytest.mark.front_ends
def test_curl_sends_and_gets_megabytes(server: ServerProcess, authority: Authority, tmp_path: Path) -> None:
    header = json.dumps(
        {
            "inputs": [
                {
                    "name": "INPUT0",
                    "datatype": "FP32",
                    "shape": [2_500_000],
                    "parameters": {"binary_data_size": 10_000_000},
                }
            ],
            "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
        }
    ).encode()
    tensor = np.random.default_rng(0).random(2_500_000, np.float32).tobytes()
    body, answer = tmp_path / "body", tmp_path / "answer"
    body.write_bytes(header + tensor)
    done = curl(
        authority, f"https://{server.http}/v2/models/echo/infer", "--data-binary", f"@{body}", "-o", str(answer),
        "-H", f"Inference-Header-Content-Length: {len(header)}",
    )  # fmt: skip
    assert done.returncode == 0
    assert answer.read_bytes().endswith(tensor)


@pytest.mark.front_ends
def test_metrics_are_served_with_the_same_certificate(server: ServerProcess, authority: Authority) -> None:
    answer = curl(authority, f"https://{server.metrics}/metrics").stdout
    assert "nv_inference_request_success" in answer


@pytest.mark.front_ends
def test_tritonclient_infers_over_https(server: ServerProcess, authority: Authority) -> None:
    with httpclient.InferenceServerClient(
        server.http, ssl=True, ssl_options={"ca_certs": str(authority.certificate)}
    ) as client:
        assert client.is_server_ready()
        tensor = httpclient.InferInput("INPUT0", [3], "FP32")
        tensor.set_data_from_numpy(np.arange(3, dtype=np.float32))
        assert client.infer("echo", [tensor]).as_numpy("OUTPUT0").tolist() == [0, 1, 2]


@pytest.mark.front_ends
def test_tritonclient_infers_over_grpc_with_tls(server: ServerProcess, authority: Authority) -> None:
    with grpcclient.InferenceServerClient(
        server.grpc, ssl=True, root_certificates=str(authority.certificate)
    ) as client:
        assert client.is_server_ready()
        data = np.random.default_rng(0).random(1_000_000, np.float32)
        tensor = grpcclient.InferInput("INPUT0", [data.size], "FP32")
        tensor.set_data_from_numpy(data)
        assert (client.infer("echo", [tensor]).as_numpy("OUTPUT0") == data).all()


@pytest.mark.front_ends
def test_openssl_is_shown_the_certificate_and_the_protocol(
    server: ServerProcess, authority: Authority
) -> None:
    told = s_client(server.grpc, "-alpn", "h2", "-CAfile", str(authority.certificate))
    assert "ALPN protocol: h2" in told
    assert "Verify return code: 0 (ok)" in told
    assert "ALPN protocol: http/1.1" in s_client(server.http, "-alpn", "h2,http/1.1")
    assert "Cipher is (NONE)" in s_client(server.http, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0")


@pytest.mark.front_ends
def test_a_grpc_client_without_h2_is_closed_after_the_handshake(
    server: ServerProcess, authority: Authority
) -> None:
    told = s_client(server.grpc, "-CAfile", str(authority.certificate), "-ign_eof")
    assert "No ALPN negotiated" in told
    assert "Verify return code: 0 (ok)" in told
    server.wait_for("failed: the client does not offer 'h2' by ALPN")


@pytest.mark.front_ends
def test_http_without_tls_is_not_answered(server: ServerProcess, authority: Authority) -> None:
    assert curl(authority, f"http://{server.http}/v2/health/live").returncode != 0
    server.wait_for("failed: the client speaks HTTP without TLS")


@pytest.mark.front_ends
def test_clients_with_a_certificate_are_served(mutual: ServerProcess, authority: Authority) -> None:
    certificate, key = authority.issue("client")
    shown = ("--cert", str(certificate), "--key", str(key))
    assert curl(authority, f"https://{mutual.http}/v2", *shown).stdout.startswith('{"name":"triton"')
    assert "nv_" in curl(authority, f"https://{mutual.metrics}/metrics", *shown).stdout
    options = {
        "ca_certs": str(authority.certificate),
        "certfile": str(certificate),
        "keyfile": str(key),
    }
    with httpclient.InferenceServerClient(mutual.http, ssl=True, ssl_options=options) as http_client:
        assert http_client.is_server_live()
    with grpcclient.InferenceServerClient(
        mutual.grpc,
        ssl=True,
        root_certificates=str(authority.certificate),
        private_key=str(key),
        certificate_chain=str(certificate),
    ) as grpc_client:
        assert grpc_client.is_server_live()


@pytest.mark.front_ends
def test_clients_without_a_certificate_are_told_so(mutual: ServerProcess, authority: Authority) -> None:
    refused = curl(authority, f"https://{mutual.http}/v2")
    assert refused.returncode != 0
    assert "certificate required" in refused.stderr
    mutual.wait_for("HTTPService: the TLS handshake of 127.0.0.1:")
    mutual.wait_for("failed: the client has shown no certificate")
    with grpc.secure_channel(
        mutual.grpc, grpc.ssl_channel_credentials(authority.certificate.read_bytes())
    ) as channel:
        with pytest.raises(grpc.RpcError) as failed:
            channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=20)
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    mutual.wait_for("GRPCInferenceService: the TLS handshake of 127.0.0.1:")


@pytest.mark.front_ends
def test_an_expired_client_certificate_is_told_to_both_sides(
    mutual: ServerProcess, authority: Authority
) -> None:
    certificate, key = authority.issue("expired", days=-1)
    refused = curl(authority, f"https://{mutual.http}/v2", "--cert", str(certificate), "--key", str(key))
    assert "certificate expired" in refused.stderr
    mutual.wait_for("failed: the client's certificate is refused: certificate has expired")


@pytest.mark.front_ends
def test_clients_that_want_another_name_than_the_certificates_refuse_it(
    server: ServerProcess, authority: Authority
) -> None:
    port = server.http.rpartition(":")[2]
    there = f"other.example:{port}:127.0.0.1"
    refused = curl(authority, f"https://other.example:{port}/v2", "--resolve", there)
    assert refused.returncode == 60
    told = s_client(
        server.http,
        "-CAfile",
        str(authority.certificate),
        "-verify_hostname",
        "other.example",
        "-verify_return_error",
    )
    assert "hostname mismatch" in told.lower()
    server.wait_for("failed: the client refuses it, perhaps for the server's certificate: bad certificate")


@pytest.mark.front_ends
def test_a_renewed_certificate_is_shown_without_breaking_connections(
    authority: Authority, echo_repository: Path, tmp_path: Path
) -> None:
    files = {
        protocol: (tmp_path / f"{protocol}.crt", tmp_path / f"{protocol}.key")
        for protocol in ("http", "grpc")
    }

    def write(subject: str) -> None:
        for protocol in files:
            for target, source in zip(
                files[protocol], authority.issue(subject, subject=subject), strict=True
            ):
                shutil.copy(source, target)

    write("first")
    given = [*flags("http", files["http"]), *flags("grpc", files["grpc"])]
    with start_server(echo_repository, *given, ready=False) as server:
        server.wait_for("| READY")
        with grpcclient.InferenceServerClient(
            server.grpc, ssl=True, root_certificates=str(authority.certificate)
        ) as kept:
            assert kept.is_server_live()
            write("second")
            for name, address in (("HTTP", server.http), ("gRPC", server.grpc)):
                certificate, key = files[name.lower()]
                server.wait_for(
                    f"TLS of {name}: new connections use the changed files '{certificate}', '{key}'",
                    times=FRONT_ENDS,  # each reads them
                )
                assert "subject=CN = second" in s_client(address, "-alpn", "h2")
            key = files["http"][1]
            key.write_text("damaged")
            server.wait_for(
                f"TLS of HTTP: changed files are not used, those read before still are: '{key}' holds no private key",
                times=FRONT_ENDS,
            )
            assert "subject=CN = second" in s_client(server.http)
            assert kept.is_server_live()
            assert server.log.count("TLS handshake") == 0
        assert server.stop() == 0


def test_a_key_of_another_certificate_stops_the_start(echo_repository: Path, tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path, "server")
    _, key = make_certificate(tmp_path, "other")
    ports = ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    done = run_command(
        "serve", f"--model-repository={echo_repository}", *ports, *flags("http", (certificate, key))
    )
    assert done.returncode == 1
    assert f"the key '{key}' does not belong to the certificate '{certificate}'" in done.stderr


@pytest.mark.front_ends
def test_an_expired_certificate_is_warned_of_at_start(authority: Authority, echo_repository: Path) -> None:
    files = authority.issue("old", days=-1)
    with start_server(echo_repository, *flags("http", files), ready=False) as server:
        server.wait_for(f"the certificate '{files[0]}' expired at ")
        assert "certificate has expired" in curl(authority, f"https://{server.http}/v2").stderr
        server.wait_for(
            "failed: the client refuses it, perhaps for the server's certificate: certificate expired"
        )
