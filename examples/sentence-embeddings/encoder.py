"""A BERT encoder as an ONNX model, made from its weights alone: neither PyTorch nor an exporter is needed."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper


class EncoderGraph:
    """The graph as it grows, node by node; each method gives the name of what it computes.

    Args:
        weights: the weights by their names in the checkpoint.
        config: the checkpoint's `config.json`.
    """

    def __init__(self, weights: Mapping[str, NDArray[np.float32]], config: Mapping[str, Any]) -> None:
        self.weights = weights
        self.config = config
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, NDArray[Any]] = {}

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The output of a new node."""
        output = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """A tensor that is part of the model."""
        self.constants[name] = value
        return name

    def linear(self, x: str, name: str) -> str:
        """A dense layer; checkpoints have weights as [out, in], and MatMul wants them as [in, out]."""
        weight = self.constant(f"{name}.weight", np.ascontiguousarray(self.weights[f"{name}.weight"].T))
        bias = self.constant(f"{name}.bias", self.weights[f"{name}.bias"])
        return self.node("Add", self.node("MatMul", x, weight), bias)

    def normalised(self, x: str, name: str) -> str:
        """A layer normalisation over the last dimension."""
        scale = self.constant(f"{name}.weight", self.weights[f"{name}.weight"])
        bias = self.constant(f"{name}.bias", self.weights[f"{name}.bias"])
        epsilon = self.config["layer_norm_eps"]
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)

    def embeddings(self, ids: str) -> str:
        """The vectors [batch, tokens, width] of ids [batch, tokens].

        A single text is all of token type 0, whose vector is therefore added to those of the positions.
        """
        prefix = "embeddings"
        words = self.constant(f"{prefix}.words", self.weights[f"{prefix}.word_embeddings.weight"])
        table = self.weights[f"{prefix}.position_embeddings.weight"]
        table = table + self.weights[f"{prefix}.token_type_embeddings.weight"][0]
        positions = self.constant(f"{prefix}.positions", table)
        zero, one = self.constant("zero", np.array([0])), self.constant("one", np.array([1]))
        tokens = self.node("Slice", self.node("Shape", ids), one, self.constant("two", np.array([2])))
        first = self.node("Slice", positions, zero, tokens)
        return self.normalised(
            self.node("Add", self.node("Gather", words, ids), first), f"{prefix}.LayerNorm"
        )

    def penalty(self, mask: str) -> str:
        """What is added to the attention scores, [batch, 1, 1, tokens]: 0 for tokens, far below 0 for padding."""
        axes = self.constant("mask_axes", np.array([1, 2]))
        padding = self.node(
            "Sub",
            self.constant("unmasked", np.array(1, np.float32)),
            self.node("Cast", self.node("Unsqueeze", mask, axes), to=TensorProto.FLOAT),
        )
        lowest = self.constant("lowest", np.array(np.finfo(np.float32).min))
        return self.node("Mul", padding, lowest)

    def attention(self, x: str, penalty: str, layer: str) -> str:
        """Self-attention with its residual connection."""
        heads = self.config["num_attention_heads"]
        size = self.config["hidden_size"] // heads
        split = self.constant("split_heads", np.array([0, 0, heads, size]))
        joined = self.constant("joined_heads", np.array([0, 0, heads * size]))

        def project(role: str, order: list[int]) -> str:
            one = self.linear(x, f"{layer}.attention.self.{role}")
            return self.node("Transpose", self.node("Reshape", one, split), perm=order)

        query = project("query", [0, 2, 1, 3])
        key = project("key", [0, 2, 3, 1])
        value = project("value", [0, 2, 1, 3])
        scale = self.constant("attention_scale", np.array(np.sqrt(size), np.float32))
        scores = self.node("Div", self.node("MatMul", query, key), scale)
        shares = self.node("Softmax", self.node("Add", scores, penalty), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", shares, value), perm=[0, 2, 1, 3])
        output = self.linear(self.node("Reshape", mixed, joined), f"{layer}.attention.output.dense")
        return self.normalised(self.node("Add", output, x), f"{layer}.attention.output.LayerNorm")

    def feed_forward(self, x: str, layer: str) -> str:
        """The two dense layers with GELU between them, and their residual connection."""
        wide = self.linear(x, f"{layer}.intermediate.dense")
        half = self.constant("half", np.array(0.5, np.float32))
        root = self.constant("root_of_two", np.array(np.sqrt(2), np.float32))
        unit = self.constant("unit", np.array(1, np.float32))
        bell = self.node("Add", self.node("Erf", self.node("Div", wide, root)), unit)
        active = self.node("Mul", self.node("Mul", wide, bell), half)
        narrow = self.linear(active, f"{layer}.output.dense")
        return self.normalised(self.node("Add", narrow, x), f"{layer}.output.LayerNorm")


def encoder_model(weights: Mapping[str, NDArray[np.float32]], config: Mapping[str, Any]) -> onnx.ModelProto:
    """A model of `input_ids` and `attention_mask`, INT64 [batch, tokens], that gives `last_hidden_state`.

    Args:
        weights: the checkpoint of a BERT model, by its names.
        config: the checkpoint's `config.json`.
    """
    graph = EncoderGraph(weights, config)
    x = graph.embeddings("input_ids")
    penalty = graph.penalty("attention_mask")
    for index in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{index}"
        x = graph.feed_forward(graph.attention(x, penalty, layer), layer)
    graph.nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"]))

    shape: list[str | int] = ["batch", "tokens"]
    hidden = [*shape, config["hidden_size"]]
    onnx_graph = helper.make_graph(
        graph.nodes,
        "encoder",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, shape)
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, hidden)],
        [numpy_helper.from_array(value, name) for name, value in graph.constants.items()],
    )
    model = helper.make_model(onnx_graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model
