"""A trace as objects of Triton's trace file."""

import json
from functools import lru_cache
from typing import Any

import numpy as np

from halimede.core.datatypes import BF16, BY_NAME, BYTES
from halimede.core.tensors import decode_bytes
from halimede.core.traces import TracedTensor


def trace_objects(values: tuple[Any, ...]) -> str:
    """The JSON objects of the trace with these `values_of`, with commas between them; "" for none."""
    number, parent, model_name, model_version, request_id, events, tensors = values
    begin = f'{{"id":{number},'
    objects = []
    if events is not None:
        request = f',"request_id":{_quoted(request_id)}' if request_id else ""
        cause = f',"parent_id":{parent}' if parent else ""
        model = f'"model_name":{_repeated(model_name)},"model_version":{model_version}'
        objects.append(f"{begin}{model}{request}{cause}}}")
        objects += [f'{begin}"timestamps":[{{"name":"{name}","ns":{ns}}}]}}' for name, ns in events]
    objects += [begin + _tensor_members(tensor) for tensor in tensors]
    return ",".join(objects)


def _tensor_members(tensor: TracedTensor) -> str:
    shape = ",".join(map(str, tensor.shape))
    return (
        f'"activity":"{tensor.activity}","tensor":{{"name":{_repeated(tensor.name)},"data":{_quoted(_data(tensor))},'
        f'"shape":"{shape}","dtype":"{tensor.datatype}"}}}}'
    )


def _data(tensor: TracedTensor) -> str:
    """The elements with commas between them, floating-point numbers with six digits; strings are quoted as in JSON."""
    datatype = BY_NAME[tensor.datatype]
    if datatype is BYTES:
        return ",".join([_quoted(each.decode(errors="replace")) for each in decode_bytes(tensor.content)])
    if datatype is BF16:
        array = (np.frombuffer(tensor.content, "<u2").astype("<u4") << 16).view("<f4")
    else:
        array = np.frombuffer(tensor.content, datatype.numpy)
    form = "%g" if array.dtype.kind == "f" else "%d"
    return ",".join([form % value for value in array.tolist()])


def _quoted(text: str) -> str:
    return json.dumps(text)


@lru_cache(1024)
def _repeated(text: str) -> str:
    """`_quoted` of what requests repeat."""
    return _quoted(text)
