"""A small Llama of `transformers` as the stateful model that OpenVINO GenAI takes, with its tokenizer.

Exported here, as the usual exporter, optimum-intel, needs older packages than the rest of the tests.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import torch
from openvino import opset13
from openvino._offline_transformations import apply_make_stateful_transformation
from openvino_tokenizers import convert_tokenizer
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tests.frameworks.transformers import tiny_models


class _Decoder(torch.nn.Module):
    """The decoder, whose keys and values come in and go out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        config = model.config
        self.model, self.head = model.model, model.lm_head
        self.heads: int = config.num_attention_heads
        self.shared: int = config.num_key_value_heads
        self.size: int = config.hidden_size // self.heads
        self.register_buffer("frequencies", model.model.rotary_emb.inv_freq.clone())

    def forward(
        self, tokens: Tensor, attention_mask: Tensor, positions: Tensor, beams: Tensor, *past: Tensor
    ) -> tuple[Tensor, ...]:
        rows, new, total = tokens.shape[0], tokens.shape[1], attention_mask.shape[1]
        angles = (positions[:, :, None].float() * self.frequencies[None, None, :])[:, None]
        angles = torch.cat((angles, angles), -1)
        causal = torch.arange(total)[None, :] <= (torch.arange(new) + (total - new))[:, None]
        mask = torch.where(causal[None, None] & (attention_mask[:, None, None, :] > 0), 0.0, -1e9)
        state, kept = self.model.embed_tokens(tokens), []
        for number, layer in enumerate(self.model.layers):
            attention, normed = layer.self_attn, layer.input_layernorm(state)
            query = _rotated(
                attention.q_proj(normed).view(rows, new, self.heads, self.size).transpose(1, 2), angles
            )
            key = _rotated(
                attention.k_proj(normed).view(rows, new, self.shared, self.size).transpose(1, 2), angles
            )
            value = attention.v_proj(normed).view(rows, new, self.shared, self.size).transpose(1, 2)
            key = torch.cat((past[2 * number].index_select(0, beams), key), 2)
            value = torch.cat((past[2 * number + 1].index_select(0, beams), value), 2)
            kept += [key, value]
            keys, values = (self._spread(each, rows, total) for each in (key, value))
            mixed = scaled_dot_product_attention(query, keys, values, attn_mask=mask)
            state = state + attention.o_proj(mixed.transpose(1, 2).reshape(rows, new, -1))
            state = state + layer.mlp(layer.post_attention_layernorm(state))
        return (self.head(self.model.norm(state)), *kept)

    def _spread(self, tensor: Tensor, rows: int, total: int) -> Tensor:
        """Keys or values, once for each head that shares them."""
        each = self.heads // self.shared
        spread = tensor[:, :, None].expand(rows, self.shared, each, total, self.size)
        return spread.reshape(rows, self.heads, total, self.size)


def _rotated(tensor: Tensor, angles: Tensor) -> Tensor:
    first, second = tensor.chunk(2, -1)
    return tensor * angles.cos() + torch.cat((-second, first), -1) * angles.sin()


def export(directory: Path, adapt: Callable[[Any], None] | None = None, **settings: Any) -> Any:
    """Write the model, after `adapt` has changed it; the same as one of `transformers`."""
    model = tiny_models.make("llama", **{"hidden_size": 64, **settings})
    if adapt is not None:
        adapt(model)
    decoder = _Decoder(model)
    layers = range(model.config.num_hidden_layers)
    kept = [f"{number}.{kind}" for number in layers for kind in ("key", "value")]
    inputs = [
        "input_ids",
        "attention_mask",
        "position_ids",
        "beam_idx",
        *(f"past_key_values.{each}" for each in kept),
    ]
    outputs = ["logits", *(f"present.{each}" for each in kept)]
    past = [torch.zeros(1, decoder.shared, 3, decoder.size) for _ in kept]
    example = (
        torch.tensor([[1, 2]]),
        torch.ones(1, 5, dtype=torch.long),
        torch.tensor([[3, 4]]),
        torch.zeros(1, dtype=torch.int32),
        *past,
    )
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing looks at what is deprecated
        made = openvino.convert_model(decoder, example_input=example)
    shapes = {}
    for name, port in zip(inputs, made.inputs, strict=True):
        port.get_tensor().set_names({name})
        port.get_node().set_friendly_name(name)  # by which it is found when attention becomes paged
        shapes[port] = [-1] if name == "beam_idx" else [-1, -1]
        if name.startswith("past_key_values."):
            shapes[port] = [-1, decoder.shared, -1, decoder.size]
    for name, port in zip(outputs, made.outputs, strict=True):
        port.get_tensor().set_names({name})
    made.reshape(shapes)
    apply_make_stateful_transformation(made, dict(zip(inputs[4:], outputs[1:], strict=True)))
    _begin_empty(made, decoder)
    openvino.save_model(made, directory / "openvino_model.xml", compress_to_fp16=False)
    model.config.save_pretrained(directory)
    words = tiny_models.tokenizer()
    words.save_pretrained(directory)
    for name, each in zip(
        ("tokenizer", "detokenizer"), convert_tokenizer(words, with_detokenizer=True), strict=True
    ):
        openvino.save_model(each, directory / f"openvino_{name}.xml")
    return model


def _begin_empty(made: Any, decoder: _Decoder) -> None:
    """Let states begin without tokens, and with as many rows as the batch has."""
    shape = opset13.shape_of(made.input("input_ids").node.output(0), "i64")
    zero = opset13.constant(0, dtype=np.int64)
    rows = opset13.gather(shape, opset13.constant([0], dtype=np.int64), zero)
    rest = opset13.constant([decoder.shared, 0, decoder.size], dtype=np.int64)
    for node in made.get_ops():
        if node.get_type_name() == "ReadValue" and node.get_input_size() == 0:
            empty = opset13.broadcast(
                opset13.constant(0.0, dtype=np.float32), opset13.concat([rows, rest], 0)
            )
            node.set_arguments(empty.outputs())
    made.validate_nodes_and_infer_types()
