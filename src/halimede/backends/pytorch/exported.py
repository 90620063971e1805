"""Programs that `torch.export.save` has written, which say the datatypes and shapes of all that they take and give."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._export.utils import _check_input_constraints_for_graph
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.export.passes import move_to_device_pass

from halimede.backends.pytorch.compile import Compiling
from halimede.backends.pytorch.names import input_names, leaves, output_names
from halimede.backends.pytorch.ports import Place, Port, Side
from halimede.backends.pytorch.program import Program, Value
from halimede.backends.pytorch.tensors import DATATYPES
from halimede.core.errors import InvalidArgumentError

_MAX_PASSED = 1024
"""Combinations of shapes that a program remembers to have checked."""


class Exported(Program):
    """A program that `torch.export` has traced.

    Args:
        path: the file, whose name may end with anything.
        device: where its weights go; None leaves them where the file says.
        compiling: how to compile it, None for not at all.

    Raises:
        InvalidArgumentError: it takes or gives what requests cannot have.
        Exception: PyTorch cannot load it; its errors have no common base.
    """

    def __init__(self, path: str, device: str | None, compiling: Compiling | None = None) -> None:
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
        self.inputs = _side("input", input_names(in_spec, arguments), taken, metas)
        self.outputs = _side("output", output_names(out_spec), given, metas)
        self.home = device or "cpu"
        self._order = range(len(self.inputs.ports))
        self._module, self._guards = _flattened(program)
        self._passed: set[tuple[torch.Size, ...]] = set()
        self._run: Callable[..., Any] = self._module.forward
        if compiling is not None:
            self._run = torch.compile(self._module, **compiling)
        self.writes = bool(signature.buffers_to_mutate or signature.user_inputs_to_mutate) or any(
            _is_mutable(node.target)
            for module in program.graph_module.modules()
            if isinstance(module, torch.fx.GraphModule)
            for node in module.graph.nodes
        )

    def call(self, values: Mapping[Place, Value]) -> Sequence[Any]:
        """What the program gives, flat."""
        flat: list[Any] = [values[index] for index in self._order]
        # the check looks at nothing but shapes, and takes longer than small programs
        shapes = tuple([tensor.shape for tensor in flat])
        if shapes not in self._passed:
            self._guards(*flat)
            if len(self._passed) >= _MAX_PASSED:
                self._passed.clear()
            self._passed.add(shapes)
        given: Sequence[Any] = self._run(*flat)
        return given

    def close(self) -> None:
        """Give back the weights now: the module is part of a cycle, which lives until the garbage is collected."""
        for tensor in (*self._module.parameters(), *self._module.buffers()):
            # what is a view of the old memory keeps that
            tensor.data = torch.empty(0, dtype=tensor.dtype)


def _is_mutable(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return bool(schema is not None and schema.is_mutable)


def _flattened(program: torch.export.ExportedProgram) -> tuple[torch.fx.GraphModule, Callable[..., Any]]:
    """The program as a module whose inputs and outputs are flat, and what checks the shapes of inputs for it.

    PyTorch's own module of a program takes trees apart and puts them together in Python, and checks each call's.
    """
    module = program.module()
    graph = module.graph
    in_spec = program.call_spec.in_spec
    assert in_spec is not None
    guards: Callable[..., Any] | None = None
    for node in graph.find_nodes(op="call_module", target="_guards_fn"):
        guards = module.get_submodule("_guards_fn")
        graph.erase_node(node)
    if guards is None:  # a program that was saved without its example
        paths = [path for path, _ in leaves(in_spec)]
        placeholders = graph.find_nodes(op="placeholder")

        def guards(*flat: torch.Tensor) -> None:
            _check_input_constraints_for_graph(
                placeholders, list(zip(paths, flat, strict=True)), program.range_constraints
            )

    graph.set_codegen(torch.fx.graph.CodeGen())
    # a module without the hooks of the old one, which expect trees
    return torch.fx.GraphModule(module, graph), guards


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
