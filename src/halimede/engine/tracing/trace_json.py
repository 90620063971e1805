"""A trace as objects of Triton's trace file."""

import json
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

import numpy as np

from halimede.core.datatypes import BF16, BY_NAME, BYTES
from halimede.core.errors import HalimedeError
from halimede.core.tensors import decode_bytes
from halimede.core.traces import TracedTensor

_TIME: Final = itemgetter(1)


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
        if events:
            events.sort(key=_TIME)
            names, times = zip(*events, strict=True)
            ids_and_times = [number] * (2 * len(times))
            ids_and_times[1::2] = times
            objects.append(_timestamps(names) % tuple(ids_and_times))
    objects += [begin + _tensor_members(tensor) for tensor in tensors]
    return ",".join(objects)


@lru_cache(1024)
def _timestamps(names: tuple[str, ...]) -> str:
    """The objects of these events, with places for the trace's number and the time of each in turn."""
    quoted = [_quoted(name).replace("%", "%%") for name in names]
    return ",".join([f'{{"id":%d,"timestamps":[{{"name":{name},"ns":%d}}]}}' for name in quoted])


def _tensor_members(tensor: TracedTensor) -> str:
    shape = ",".join(map(str, tensor.shape))
    return (
        f'"activity":"{tensor.activity}","tensor":{{"name":{_repeated(tensor.name)},"data":{_quoted(_readable(tensor))},'
        f'"shape":"{shape}","dtype":"{tensor.datatype}"}}}}'
    )


def _readable(tensor: TracedTensor) -> str:
    """As `_data`; "" for contents that are not what the datatype says."""
    try:
        return _data(tensor)
    except (HalimedeError, ValueError):
        return ""


def _data(tensor: TracedTensor) -> str:
    """The elements with commas between them; numbers have six significant digits, and strings are quoted as in JSON."""
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
