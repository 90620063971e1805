"""The files of the services as clients know them: our own descriptors, under the published names and packages."""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, NamedTuple

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from halimede.config import model_config_pb2
from halimede.frontends.grpc import health_pb2, kserve_pb2, reflection_pb2


class _Published(NamedTuple):
    """Under which file name and package a file of ours is published."""

    file: FileDescriptor
    name: str
    package: str


_FILES: Final = (
    _Published(model_config_pb2.DESCRIPTOR, "model_config.proto", "inference"),
    _Published(kserve_pb2.DESCRIPTOR, "grpc_service.proto", "inference"),
    _Published(health_pb2.DESCRIPTOR, "grpc/health/v1/health.proto", "grpc.health.v1"),
    _Published(reflection_pb2.DESCRIPTOR, "grpc/reflection/v1/reflection.proto", "grpc.reflection.v1"),
    _Published(
        reflection_pb2.DESCRIPTOR, "grpc/reflection/v1alpha/reflection.proto", "grpc.reflection.v1alpha"
    ),
)
"""Each after those that it imports."""


@cache
def published_files() -> DescriptorPool:
    """All of them, in a pool of their own, where they meet no client's."""
    pool = DescriptorPool()
    for each in _FILES:
        pool.AddSerializedFile(_renamed(each).SerializeToString())
    return pool


def services() -> list[str]:
    """The full names of all services, in order."""
    return sorted(f"{each.package}.{name}" for each in _FILES for name in each.file.services_by_name)


def _renamed(published: _Published) -> FileDescriptorProto:
    proto = FileDescriptorProto.FromString(published.file.serialized_pb)
    packages = {each.file.package: each.package for each in _FILES}
    packages[published.file.package] = published.package
    names = {each.file.name: each.name for each in _FILES}
    proto.name, proto.package = published.name, published.package
    proto.dependency[:] = [names[name] for name in proto.dependency]
    for message in _messages(proto.message_type):
        for field in message.field:
            if field.type_name:  # it is a message or an enum
                field.type_name = _moved(field.type_name, packages)
    for service in proto.service:
        for method in service.method:
            method.input_type = _moved(method.input_type, packages)
            method.output_type = _moved(method.output_type, packages)
    return proto


def _moved(name: str, packages: dict[str, str]) -> str:
    """The full name of a type, which begins with a dot, in the package in which it is published."""
    for ours, theirs in packages.items():
        if name.startswith(f".{ours}."):
            return f".{theirs}.{name.removeprefix(f'.{ours}.')}"
    return name


def _messages(declared: Iterable[DescriptorProto]) -> Iterator[DescriptorProto]:
    """Messages, and those within them."""
    for message in declared:
        yield message
        yield from _messages(message.nested_type)
