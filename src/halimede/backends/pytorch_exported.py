"""Programs that `torch.export.save` has written, which say the datatypes and shapes of all that they take and give."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.export.passes import move_to_device_pass
from torch.utils import _pytree as pytree

from halimede.backends.pytorch_ports import Place, Port, Side
from halimede.backends.pytorch_program import Program, Value
from halimede.backends.pytorch_tensors import DATATYPES
from halimede.core.errors import InvalidArgumentError


class Exported(Program):
    """A program that `torch.export` has traced.

    Args:
        path: the file, whose name may end with anything.
        device: where its weights go; None leaves them where the file says.

    Raises:
        InvalidArgumentError: it takes or gives what requests cannot have.
        Exception: PyTorch cannot load it; its errors have no common base.
    """

    def __init__(self, path: str, device: str | None) -> None:
        with open(path, "rb") as file:  # noqa: PTH123 - by path, PyTorch wants names that end with .pt2
            program = torch.export.load(file)
        if device is not None and device != "cpu":
            program = move_to_device_pass(program, device)
        in_spec, out_spec = program.call_spec.in_spec, program.call_spec.out_spec
        assert in_spec is not None
        assert out_spec is not None
        metas = {node.name: node.meta.get("val") for node in program.graph.nodes}
        signature = program.graph_signature
        taken = [each.arg for each in signature.input_specs if each.kind is InputKind.USER_INPUT]
        given = [each.arg for each in signature.output_specs if each.kind is OutputKind.USER_OUTPUT]
        call = program.module_call_graph[0].signature
        arguments = list(call.forward_arg_names or ()) if call is not None else []
        self.inputs = _side("input", _input_names(in_spec, arguments), taken, metas)
        self.outputs = _side("output", _output_names(out_spec), given, metas)
        self._in_spec = in_spec
        self._module = program.module()
        self.writes = bool(signature.buffers_to_mutate or signature.user_inputs_to_mutate) or any(
            _is_mutable(node.target)
            for module in program.graph_module.modules()
            if isinstance(module, torch.fx.GraphModule)
            for node in module.graph.nodes
        )

    def call(self, values: Mapping[Place, Value]) -> Sequence[Any]:
        """What the program gives, flat."""
        args, kwargs = pytree.tree_unflatten(
            [values[index] for index in range(len(self.inputs.ports))], self._in_spec
        )
        return pytree.tree_leaves(self._module(*args, **kwargs))

    def close(self) -> None:
        """Give back the weights now: the module is part of a cycle, which lives until the garbage is collected."""
        for tensor in (*self._module.parameters(), *self._module.buffers()):
            # what is a view of the old memory keeps that
            tensor.data = torch.empty(0, dtype=tensor.dtype)


def _is_mutable(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return bool(schema is not None and schema.is_mutable)


def _input_names(spec: pytree.TreeSpec, arguments: list[str]) -> list[tuple[str, str]]:
    """Name and alias of each leaf: the argument's name or the dictionary's key, and where it is in a call."""
    names: list[tuple[str, str]] = []
    for (side, *path), _ in _leaves(spec):
        first, *rest = path
        if side.idx == 0:
            place = f"ARGS[{first.idx}]"
            name = arguments[first.idx] if first.idx < len(arguments) else place
        else:
            place, name = f"KWARGS[{first.key}]", str(first.key)
        names.append(_named(name, place, rest))
    return _distinct(names)


def _output_names(spec: pytree.TreeSpec) -> list[tuple[str, str]]:
    """Name and alias of each leaf: the dictionary's key or ``OUTPUT__<index>``, and where it is in the result."""
    return _distinct(
        [_named(f"OUTPUT__{index}", "RESULT", path) for index, (path, _) in enumerate(_leaves(spec))]
    )


def _leaves(spec: pytree.TreeSpec) -> list[tuple[Any, Any]]:
    """Path of each leaf."""
    return pytree.tree_flatten_with_path(pytree.tree_unflatten(range(spec.num_leaves), spec))[0]


def _named(name: str, place: str, path: Sequence[Any]) -> tuple[str, str]:
    keys = [key.idx if isinstance(key, pytree.SequenceKey) else key.key for key in path]
    place += "".join(f"[{key}]" for key in keys)
    if keys and isinstance(path[-1], pytree.MappingKey):
        return str(keys[-1]), place
    # an element of a list within an argument has no name but its place
    return (place if keys and not place.startswith("RESULT") else name), place


def _distinct(names: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same, with the place for a name that is there twice."""
    every = [name for name, _ in names]
    return [(name if every.count(name) == 1 else place, place) for name, place in names]


def _side(word: str, names: list[tuple[str, str]], arguments: list[Any], metas: dict[str, Any]) -> Side:
    ports = []
    for (name, place), argument in zip(names, arguments, strict=True):
        meta = metas.get(argument.name) if isinstance(argument, TensorArgument) else None
        datatype = DATATYPES.get(meta.dtype) if isinstance(meta, torch.Tensor) else None
        if datatype is None:
            what = meta.dtype if isinstance(meta, torch.Tensor) else argument
            msg = (
                f"{word} '{name}' of the exported program is {what}, which no request can have; it must be a "
                f"tensor of a datatype that configurations have"
            )
            raise InvalidArgumentError(msg)
        assert meta is not None
        shape = tuple(dim if isinstance(dim, int) else -1 for dim in meta.shape)
        ports.append(Port(name, datatype, shape, aliases=(place,)))
    text = ", ".join(
        f"{port.name}: {port.datatype} {list(port.shape) if port.shape is not None else ''}" for port in ports
    )
    named = any(port.name != f"OUTPUT__{index}" for index, port in enumerate(ports))
    return Side(word, text, tuple(ports), strict=named)
