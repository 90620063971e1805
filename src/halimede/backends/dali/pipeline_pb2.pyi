from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Edge(_message.Message):
    __slots__ = ("name", "device", "datatype", "ndim")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DATATYPE_FIELD_NUMBER: _ClassVar[int]
    NDIM_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    device: bytes
    datatype: int
    ndim: int
    def __init__(self, name: _Optional[bytes] = ..., device: _Optional[bytes] = ..., datatype: _Optional[int] = ..., ndim: _Optional[int] = ...) -> None: ...

class Argument(_message.Message):
    __slots__ = ("name", "ints", "strings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INTS_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    ints: _containers.RepeatedScalarFieldContainer[int]
    strings: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, name: _Optional[bytes] = ..., ints: _Optional[_Iterable[int]] = ..., strings: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Operator(_message.Message):
    __slots__ = ("name", "input", "output", "argument", "instance_name")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ARGUMENT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_NAME_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    input: _containers.RepeatedCompositeFieldContainer[Edge]
    output: _containers.RepeatedCompositeFieldContainer[Edge]
    argument: _containers.RepeatedCompositeFieldContainer[Argument]
    instance_name: bytes
    def __init__(self, name: _Optional[bytes] = ..., input: _Optional[_Iterable[_Union[Edge, _Mapping]]] = ..., output: _Optional[_Iterable[_Union[Edge, _Mapping]]] = ..., argument: _Optional[_Iterable[_Union[Argument, _Mapping]]] = ..., instance_name: _Optional[bytes] = ...) -> None: ...

class Pipeline(_message.Message):
    __slots__ = ("num_threads", "batch_size", "operator", "output", "device_id")
    NUM_THREADS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    num_threads: int
    batch_size: int
    operator: _containers.RepeatedCompositeFieldContainer[Operator]
    output: _containers.RepeatedCompositeFieldContainer[Edge]
    device_id: int
    def __init__(self, num_threads: _Optional[int] = ..., batch_size: _Optional[int] = ..., operator: _Optional[_Iterable[_Union[Operator, _Mapping]]] = ..., output: _Optional[_Iterable[_Union[Edge, _Mapping]]] = ..., device_id: _Optional[int] = ...) -> None: ...
