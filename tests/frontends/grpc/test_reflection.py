"""Server reflection, asked by gRPC's own client of it and in the messages' own terms."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from halimede.frontends.grpc.reflection import PATHS
from halimede.frontends.grpc.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse
from tests.frontends.http.models import write_repository
from tests.support.server import ServerProcess, start_server

SERVICES = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("repository")
    write_repository(directory)
    with start_server(directory, "--model-control-mode=explicit") as running:
        yield running


@pytest.fixture
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.grpc) as opened:
        yield opened


def ask(
    channel: grpc.Channel, *requests: ServerReflectionRequest, path: str = PATHS[0]
) -> list[ServerReflectionResponse]:
    method = channel.stream_stream(
        path,
        ServerReflectionRequest.SerializeToString,
        ServerReflectionResponse.FromString,
    )
    return list(method(iter(requests), timeout=10))


@pytest.mark.parametrize("path", PATHS)
def test_both_versions_list_the_services(channel: grpc.Channel, path: str) -> None:
    (answer,) = ask(channel, ServerReflectionRequest(host="h", list_services="*"), path=path)
    assert [each.name for each in answer.list_services_response.service] == SERVICES
    assert answer.valid_host == "h"
    assert answer.original_request.list_services == "*"


def test_a_client_that_knows_nothing_calls_a_method_by_reflection(channel: grpc.Channel) -> None:
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    service = pool.FindServiceByName("inference.GRPCInferenceService")
    method = service.FindMethodByName("ServerMetadata")
    call = channel.unary_unary(
        f"/{service.full_name}/{method.name}",
        lambda message: message.SerializeToString(),
        GetMessageClass(method.output_type).FromString,
    )
    answer = call(GetMessageClass(method.input_type)(), timeout=10)
    assert answer.name == "triton"
    config = pool.FindMessageTypeByName("inference.ModelConfig")
    assert config.file.name == "model_config.proto"


@pytest.mark.parametrize("service", SERVICES)
def test_each_service_is_found_by_its_methods(channel: grpc.Channel, service: str) -> None:
    database = ProtoReflectionDescriptorDatabase(channel)
    file = database.FindFileContainingSymbol(service)
    assert file.package == service.rpartition(".")[0]
    assert database.FindFileByName(file.name) == file
    assert database.get_services() == SERVICES


def test_what_there_is_not_is_an_error_and_the_stream_goes_on(channel: grpc.Channel) -> None:
    answers = ask(
        channel,
        ServerReflectionRequest(file_containing_symbol="inference.Nothing"),
        ServerReflectionRequest(file_by_filename="nothing.proto"),
        ServerReflectionRequest(),
        ServerReflectionRequest(all_extension_numbers_of_type="inference.ModelConfig"),
        ServerReflectionRequest(
            file_containing_extension={"containing_type": "inference.ModelConfig", "extension_number": 9}
        ),
    )
    codes = [answer.error_response.error_code for answer in answers]
    assert codes == [
        grpc.StatusCode.NOT_FOUND.value[0],
        grpc.StatusCode.NOT_FOUND.value[0],
        grpc.StatusCode.INVALID_ARGUMENT.value[0],
        0,
        grpc.StatusCode.NOT_FOUND.value[0],
    ]
    assert answers[3].all_extension_numbers_response.base_type_name == "inference.ModelConfig"


def test_bytes_that_are_no_message_end_the_call(channel: grpc.Channel) -> None:
    method = channel.stream_stream(PATHS[0], None, None)
    with pytest.raises(grpc.RpcError) as failed:
        list(method(iter([b"\xff"]), timeout=10))
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_reflection_is_restricted_with_metadata(tmp_path: Path) -> None:
    with (
        start_server(
            tmp_path, "--grpc-restricted-protocol=metadata:key=secret", "--allow-http=true"
        ) as server,
        grpc.insecure_channel(server.grpc) as opened,
        pytest.raises(grpc.RpcError) as failed,
    ):
        ask(opened, ServerReflectionRequest(list_services="*"))
    assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
