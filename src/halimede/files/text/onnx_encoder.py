"""The ONNX file of a text model, from its inputs to the answer: pooling, normalisation and scores are part of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import onnx
from onnx import TensorProto, helper, version_converter

from halimede.files.targets import TargetError
from halimede.files.text.bert import INPUTS, BertGraph, read_weights
from halimede.files.text.checkpoint import TextModel
from halimede.files.text.graph import Graph

_OPSET: Final = 17
_KNOWN_INPUTS: Final = (*INPUTS, "token_type_ids")
_STATES: Final = ("token_embeddings", "last_hidden_state")
_ONE_FILE: Final = 1_500_000_000
"""A larger model has its weights in a file of their own: protobuf ends at 2 GB."""


def build_from_weights(model: TextModel, file: Path, output: str) -> tuple[str, ...]:
    """Write the ONNX file of a BERT model to `file`; the result is the names of its inputs.

    Raises:
        TargetError: the weights cannot be read, or do not fit the configuration.
    """
    graph = BertGraph(read_weights(model.directory / "model.safetensors"), model)
    states = graph.states()
    answer = _answer(graph, model, graph.logits(states) if model.labels else states, INPUTS[1])
    _write(_model(graph, INPUTS, answer, output, model), file)
    return INPUTS


def build_from_onnx(model: TextModel, source: Path, file: Path, output: str) -> tuple[str, ...]:
    """Write the ONNX model at `source`, completed to its answer, to `file`; the result is the names of its inputs.

    Raises:
        TargetError: it cannot be read, or has other inputs and outputs than text models have.
    """
    try:
        whole = onnx.load(source)
    except Exception as error:  # protobuf's errors, and onnx's
        raise TargetError(f"'{source}' is no ONNX model: {error}") from None
    inputs = tuple(each.name for each in whole.graph.input)
    check_inputs(source, inputs)
    ranks = {each.name: len(each.type.tensor_type.shape.dim) for each in whole.graph.output}
    taken = source_output(model, source, ranks)
    opset = next(each.version for each in whole.opset_import if each.domain in ("", "ai.onnx"))
    head = head_of(model, taken, output)
    if opset != _OPSET:
        head = version_converter.convert_version(head, opset)
    whole.graph.node.extend(head.graph.node)
    whole.graph.initializer.extend(head.graph.initializer)
    del whole.graph.output[:]
    whole.graph.output.extend(head.graph.output)
    _write(whole, file)
    return inputs


def check_inputs(source: Path, inputs: Sequence[str]) -> None:
    """Return if these are the inputs of a text model.

    Raises:
        TargetError: they are others.
    """
    if not set(INPUTS) <= set(inputs) <= set(_KNOWN_INPUTS):
        raise TargetError(
            f"'{source}' has inputs {', '.join(inputs)}; needed are input_ids and attention_mask, and token_type_ids "
            "may be there"
        )


def head_of(model: TextModel, source: str, output: str) -> onnx.ModelProto:
    """The graph from an encoder's output `source`, and `attention_mask`, to the answer."""
    graph = Graph()
    done = not model.labels and source == "sentence_embedding"
    answer = graph.node("Identity", source) if done else _answer(graph, model, source, INPUTS[1])
    return _model(graph, (INPUTS[1],), answer, output, model, also=(source,))


def source_output(model: TextModel, source: Path, outputs: Mapping[str, int]) -> str:
    """The output that the answer is made of.

    Args:
        model: what is said about it.
        source: its file.
        outputs: name → number of dimensions.

    Raises:
        TargetError: there is none.
    """
    wanted = ("logits",) if model.labels else ("sentence_embedding", *_STATES)
    for name in wanted:
        if name in outputs:
            return name
    rank = 2 if model.labels else 3
    fitting = [name for name, dims in outputs.items() if dims == rank]
    if len(fitting) != 1:
        raise TargetError(
            f"'{source}' has outputs {', '.join(outputs)}; needed is one of {', '.join(wanted)}"
        )
    return fitting[0]


def _answer(graph: Graph, model: TextModel, source: str, mask: str) -> str:
    if model.labels:
        return graph.scores(source, model.scores)
    return graph.pooled(source, mask, model.pooling, normalise=model.normalise)


def width_of(model: TextModel) -> int:
    """How many numbers the answer to a text has."""
    if model.labels:
        return len(model.labels)
    return int(model.config["hidden_size"]) * len(model.pooling)


def _model(
    graph: Graph, inputs: Sequence[str], answer: str, output: str, model: TextModel, also: Sequence[str] = ()
) -> onnx.ModelProto:
    graph.nodes.append(helper.make_node("Identity", [answer], [output]))
    proto = helper.make_graph(
        graph.nodes,
        "text",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["rows", "tokens"]) for name in inputs]
        + [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in also],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["rows", width_of(model)])],
        graph.initializers(),
    )
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)


def _write(model: onnx.ModelProto, file: Path) -> None:
    large = model.ByteSize() > _ONE_FILE
    onnx.save(model, str(file), save_as_external_data=large, location=f"{file.name}.data" if large else None)
