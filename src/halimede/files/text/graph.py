"""An ONNX graph as it grows, and the last steps of a text model: pooling, normalisation, scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from halimede.core.tensors import Array
from halimede.files.text.checkpoint import Scores

LOWEST = float(np.finfo(np.float32).min)


class Graph:
    """Nodes and constants; each method gives the name of what it computes."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The output of a new node."""
        output = f"halimede_{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def constant(self, name: str, value: Any, dtype: Any = None) -> str:
        """A tensor that is part of the model."""
        self.constants[name] = np.asarray(value, dtype)
        return name

    def initializers(self) -> list[onnx.TensorProto]:
        """The constants, as a graph has them."""
        return [numpy_helper.from_array(value, name) for name, value in self.constants.items()]

    def pooled(self, states: str, mask: str, modes: Sequence[str], *, normalise: bool) -> str:
        """The vectors [rows, width] of states [rows, tokens, width]; mask [rows, tokens] is 1 where tokens are."""
        parts = [self._pooled(mode, states, self.node("Cast", mask, to=TensorProto.FLOAT)) for mode in modes]
        vectors = parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=-1)
        if not normalise:
            return vectors
        lengths = self.node("ReduceL2", vectors, axes=[-1], keepdims=1)
        least = self.constant("halimede_least", 1e-12, np.float32)
        return self.node("Div", vectors, self.node("Max", lengths, least))

    def _pooled(self, mode: str, states: str, weights: str) -> str:
        if mode == "cls":
            return self.node("Gather", states, self.constant("halimede_first", 0, np.int64), axis=1)
        if mode == "max":
            column = self.node("Unsqueeze", weights, self.constant("halimede_last", [-1], np.int64))
            absent = self.node("Sub", self.constant("halimede_one", 1, np.float32), column)
            penalty = self.node("Mul", absent, self.constant("halimede_lowest", LOWEST, np.float32))
            present = self.node("Add", self.node("Mul", states, column), penalty)
            return self.node("ReduceMax", present, axes=[1], keepdims=0)
        tokens = self.constant("halimede_tokens", [1], np.int64)
        if mode == "lasttoken":
            first = self.constant("halimede_first", 0, np.int64)
            count = self.node(
                "Cast", self.node("ReduceSum", weights, tokens, keepdims=1), to=TensorProto.INT64
            )
            index = self.node("Sub", count, self.constant("halimede_step", 1, np.int64))
            index = self.node("Max", index, first)
            return self.node("GatherND", states, index, batch_dims=1)
        if mode == "weightedmean":
            none = self.constant("halimede_axis", 1, np.int64)
            weights = self.node("Mul", weights, self.node("CumSum", weights, none))
        row = self.node("Unsqueeze", weights, tokens)
        total = self.node("Squeeze", self.node("MatMul", row, states), tokens)
        count = self.node("ReduceSum", weights, tokens, keepdims=1)
        count = self.node("Max", count, self.constant("halimede_few", 1e-9, np.float32))
        return self.node("Div", total, self.node("Sqrt", count) if mode == "mean_sqrt_len_tokens" else count)

    def scores(self, logits: str, scores: Scores) -> str:
        """What a classifier answers, [rows, classes]."""
        if scores is Scores.LOGITS:
            return logits
        return (
            self.node("Softmax", logits, axis=-1)
            if scores is Scores.SOFTMAX
            else self.node("Sigmoid", logits)
        )
