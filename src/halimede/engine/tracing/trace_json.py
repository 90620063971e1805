"""A trace as objects of Triton's trace file."""

import json
from functools import lru_cache

import numpy as np

from halimede.core.datatypes import BF16, BY_NAME, BYTES
from halimede.core.errors import HalimedeError
from halimede.core.tensors import decode_bytes
from halimede.core.traces import TracedTensor
from halimede.engine.tracing.sent_traces import SentTrace


def trace_objects(trace: SentTrace) -> str:
    """The JSON objects of a trace, with commas between them; "" for none."""
    number, parent, model_name, model_version, request_id, events, tensors, _ = trace
    objects = [f'{{"id":{number},' + _tensor_members(tensor) for tensor in tensors]
    if events is not None:
        names, times = events[::2], events[1::2]
        in_order = sorted(times)
        if times != in_order:
            order = sorted(range(len(times)), key=times.__getitem__)
            names, times = [names[place] for place in order], in_order
        rest = ""
        if request_id:
            rest = f',"request_id":{_quoted(request_id)}'
        if parent:
            rest += f',"parent_id":{parent}'
        values = [str(number)] * (2 * len(times) + 2)
        values[1] = rest
        values[3::2] = times
        objects.insert(0, _template(model_name, model_version, tuple(names)) % tuple(values))
    return ",".join(objects)


@lru_cache(1024)
def _template(model_name: str, model_version: int, names: tuple[str, ...]) -> str:
    """The objects of a trace in which this happened.

    There are places for its number and for more members of the first object, then for the number and a time in turn.
    """
    model = _quoted(model_name).replace("%", "%%")
    quoted = [_quoted(name).replace("%", "%%") for name in names]
    return ",".join(
        [
            f'{{"id":%s,"model_name":{model},"model_version":{model_version}%s}}',
            *(f'{{"id":%s,"timestamps":[{{"name":{name},"ns":%d}}]}}' for name in quoted),
        ]
    )


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
