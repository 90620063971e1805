"""A `config.pbtxt` that explains itself: what a model is, and what may be set for it."""

from collections.abc import Iterable, Iterator

from halimede.backends.registry import backend_name
from halimede.cli.check.findings import Examination
from halimede.config.model_config_pb2 import DataType, ModelConfig, ModelInput, ModelOutput

_BATCHES = """
# The rows of different requests that may run as one batch: the first size of each tensor, which `dims` leave out.
# 0 if the model takes no batches. Larger batches cost latency and gain throughput.
max_batch_size: {size}
"""
_NO_BATCHES = """
# The model takes no batches: `dims` are whole shapes. If the first size of each tensor is that of a batch, say how
# many rows may share one, and leave that size out of `dims`.
max_batch_size: 0
"""
_DECOUPLED = """
# A request may have any number of responses.
model_transaction_policy { decoupled: true }
"""
_DYNAMIC = """
# Requests that come at the same time share a batch. The delay is how long one waits for others, in microseconds.
{comment}dynamic_batching {{
{comment}  max_queue_delay_microseconds: 100
{comment}}}
"""
_REST = """
# Two copies of the model work side by side. KIND_GPU puts them on GPUs.
# instance_group [ { count: 2 kind: KIND_CPU } ]

# Equal requests are computed once; the server needs --cache-config=local,size=104857600 too.
# response_cache { enable: true }

# Each instance runs in a process of its own, so that a crash stays there.
# parameters { key: "isolation" value { string_value: "process" } }

# A request is run when the model loads, so that the first client does not wait. One entry for each input.
# model_warmup [ {
#   name: "zeros"
#   batch_size: 1
#   inputs { key: "%(input)s" value { data_type: %(datatype)s dims: %(dims)s zero_data: true } }
# } ]
"""


def commented_config(examination: Examination, source: str) -> str:
    """The text of a `config.pbtxt` for a model that was looked at.

    Args:
        examination: what was found about it.
        source: what it was made of.
    """
    config = examination.config
    lines = [
        f"# Written by `halimede init {source}`. docs/model-repository.md explains all settings.",
        "",
        "# What runs the model.",
        f'backend: "{backend_name(config)}"',
    ]
    if config.platform:
        lines.append(f'platform: "{config.platform}"')
    if config.default_model_filename:
        lines += [
            "",
            "# Its file, in the directory of each version.",
            f'default_model_filename: "{config.default_model_filename}"',
        ]
    batches = config.max_batch_size > 0
    text = "\n".join(lines) + "\n"
    text += _BATCHES.format(size=config.max_batch_size) if batches else _NO_BATCHES
    if config.model_transaction_policy.decoupled:
        text += _DECOUPLED
    text += "".join(_tensors("input", "What requests bring", config.input, config))
    text += "".join(_tensors("output", "What the model gives", config.output, config))
    text += _DYNAMIC.format(comment="" if batches else "# ")
    first = config.input[0] if config.input else None
    return text + _REST % {
        "input": first.name if first is not None else "x",
        "datatype": DataType.Name(first.data_type) if first is not None else "TYPE_FP32",
        "dims": f"[ {', '.join(str(max(size, 1)) for size in first.dims)} ]"
        if first is not None
        else "[ 1 ]",
    }


def _tensors(
    field: str, meaning: str, tensors: Iterable[ModelInput | ModelOutput], config: ModelConfig
) -> Iterator[str]:
    yield f"\n# {meaning}. -1 is a size that may vary.\n"
    found = False
    for each in tensors:
        found = True
        dims = ", ".join(map(str, each.dims))
        datatype = DataType.Name(each.data_type)
        yield f'{field} {{ name: "{each.name}" data_type: {datatype} dims: [ {dims} ]{_more(each)} }}\n'
    if not found:
        yield "# The model's file does not tell: name, datatype and shape have to be filled in.\n"
        yield f'# {field} {{ name: "{field.upper()}__0" data_type: TYPE_FP32 dims: [ 4 ] }}\n'


def _more(tensor: ModelInput | ModelOutput) -> str:
    """Settings of a tensor beside name, datatype and shape."""
    more = ""
    if tensor.HasField("reshape"):
        more = f" reshape {{ shape: [ {', '.join(map(str, tensor.reshape.shape))} ] }}"
    return f"{more} optional: true" if isinstance(tensor, ModelInput) and tensor.optional else more
