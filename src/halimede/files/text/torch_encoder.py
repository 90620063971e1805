"""The PyTorch module of a text model whose architecture only `transformers` knows."""

from pathlib import Path
from typing import Final

from halimede.files.targets import TargetError
from halimede.files.text.checkpoint import Scores, TextModel

CHECKPOINT: Final = "checkpoint"
_HEAD: Final = '''"""Written by Halimede: the model in checkpoint/, and the last steps to its answer."""

from pathlib import Path

import torch
from transformers import {loader}


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        directory = Path(__file__).parent / "checkpoint"
        self.model = {loader}.from_pretrained(directory, dtype=torch.float32, local_files_only=True)

    def forward(self, input_ids, attention_mask):
'''
_STATES: Final = """\
        states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(states.dtype)
"""
_POOLING: Final = {
    "cls": "states[:, 0]",
    "max": "states.masked_fill(mask == 0, -torch.inf).amax(1)",
    "mean": "(states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)",
    "mean_sqrt_len_tokens": "(states * mask).sum(1) / mask.sum(1).clamp(min=1e-9).sqrt()",
    "weightedmean": "(states * mask * mask.cumsum(1)).sum(1) / (mask * mask.cumsum(1)).sum(1).clamp(min=1e-9)",
    "lasttoken": "states[torch.arange(len(states)), (attention_mask.sum(1) - 1).clamp(min=0)]",
}
_SCORES: Final = {Scores.SOFTMAX: ".softmax(-1)", Scores.SIGMOID: ".sigmoid()", Scores.LOGITS: ""}


def write_module(model: TextModel, version: Path) -> None:
    """Write `model.py` into the directory of a version, and links to the checkpoint's files beside it.

    Raises:
        TargetError: there are no weights, or they need code of their own.
    """
    if "auto_map" in model.config:
        raise TargetError(
            f"'{model.directory / 'config.json'}' needs code that comes with the checkpoint (auto_map), which is not "
            "run; export the model to ONNX, as model.onnx in the same directory"
        )
    suffixes = (".safetensors", ".bin", ".json")
    files = [
        each
        for each in model.directory.iterdir()
        if each.name == "config.json"
        or (each.name.startswith(("model", "pytorch_model")) and each.suffix in suffixes)
    ]
    if not any(each.suffix in (".safetensors", ".bin") for each in files):
        raise TargetError(
            f"'{model.directory}' has neither model.onnx nor openvino_model.xml nor weights (model.safetensors)"
        )
    checkpoint = version / CHECKPOINT
    checkpoint.mkdir()
    for each in files:
        (checkpoint / each.name).symlink_to(each.absolute())
    (version / "model.py").write_text(module_text(model))


def module_text(model: TextModel) -> str:
    """The text of `model.py`."""
    if model.labels:
        head = _HEAD.format(loader="AutoModelForSequenceClassification")
        logits = "self.model(input_ids=input_ids, attention_mask=attention_mask).logits"
        return f"{head}        return {logits}{_SCORES[model.scores]}\n"
    parts = [_POOLING[mode] for mode in model.pooling]
    vectors = parts[0] if len(parts) == 1 else f"torch.cat([{', '.join(parts)}], -1)"
    text = _HEAD.format(loader="AutoModel") + _STATES + f"        vectors = {vectors}\n"
    return text + (
        "        return torch.nn.functional.normalize(vectors, dim=-1)\n"
        if model.normalise
        else "        return vectors\n"
    )
