from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from halimede.cli.endpoints import endpoints
from halimede.cli.options import ServeOptions
from halimede.cli.services import services
from halimede.core.clock import VirtualClock
from halimede.core.errors import InvalidArgumentError
from halimede.engine.engine import Engine
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.settings import EngineSettings
from halimede.frontends.grpc.transport.limits import GrpcSettings
from halimede.frontends.log_settings import LogControl
from halimede.net.server import Endpoint, ListenError


def opened(**options: Any) -> dict[str, Endpoint]:
    clock = VirtualClock()
    engine = Engine(EngineSettings(()), clock, Mock(spec=Lifecycle, on_progress=[]))
    flags = ServeOptions(**options)
    served = services(flags, engine, LogControl(), None, [])
    return {endpoint.name: endpoint for endpoint in endpoints(flags, served, clock, None, [])}


def test_every_protocol_has_its_address() -> None:
    found = opened(http_address="::1", grpc_address="127.0.0.2", http_port=1, grpc_port=2, metrics_port=3)
    assert [(name, endpoint.address, endpoint.port) for name, endpoint in found.items()] == [
        ("GRPCInferenceService", "127.0.0.2", 2),
        ("HTTPService", "::1", 1),
        ("Metrics Service", "::1", 3),
    ]


def test_errors_call_every_protocol_as_tritonserver_does() -> None:
    found = opened(allow_sagemaker=True)
    assert [endpoint.service for endpoint in found.values()] == ["GRPC", "HTTP", "Sagemaker", "Metrics"]


def test_protocols_that_are_not_allowed_have_none() -> None:
    assert list(opened(allow_http=False, allow_metrics=False)) == ["GRPCInferenceService"]


def test_sagemaker_is_served_on_request() -> None:
    endpoint = opened(allow_http=False, allow_sagemaker=True, sagemaker_address="::1", sagemaker_port=9)[
        "Sagemaker HTTPService"
    ]
    assert (endpoint.address, endpoint.port, endpoint.flag) == ("::1", 9, "--sagemaker-port")


def test_a_wrong_inference_type_is_told_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGEMAKER_TRITON_INFERENCE_TYPE", "predict")
    with pytest.raises(InvalidArgumentError) as caught:
        opened(allow_sagemaker=True)
    assert caught.value.message == (
        "SAGEMAKER_TRITON_INFERENCE_TYPE is 'predict'; it must be one of infer, generate, generate_stream"
    )


def test_ports_are_shared_on_request() -> None:
    found = opened(reuse_http_port=True)
    assert found["HTTPService"].reuse_port
    assert not found["GRPCInferenceService"].reuse_port


def test_limits_of_grpc_connections_are_those_of_the_flags() -> None:
    endpoint = opened(grpc_keepalive_time=1, grpc_http2_max_ping_strikes=7, grpc_max_connection_age=9)[
        "GRPCInferenceService"
    ]
    settings = cast("Any", endpoint.factory).make.args[1]
    assert settings == GrpcSettings(keepalive_time_ms=1, max_ping_strikes=7, max_connection_age_ms=9)


def test_without_flags_connections_have_grpcs_own_limits() -> None:
    settings = cast("Any", opened()["GRPCInferenceService"].factory).make.args[1]
    assert settings == GrpcSettings()


@pytest.mark.parametrize("flag", ["http_restricted_api", "grpc_restricted_protocol"])
def test_a_restriction_of_another_form_is_refused(flag: str) -> None:
    with pytest.raises(InvalidArgumentError, match="option format is"):
        opened(**{flag: ("nonsense",)})


def test_certificates_are_read_at_start(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(ListenError, match="holds no certificate in PEM"):
        opened(grpc_use_ssl=True, grpc_server_cert=str(empty), grpc_server_key=str(empty))
