"""What would fix a contradiction between a model and the ragged inputs and batch inputs of its configuration."""

import re

from google.protobuf.text_format import MessageToString

from halimede.config.model_config_pb2 import TYPE_FP32, TYPE_INT32, BatchInput, ModelConfig
from halimede.config.validate import Problem

_COUNT = re.compile(r"configuration expects \d+ inputs, model provides \d+")


def ragged_fix(config: ModelConfig, model: ModelConfig, message: str) -> Problem | None:
    """The problem with its place and its fix, which is made in `config`; None if it is of something else.

    Args:
        config: the configuration.
        model: the configuration as the model tells it, in which batch inputs are inputs; as good as empty if little.
        message: the contradiction.
    """
    for index, entry in enumerate(config.input):
        if f"input '{entry.name}' is flat in the model" in message:
            entry.allow_ragged_batch = True
            where = f"input[{index}].allow_ragged_batch"
            return Problem(config.name, where, message, "allow_ragged_batch: true")
    told = {entry.name: entry for entry in model.input}
    listed = {entry.name for entry in config.input}
    listed.update(target for each in config.batch_input for target in each.target_name)
    for index, batch_input in enumerate(config.batch_input):
        where = f"batch_input[{index}]"
        for number, target in enumerate(batch_input.target_name):
            if f"batch input '{target}' of kind" in message:
                return _of_kind(config, batch_input, where, message)
            if f"for input '{target}', model provides" in message and target in told:
                return _of_datatype(config, batch_input, where, message, told[target].data_type)
            unexpected = f"unexpected inference input '{target}'" in message or _COUNT.search(message)
            if not unexpected or not told or target in told:
                continue
            lacking = sorted(told.keys() - listed)
            if lacking:
                batch_input.target_name[number] = lacking[0]
                fix = f'target_name: "{lacking[0]}"'
                return Problem(config.name, f"{where}.target_name[{number}]", message, fix)
            text = MessageToString(config.batch_input.pop(index), as_one_line=True)
            return Problem(config.name, where, message, f"remove batch_input {{ {text.strip()} }}")
    return None


def _of_kind(config: ModelConfig, batch_input: BatchInput, where: str, message: str) -> Problem:
    """A tensor of another rank than the model's input."""
    rank = message.rpartition("provides ")[2].count(",") + 1
    kind = {1: BatchInput.BATCH_ITEM_SHAPE_FLATTEN, 2: BatchInput.BATCH_ITEM_SHAPE}.get(rank)
    if kind is None or kind == batch_input.kind:
        return Problem(config.name, "", message)
    batch_input.kind = kind
    return Problem(config.name, f"{where}.kind", message, f"kind: {BatchInput.Kind.Name(kind)}")


def _of_datatype(
    config: ModelConfig, batch_input: BatchInput, where: str, message: str, datatype: int
) -> Problem:
    """A tensor of another datatype than the model's input."""
    if datatype not in (TYPE_INT32, TYPE_FP32):
        fix = "have the model take TYPE_INT32 or TYPE_FP32 there, as batch inputs have no other datatypes"
        return Problem(config.name, "", message, fix)
    batch_input.data_type = TYPE_INT32 if datatype == TYPE_INT32 else TYPE_FP32
    name = "TYPE_INT32" if datatype == TYPE_INT32 else "TYPE_FP32"
    return Problem(config.name, f"{where}.data_type", message, f"data_type: {name}")
