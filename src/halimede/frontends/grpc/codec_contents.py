"""Tensors that come as typed numbers in a message (`InferTensorContents`) rather than as raw bytes."""

from typing import Final

import numpy as np

from halimede.codec.value_ranges import out_of_range
from halimede.core import datatypes
from halimede.core.datatypes import Datatype
from halimede.core.errors import InvalidArgumentError
from halimede.core.tensors import Buffer, encode_bytes
from halimede.frontends.grpc.kserve_pb2 import InferTensorContents

# Each field: the type of its elements, and the datatypes that are sent in it. FP16 and BF16 come only as raw bytes.
_FIELDS: Final = {
    "bool_contents": (datatypes.BOOL, {datatypes.BOOL}),
    "int_contents": (datatypes.INT32, {datatypes.INT8, datatypes.INT16, datatypes.INT32}),
    "int64_contents": (datatypes.INT64, {datatypes.INT64}),
    "uint_contents": (datatypes.UINT32, {datatypes.UINT8, datatypes.UINT16, datatypes.UINT32}),
    "uint64_contents": (datatypes.UINT64, {datatypes.UINT64}),
    "fp32_contents": (datatypes.FP32, {datatypes.FP32}),
    "fp64_contents": (datatypes.FP64, {datatypes.FP64}),
    "bytes_contents": (datatypes.BYTES, {datatypes.BYTES}),
}


def contents_data(contents: InferTensorContents, datatype: Datatype, name: str, model: str) -> Buffer:
    """The elements of input `name` as the bytes of `datatype`.

    Raises:
        InvalidArgumentError: they are in a field for another datatype, or in more than one, or `datatype` cannot hold
            one of them.
    """
    data: Buffer = b""
    for index, (descriptor, values) in enumerate(contents.ListFields()):
        if index:
            msg = (
                f"unexpected explicit tensor data for input tensor '{name}' for model '{model}', "
                "binary data was already supplied."
            )
            raise InvalidArgumentError(msg)
        element, carried = _FIELDS[descriptor.name]
        if datatype not in carried:
            msg = (
                f"unexpected explicit tensor data for input tensor '{name}' for model '{model}' "
                f"of type '{element}', expected datatype '{datatype}'"
            )
            raise InvalidArgumentError(msg)
        if datatype is datatypes.BYTES:
            data = encode_bytes(values)
        else:
            array = np.fromiter(values, element.numpy, len(values))
            narrow = array.astype(datatype.numpy, copy=False)
            if narrow is not array and (narrow != array).any():
                index = int(np.argmax(narrow != array))
                raise out_of_range(name, datatype, values[index], [index])
            data = narrow.view(np.uint8).data
    return data
