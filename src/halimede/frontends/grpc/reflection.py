"""gRPC's server reflection: clients such as grpcurl ask for the services and their messages, and need no files."""

from typing import Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import DecodeError

from halimede.core.errors import Code
from halimede.frontends.grpc.published import published_files, services
from halimede.frontends.grpc.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse
from halimede.frontends.grpc.transport.call import Call

PATHS: Final = (
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
)
"""The method in both versions, which differ in nothing but their names."""

_INVALID: Final = Code.INVALID_ARG.grpc_status


def reflect(call: Call) -> None:
    """Answer each request of the call's stream, in order."""

    def answer(message: memoryview) -> None:
        try:
            request = ServerReflectionRequest.FromString(bytes(message))
        except DecodeError:
            call.finish(
                _INVALID, "Unable to parse request: it is not a valid ServerReflectionRequest message"
            )
            return
        call.send([respond(request).SerializeToString()])

    call.on_message = answer
    call.on_half_close = call.finish


def respond(request: ServerReflectionRequest) -> ServerReflectionResponse:
    """The answer to one request; an error in it if there is no such file, symbol or extension."""
    response = ServerReflectionResponse(valid_host=request.host, original_request=request)
    pool = published_files()
    kind = request.WhichOneof("message_request")
    try:
        if kind == "list_services":
            for name in services():
                response.list_services_response.service.add(name=name)
        elif kind == "file_by_filename":
            _add(response, pool.FindFileByName(request.file_by_filename))
        elif kind == "file_containing_symbol":
            _add(response, pool.FindFileContainingSymbol(request.file_containing_symbol))
        elif kind == "file_containing_extension":
            _fail(response, Code.NOT_FOUND.grpc_status, "no message has extensions")
        elif kind == "all_extension_numbers_of_type":
            message = pool.FindMessageTypeByName(request.all_extension_numbers_of_type)
            response.all_extension_numbers_response.base_type_name = message.full_name  # it has none
        else:
            _fail(response, _INVALID, "the request asks for nothing")
    except KeyError as error:
        _fail(response, Code.NOT_FOUND.grpc_status, str(error.args[0]))
    return response


def _add(response: ServerReflectionResponse, file: FileDescriptor) -> None:
    """A file, and all that it imports."""
    files = {file.name: file}
    waiting = [file]
    while waiting:
        for imported in waiting.pop().dependencies:
            if imported.name not in files:
                files[imported.name] = imported
                waiting.append(imported)
    response.file_descriptor_response.file_descriptor_proto.extend(
        each.serialized_pb for each in files.values()
    )


def _fail(response: ServerReflectionResponse, code: int, message: str) -> None:
    response.error_response.error_code = code
    response.error_response.error_message = message
