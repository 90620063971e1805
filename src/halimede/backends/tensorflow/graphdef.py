"""Frozen graphs: one file with operators and weights, in which the configuration names inputs and outputs."""

from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from halimede.backends.file_looks import note
from halimede.backends.tensorflow.errors import plain_text
from halimede.backends.tensorflow.ports import GraphTensor, GraphTensors
from halimede.backends.tensorflow.runtime import tf, v1
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError, NotFoundError

_PLACEHOLDERS = ("Placeholder", "PlaceholderWithDefault", "PlaceholderV2")


class FrozenGraph:
    """A graph that its sessions share; they differ in threads only."""

    def __init__(self, name: str, path: Path) -> None:
        """Read the file.

        Raises:
            NotFoundError: there is none.
            InvalidArgumentError: it holds no graph that this TensorFlow reads.
        """
        if not path.is_file():
            msg = (
                f"unable to load model '{name}': there is no file {path}; expected a frozen graph there. The setting "
                f'default_model_filename names another; a directory needs platform: "tensorflow_savedmodel"'
            )
            raise NotFoundError(msg)
        definition = v1.GraphDef()
        self._graph = tf.Graph()
        try:
            definition.ParseFromString(path.read_bytes())
            with self._graph.as_default():
                v1.import_graph_def(definition, name="")
        except (DecodeError, ValueError, tf.errors.OpError) as error:
            reason = f"{plain_text(error)}{note(path)}"
            msg = f"unable to load model '{name}': {path} is no graph, or cut short: {reason}"
            raise InvalidArgumentError(msg) from error
        self._operations = {operation.name: operation for operation in self._graph.get_operations()}
        if not self._operations:
            raise InvalidArgumentError(f"unable to load model '{name}': the graph {path} is empty")

    def tensors(self, config: ModelConfig) -> GraphTensors:
        """The tensors that the configuration names, and the placeholders that its outputs need.

        Raises:
            InvalidArgumentError: it names none, or what is not in the graph.
        """
        if not config.output:
            msg = (
                f"unable to load model '{config.name}': a frozen graph does not say which of its tensors are outputs, "
                f"so config.pbtxt must list input and output; placeholders of the graph: {self._placeholders()}"
            )
            raise InvalidArgumentError(msg)
        outputs = {
            entry.name: _described(self._find(config, "output", entry.name), loose=True)
            for entry in config.output
        }
        names = [entry.name for entry in config.input]
        names += [target for each in config.batch_input for target in each.target_name]
        found = {name: self._find(config, "input", name) for name in names}
        inputs = {name: _described(tensor) for name, tensor in found.items()}
        fed = {tensor.op.name for tensor in found.values()}
        for operation in self._needed([each.key for each in outputs.values()], fed):
            inputs.setdefault(operation.name, _described(operation.outputs[0]))
        return GraphTensors(inputs, outputs)

    def graph(self) -> Any:
        """The graph, for a session."""
        return self._graph

    def load(self, session: Any) -> None:
        """Nothing: the weights are in the graph."""

    def _find(self, config: ModelConfig, side: str, name: str) -> Any:
        """The tensor ``x:0`` of that name; ``x`` is the same."""
        operation, _, index = name.partition(":")
        found = self._operations.get(operation)
        if found is None:
            known = f"; placeholders of the graph: {self._placeholders()}" if side == "input" else ""
            msg = (
                f"unable to load model '{config.name}', unexpected inference {side} '{name}': the graph has no "
                f"operator '{operation}'{known}"
            )
            raise InvalidArgumentError(msg)
        number = int(index or 0) if (index or "0").isdecimal() else -1
        if not 0 <= number < len(found.outputs):
            msg = (
                f"unable to load model '{config.name}', unexpected inference {side} '{name}': the operator "
                f"'{operation}' has {len(found.outputs)} outputs, from ':0'"
            )
            raise InvalidArgumentError(msg)
        return found.outputs[number]

    def _needed(self, keys: list[str], fed: set[str]) -> list[Any]:
        """Placeholders without a default that the tensors are computed from, past those that are fed."""
        pending = [self._operations[key.partition(":")[0]] for key in keys]
        seen: set[str] = set()
        needed: list[Any] = []
        while pending:
            operation = pending.pop()
            if operation.name in seen or operation.name in fed:
                continue
            seen.add(operation.name)
            if operation.type in _PLACEHOLDERS and not operation.inputs:
                needed.append(operation)
            pending += [tensor.op for tensor in operation.inputs]
            pending += operation.control_inputs
        return needed

    def _placeholders(self) -> str:
        names = sorted(each.name for each in self._operations.values() if each.type in _PLACEHOLDERS)
        return ", ".join(names) or "none"


def _described(tensor: Any, *, loose: bool = False) -> GraphTensor:
    shape = tensor.shape
    return GraphTensor(
        tensor.name,
        tensor.dtype.base_dtype.as_datatype_enum,
        None if shape.rank is None else tuple(-1 if dim is None else dim for dim in shape.as_list()),
        has_default=tensor.op.type == "PlaceholderWithDefault",
        loose=loose,
    )
