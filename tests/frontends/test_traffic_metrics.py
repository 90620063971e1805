import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from halimede.frontends import traffic_metrics
from halimede.frontends.traffic import LocalTraffic, new_counts
from halimede.net.peers import client_text


def traffic(protocol: str, *in_flight: int) -> LocalTraffic:
    connections: Any = [SimpleNamespace(in_flight=each) for each in in_flight]
    return LocalTraffic(protocol, connections, new_counts())


def test_requests_are_told_by_protocol_route_and_status() -> None:
    http, sagemaker, grpc = traffic("http"), traffic("sagemaker"), traffic("grpc")
    http.counts["infer", 200] += 2
    http.counts["", 404] += 1
    sagemaker.counts["ping", 200] += 3
    grpc.counts["/inference.GRPCInferenceService/ModelInfer", 5] += 4
    grpc.counts["", 12] += 1
    assert list(traffic_metrics.http_requests([grpc, http, sagemaker])) == [
        ('protocol="http",route="other",status="404"', 1),
        ('protocol="http",route="infer",status="200"', 2),
        ('protocol="sagemaker",route="ping",status="200"', 3),
    ]
    assert list(traffic_metrics.grpc_requests([grpc, http, sagemaker])) == [
        ('method="other",status="UNIMPLEMENTED"', 1),
        ('method="ModelInfer",status="NOT_FOUND"', 4),
    ]


def test_requests_in_flight_are_those_of_all_connections() -> None:
    both = [traffic("http", 2, 0, 1), traffic("grpc")]
    assert list(traffic_metrics.in_flight(both)) == [('protocol="http"', 3), ('protocol="grpc"', 0)]
    assert list(traffic_metrics.open_connections(both)) == [('protocol="http"', 3), ('protocol="grpc"', 0)]


def test_memory_is_that_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "statm").write_text("90000 1234 500 1 0 80000 0\n")
    assert list(traffic_metrics.resident_memory(tmp_path)) == [("", 1234 * os.sysconf("SC_PAGE_SIZE"))]


def test_an_open_file_is_counted(tmp_path: Path) -> None:
    ((_, before),) = traffic_metrics.open_files()
    with (tmp_path / "file").open("w"):
        assert list(traffic_metrics.open_files()) == [("", before + 1)]


def test_what_the_system_does_not_tell_is_left_out(tmp_path: Path) -> None:
    assert list(traffic_metrics.resident_memory(tmp_path)) == []
    assert list(traffic_metrics.open_files(tmp_path)) == []


@pytest.mark.parametrize(
    ("peer", "text"),
    [(("127.0.0.1", 80), "127.0.0.1:80"), (("::1", 80, 0, 0), "[::1]:80"), ("", "unix"), (None, "unix")],
)
def test_the_address_of_a_client(peer: object, text: str) -> None:
    transport: Any = SimpleNamespace(get_extra_info=lambda name: peer)
    assert client_text(transport) == text
