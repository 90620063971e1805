"""The programs that the PyTorch backend runs, all called alike; and TorchScript, one of them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch

from halimede.backends.pytorch.ports import Place, Port, Side
from halimede.core.datatypes import BYTES, Datatype
from halimede.core.errors import InvalidArgumentError

Value: TypeAlias = torch.Tensor | list[str]


class Program(ABC):
    """A loaded program. Calls may overlap, from several threads.

    Attributes:
        inputs: what it takes.
        outputs: what it gives.
        writes: it may write to its inputs, or to state that its outputs may be views of.
        home: the device that it is on, where its inputs belong.
        may_block: it may wait for something other than the processor.
        least_rows: a batch must have that many rows.
    """

    inputs: Side
    outputs: Side
    writes: bool
    home: str = "cpu"
    may_block: bool = False
    least_rows: int = 0

    @property
    def batches(self) -> bool:
        """The first dimension of every input and output is free."""
        ports = [*self.inputs.ports, *self.outputs.ports]
        return all(port.shape is not None and port.shape[:1] == (-1,) for port in ports)

    @abstractmethod
    def call(self, values: Mapping[Place, Value]) -> Any:
        """What it gives, a sequence or, if `outputs.keyed`, a dictionary.

        Args:
            values: by place in `inputs`.
        """

    def close(self) -> None:
        """Give back the weights. No call comes after it."""


class TorchScript(Program):
    """A module that `torch.jit.save` has written.

    Args:
        path: the file.
        device: where its weights go; None leaves them where the file says.

    Raises:
        InvalidArgumentError: its `forward` takes or gives what requests cannot have.
        RuntimeError: PyTorch cannot load it.
    """

    def __init__(self, path: str, device: str | None) -> None:
        module = torch.jit.load(path, map_location=device)
        if hasattr(module, "training"):  # a frozen module is in evaluation mode for good
            module.eval()
        schema = module.forward.schema
        arguments = schema.arguments[1:]  # the first one is the module, whatever it is called
        text = "(" + ", ".join(f"{each.name}: {each.type.annotation_str}" for each in arguments) + ")"
        self.home = device or "cpu"
        self._module = module
        self._names = [argument.name for argument in arguments]
        if len(arguments) == 1 and _is_tensor_dictionary(arguments[0].type):
            self.inputs = Side("input", text, keyed=True)
        else:
            ports = [
                Port(each.name, _datatype(each), required=not each.has_default_value())
                for each in arguments
                if not each.has_default_value() or _is_value(each.type)
            ]
            self.inputs = Side("input", text, tuple(ports))
            self._names = [port.name for port in ports]
        self.outputs = _script_outputs(schema.returns[0].type)
        self.writes = _writes(module.inlined_graph)

    def call(self, values: Mapping[Place, Value]) -> Any:
        """What `forward` gives."""
        if self.inputs.keyed:
            result = self._module(dict(values))
        else:
            names = self._names
            result = self._module(
                **{names[place]: value for place, value in values.items() if isinstance(place, int)}
            )
        whole = self.outputs.keyed or self.outputs.counted or isinstance(result, tuple)
        return result if whole else (result,)


def _is_tensor_dictionary(kind: Any) -> bool:
    return bool(kind.kind() == "DictType" and kind.getValueType().kind() == "TensorType")


def _is_strings(kind: Any) -> bool:
    return bool(kind.kind() == "ListType" and kind.getElementType().kind() == "StringType")


def _is_value(kind: Any) -> bool:
    """Whether a request can give it: a tensor or a list of strings, or None in place of either."""
    if kind.kind() == "OptionalType":
        kind = kind.getElementType()
    return kind.kind() == "TensorType" or _is_strings(kind)


def _datatype(argument: Any) -> Datatype | None:
    kind = argument.type
    if not _is_value(kind):
        msg = (
            f"argument '{argument.name}' of the model's forward is a {kind.annotation_str}, which no request can "
            f"give; it must be a Tensor, a List[str], or have a default value. A Dict[str, Tensor] must be "
            f"the only argument"
        )
        raise InvalidArgumentError(msg)
    if kind.kind() == "OptionalType":
        kind = kind.getElementType()
    return BYTES if _is_strings(kind) else None


def _script_outputs(kind: Any) -> Side:
    text = kind.annotation_str
    if _is_tensor_dictionary(kind):
        return Side("output", text, keyed=True)
    if kind.kind() == "ListType" and kind.getElementType().kind() == "TensorType":
        return Side("output", text, counted=True)
    parts = kind.elements() if kind.kind() == "TupleType" else [kind]
    for part in parts:
        if not _is_value(part):
            msg = (
                f"the model's forward gives {text}; it must give a Tensor, a List[str], a tuple of these, "
                f"a List[Tensor] or a Dict[str, Tensor]"
            )
            raise InvalidArgumentError(msg)
    ports = tuple(
        Port(f"OUTPUT__{index}", BYTES if _is_strings(part) else None) for index, part in enumerate(parts)
    )
    return Side("output", text, ports)


_OPAQUE = {"prim::CallFunction", "prim::CallMethod", "prim::SetAttr", "prim::fork"}


def _writes(block: Any) -> bool:
    """Whether a node of the graph writes to memory that it did not make, as far as can be told."""
    return any(
        # an exclamation mark marks the arguments that an operator writes to
        node.kind() in _OPAQUE or "!" in node.schema() or any(_writes(inner) for inner in node.blocks())
        for node in block.nodes()
    )


def results_of(program: Program, result: Any) -> Mapping[Place, Any]:
    """What a call has given, by place."""
    results: Mapping[Place, Any] = result if program.outputs.keyed else dict(enumerate(result))
    return results
