"""A serialized DALI pipeline, and what it says of its inputs and outputs; told without DALI."""

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from halimede.backends.dali.pipeline_pb2 import Operator, Pipeline
from halimede.core.datatypes import (
    BOOL,
    FP16,
    FP32,
    FP64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Datatype,
)
from halimede.core.errors import InvalidArgumentError, UnsupportedError

_DATATYPES = (UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, FP32, FP64, BOOL)
"""By their numbers in DALI (`nvidia.dali.types.DALIDataType`)."""

_EXTERNAL_SOURCE = b"ExternalSource"
_VIDEO = b"inputs__Video"
_NO_GPU = -99999
"""DALI's device number of a pipeline that uses no GPU (`nvidia.dali.types.CPU_ONLY_DEVICE_ID`)."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One input or output of a pipeline.

    Attributes:
        name: the operator's name.
        datatype: what an element is; None if the pipeline does not say.
        ndim: dimensions of a sample; None if the pipeline does not say.
    """

    name: str
    datatype: Datatype | None
    ndim: int | None


@dataclass(frozen=True, slots=True)
class Definition:
    """A serialized pipeline.

    Attributes:
        data: the pipeline, as `Pipeline.deserialize` takes it, placed on no GPU.
        max_batch_size: samples that a run takes, as the pipeline says; 0 if it does not.
        num_threads: its threads, likewise.
        inputs: its external sources.
        outputs: in the order in which the pipeline returns them.
        uses_gpu: some of it runs on a GPU, whichever that is.
    """

    data: bytes
    max_batch_size: int
    num_threads: int
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    uses_gpu: bool

    @classmethod
    def parse(cls, data: bytes) -> "Definition":
        """The pipeline that `Pipeline.serialize` gave as these bytes.

        Raises:
            InvalidArgumentError: they are no pipeline.
            UnsupportedError: it has an input of a kind that requests cannot feed.
        """
        pipeline = Pipeline()
        try:
            pipeline.ParseFromString(data)
        except DecodeError as error:
            raise InvalidArgumentError("it is no serialized DALI pipeline, or is cut short") from error
        if not pipeline.operator or not pipeline.output:
            raise InvalidArgumentError("it is no serialized DALI pipeline: it has no operators or no outputs")
        for operator in pipeline.operator:
            if operator.name.endswith(_VIDEO):
                msg = (
                    f"it has the input operator '{_text(operator.instance_name)}' (fn.experimental.inputs.video), "
                    f"which is not supported; feed frames or whole files through fn.external_source"
                )
                raise UnsupportedError(msg)
        uses_gpu = any(device != b"cpu" for device in _devices(pipeline))
        pipeline.device_id = _NO_GPU
        return cls(
            pipeline.SerializeToString(),
            max(0, pipeline.batch_size),
            max(0, pipeline.num_threads),
            tuple(_input(operator) for operator in pipeline.operator if operator.name == _EXTERNAL_SOURCE),
            tuple(
                Slot(_text(edge.name), _datatype(edge.datatype), _ndim(edge.ndim)) for edge in pipeline.output
            ),
            uses_gpu,
        )


def _devices(pipeline: Pipeline) -> Iterator[bytes]:
    for edge in pipeline.output:
        yield edge.device
    for operator in pipeline.operator:
        for edge in operator.output:
            yield edge.device
        for argument in operator.argument:
            if argument.name == b"device":
                yield from argument.strings


def _input(operator: Operator) -> Slot:
    """What an external source takes."""
    ints = {argument.name: argument.ints[0] for argument in operator.argument if argument.ints}
    layouts = [
        argument.strings[0]
        for argument in operator.argument
        if argument.name == b"layout" and argument.strings
    ]
    ndim = _ndim(ints.get(b"ndim", -1))
    if ndim is None and layouts:
        ndim = len(layouts[0])
    return Slot(_text(operator.instance_name), _datatype(ints.get(b"dtype", -1)), ndim)


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            "it is no serialized DALI pipeline: a name in it is not UTF-8 text"
        ) from error


def _datatype(number: int) -> Datatype | None:
    return _DATATYPES[number] if 0 <= number < len(_DATATYPES) else None


def _ndim(number: int) -> int | None:
    return number if number >= 0 else None
