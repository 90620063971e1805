"""BERT and RoBERTa as ONNX graphs, made of their weights alone: neither PyTorch nor an exporter is needed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from onnx import TensorProto
from safetensors import safe_open

from halimede.core.tensors import Array
from halimede.files.targets import TargetError
from halimede.files.text.checkpoint import TextModel, is_roberta
from halimede.files.text.graph import LOWEST, Graph

INPUTS: Final = ("input_ids", "attention_mask")
_WORDS: Final = "embeddings.word_embeddings.weight"
_OLD_NAMES: Final = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def read_weights(file: Path) -> dict[str, Array]:
    """The weights of a `model.safetensors`, in FP32, by their names without the model's own prefix.

    Raises:
        TargetError: the file cannot be read.
    """
    try:
        with safe_open(file, "numpy") as opened:
            names = list(opened.keys())
            prefix = next((name.removesuffix(_WORDS) for name in names if name.endswith(_WORDS)), "")
            weights = {}
            for name in names:
                plain = name.removeprefix(prefix)
                for old, new in _OLD_NAMES.items():
                    plain = plain.replace(old, new)
                weights[plain] = np.asarray(opened.get_tensor(name)).astype(np.float32, copy=False)
    except Exception as error:  # safetensors' errors have no common base
        raise TargetError(f"'{file}' cannot be read: {error}") from None
    return weights


class BertGraph(Graph):
    """The graph of `input_ids` and `attention_mask`, INT64 [rows, tokens]."""

    def __init__(self, weights: Mapping[str, Array], model: TextModel) -> None:
        super().__init__()
        self.weights = weights
        self.model = model
        self.config = model.config

    def weight(self, name: str) -> Array:
        """One of the weights.

        Raises:
            TargetError: it is not there.
        """
        try:
            return self.weights[name]
        except KeyError:
            raise TargetError(f"'{self.model.directory}': the weights lack '{name}'") from None

    def states(self) -> str:
        """The vectors [rows, tokens, width] of the last layer."""
        x = self._embeddings("input_ids")
        penalty = self._penalty("attention_mask")
        for index in range(self.config["num_hidden_layers"]):
            layer = f"encoder.layer.{index}"
            x = self._feed_forward(self._attention(x, penalty, layer), layer)
        return x

    def logits(self, states: str) -> str:
        """What the classifier says, [rows, classes], by the first token."""
        first = self.node("Gather", states, self.constant("first", 0, np.int64), axis=1)
        dense, out = ("classifier.dense", "classifier.out_proj")
        if not is_roberta(self.config):
            dense, out = ("pooler.dense", "classifier")
        return self._linear(self.node("Tanh", self._linear(first, dense)), out)

    def _linear(self, x: str, *names: str) -> str:
        """Dense layers side by side; checkpoints have weights as [out, in], and MatMul wants them as [in, out]."""
        joined = np.concatenate([self.weight(f"{name}.weight") for name in names])
        weight = self.constant(f"{names[0]}.weight", np.ascontiguousarray(joined.T))
        bias = self.constant(
            f"{names[0]}.bias", np.concatenate([self.weight(f"{name}.bias") for name in names])
        )
        return self.node("Add", self.node("MatMul", x, weight), bias)

    def _normalised(self, x: str, name: str) -> str:
        scale = self.constant(f"{name}.weight", self.weight(f"{name}.weight"))
        bias = self.constant(f"{name}.bias", self.weight(f"{name}.bias"))
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=self.config["layer_norm_eps"])

    def _embeddings(self, ids: str) -> str:
        """The vectors of ids. A single text is all of token type 0, whose vector is added to those of positions."""
        words = self.constant("embeddings.words", self.weight(_WORDS))
        table = self.weight("embeddings.position_embeddings.weight")
        if is_roberta(self.config):
            table = table[
                self.model.pad_id + 1 :
            ]  # texts are filled up at their end, so that all begin there
        table = table + self.weight("embeddings.token_type_embeddings.weight")[0]
        positions = self.constant("embeddings.positions", table)
        zero, one = self.constant("zero", [0], np.int64), self.constant("one", [1], np.int64)
        tokens = self.node("Slice", self.node("Shape", ids), one, self.constant("two", [2], np.int64))
        first = self.node("Slice", positions, zero, tokens)
        return self._normalised(
            self.node("Add", self.node("Gather", words, ids), first), "embeddings.LayerNorm"
        )

    def _penalty(self, mask: str) -> str:
        """What is added to the attention scores, [rows, 1, 1, tokens]: 0 for tokens, far below 0 for padding."""
        axes = self.constant("mask_axes", [1, 2], np.int64)
        present = self.node("Cast", self.node("Unsqueeze", mask, axes), to=TensorProto.FLOAT)
        absent = self.node("Sub", self.constant("unmasked", 1, np.float32), present)
        return self.node("Mul", absent, self.constant("lowest", LOWEST, np.float32))

    def _attention(self, x: str, penalty: str, layer: str) -> str:
        heads = self.config["num_attention_heads"]
        size = self.config["hidden_size"] // heads
        split = self.constant("split_heads", [0, 0, heads, size], np.int64)
        joined = self.constant("joined_heads", [0, 0, heads * size], np.int64)

        def project(role: str, order: list[int]) -> str:
            one = self._linear(x, f"{layer}.attention.self.{role}")
            return self.node("Transpose", self.node("Reshape", one, split), perm=order)

        query, key, value = (
            project("query", [0, 2, 1, 3]),
            project("key", [0, 2, 3, 1]),
            project("value", [0, 2, 1, 3]),
        )
        scale = self.constant("attention_scale", np.sqrt(size), np.float32)
        scores = self.node("Div", self.node("MatMul", query, key), scale)
        shares = self.node("Softmax", self.node("Add", scores, penalty), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", shares, value), perm=[0, 2, 1, 3])
        output = self._linear(self.node("Reshape", mixed, joined), f"{layer}.attention.output.dense")
        return self._normalised(self.node("Add", output, x), f"{layer}.attention.output.LayerNorm")

    def _feed_forward(self, x: str, layer: str) -> str:
        """Two dense layers with GELU between them, and their residual connection."""
        wide = self._linear(x, f"{layer}.intermediate.dense")
        half, unit = self.constant("half", 0.5, np.float32), self.constant("unit", 1, np.float32)
        root = self.constant("root_of_two", np.sqrt(2), np.float32)
        bell = self.node("Add", self.node("Erf", self.node("Div", wide, root)), unit)
        active = self.node("Mul", self.node("Mul", wide, bell), half)
        narrow = self._linear(active, f"{layer}.output.dense")
        return self._normalised(self.node("Add", narrow, x), f"{layer}.output.LayerNorm")
