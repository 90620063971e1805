"""What would fix a contradiction between a model and the ragged inputs and batch inputs of its configuration."""

import re

from google.protobuf.text_format import MessageToString

from halimede.config.model_config_pb2 import TYPE_FP32, TYPE_INT32, BatchInput, ModelConfig
from halimede.config.validate import Problem

_COUNT = re.compile(r"configuration expects \d+ inputs, model provides \d+")


def ragged_fix(config: ModelConfig, listed: ModelConfig, model: ModelConfig, message: str) -> Problem | None:
    """The problem with its place in `listed` and its fix, which is made in `config`; None if it is of something else.

    Args:
        config: the configuration, with the fixes of earlier problems.
        listed: the configuration.
        model: the configuration as the model tells it, in which batch inputs are inputs; as good as empty if little.
        message: the contradiction.
    """
    for index, entry in enumerate(config.input):
        if f"input '{entry.name}' is flat in the model" in message:
            entry.allow_ragged_batch = True
            where = f"input[{index}].allow_ragged_batch"
            return Problem(config.name, where, message, "allow_ragged_batch: true")
    if "batch_input and" in message and "batch_output" in message:  # a backend that takes none of them
        fields = [field for field in ("batch_input", "batch_output") if getattr(listed, field)]
        config.ClearField("batch_input")
        config.ClearField("batch_output")
        return Problem(config.name, fields[0], message, f"remove {' and '.join(fields)}")
    told = {entry.name: entry for entry in model.input}
    names = {entry.name for entry in config.input}
    names.update(target for each in config.batch_input for target in each.target_name)
    for index, batch_input in enumerate(config.batch_input):
        where = _place(listed, batch_input)
        for number, target in enumerate(batch_input.target_name):
            if f"batch input '{target}' of kind" in message:
                return _of_kind(config, batch_input, where, message)
            if f"for input '{target}', model provides" in message and target in told:
                return _of_datatype(config, batch_input, where, message, told[target].data_type)
            unexpected = f"unexpected inference input '{target}'" in message or _COUNT.search(message)
            if not unexpected or not told or target in told:
                continue
            lacking = sorted(told.keys() - names)
            if lacking:
                batch_input.target_name[number] = lacking[0]
                fix = f'target_name: "{lacking[0]}"'
                return Problem(config.name, f"{where}.target_name[{number}]", message, fix)
            text = MessageToString(config.batch_input.pop(index), as_one_line=True)
            return Problem(config.name, where, message, f"remove batch_input {{ {text.strip()} }}")
    return None


def _place(listed: ModelConfig, batch_input: BatchInput) -> str:
    """Where the batch input is listed, which a fix may have changed since."""
    names = set(batch_input.target_name)
    places = [index for index, each in enumerate(listed.batch_input) if names & set(each.target_name)]
    return f"batch_input[{places[0]}]" if places else "batch_input"


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
