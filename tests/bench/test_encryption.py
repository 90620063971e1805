from pathlib import Path

import pytest

from halimede.bench.address import Address, parse
from halimede.bench.control import request
from halimede.bench.errors import BenchError
from halimede.bench.measure import Measuring, measure
from halimede.bench.plan import Level
from halimede.bench.workload import Workload, prepare
from tests.bench.conftest import MODELS
from tests.support.certificates import make_certificate
from tests.support.server import start_server


def test_http_and_grpc_over_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "server")
    (tmp_path / "models" / "numbers" / "1").mkdir(parents=True)
    (tmp_path / "models" / "numbers" / "config.pbtxt").write_text(MODELS["numbers"])
    flags = [f"--{protocol}-{flag}" for protocol in ("http", "grpc") for flag in
             ("use-ssl=true", f"server-cert={certificate}", f"server-key={key}")]  # fmt: skip
    with start_server(tmp_path / "models", *flags, ready=False) as server:
        address = parse(f"https://{server.http}", 8000, certificate)
        ready = lambda: request(address, "GET", "/v2/health/ready")[0] == 200  # noqa: E731
        server.wait_until(ready, "readiness")
        for grpc, place in ((False, server.http), (True, server.grpc)):
            trusting = Workload(url=f"https://{place}", grpc=grpc, model="numbers", authorities=certificate)
            prepared = prepare(trusting)
            [result] = measure(
                prepared.plan, [Level(2, requests=10)], Measuring(), prepared.ask, lambda _: None
            )
            assert (result.requests, result.errors) == (10, {})
            with pytest.raises(BenchError, match="certificate verify failed"):
                prepare(Workload(url=f"https://{place}", grpc=grpc, model="numbers"))


def test_addresses_as_people_write_them() -> None:
    assert parse("models:9000", 8000) == Address("models", 9000)
    assert parse("models", 8001) == Address("models", 8001)
    assert parse("https://models/base/", 8000) == Address("models", 443, tls=True, path="/base")
    assert parse("http://[::1]:80", 8000).authority == "[::1]:80"
    for text in ("models:port", "ftp://models", "http://", "models:99999"):
        with pytest.raises(BenchError, match="no address"):
            parse(text, 8000)


def test_certificates_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="cannot be read"):
        parse("https://models", 8000, tmp_path / "none").context()
