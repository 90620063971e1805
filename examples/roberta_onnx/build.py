"""Write RoBERTa as ONNX, for several configurations: `python -m examples.roberta_onnx.build`.

Below DIRECTORY, build/roberta-onnx by default, go `models`, the repository, in which all models share one file, and
`answer.npz`: texts as tokens, and what PyTorch makes of them. It is RoBERTa's base size with random weights, always the
same, unless `--weights` names a checkpoint.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from transformers import RobertaConfig, RobertaModel

from examples.exports import exported, new_repository, save_onnx
from examples.roberta_onnx.tokens import tokens

HERE = Path(__file__).parent
DEFAULT = "roberta_default"
TEXTS = ["Halimede is a moon of Neptune.", "Short.", "Its bytes are its tokens here: 日本語."]


class Encoder(torch.nn.Module):
    """`input_ids`, `attention_mask` INT64 [batch, tokens] → FP32 [batch, tokens, width]."""

    def __init__(self, roberta: RobertaModel) -> None:
        super().__init__()
        self.roberta = roberta

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """The vectors of the tokens."""
        found: torch.Tensor = self.roberta(
            input_ids=input_ids, attention_mask=attention_mask, return_dict=False
        )[0]
        return found


def load(weights: Path | None) -> Encoder:
    """RoBERTa with the weights of a checkpoint, or RoBERTa base with random ones."""
    torch.manual_seed(0)
    if weights is not None:
        roberta = RobertaModel.from_pretrained(weights, dtype=torch.float32, add_pooling_layer=False)
    else:
        config = RobertaConfig(max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5)
        roberta = RobertaModel(config, add_pooling_layer=False)
    return Encoder(roberta).eval()


def build(directory: Path, encoder: Encoder) -> None:
    """Write everything into the directory, anew."""
    repository = new_repository(directory, HERE / "models")
    names = ["input_ids", "attention_mask"]
    ids, mask = map(torch.from_numpy, tokens([text.encode() for text in TEXTS]))
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", max=512)}
    program = exported(encoder, [ids, mask], [free, free])
    first = repository / DEFAULT / "1" / "model.onnx"
    save_onnx(program, names, ["last_hidden_state"], first)
    for model in repository.iterdir():
        if model.name != DEFAULT:
            (model / "1").mkdir()
            os.link(first, model / "1" / "model.onnx")
    with torch.inference_mode():
        hidden = encoder(ids, mask)
    np.savez(
        directory / "answer.npz",
        input_ids=ids.numpy(),
        attention_mask=mask.numpy(),
        last_hidden_state=hidden.numpy(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, nargs="?", default=Path("build/roberta-onnx"))
    parser.add_argument("--weights", type=Path, help="a checkpoint: the directory that save_pretrained wrote")
    arguments = parser.parse_args()
    build(arguments.directory, load(arguments.weights))
    names = sorted(path.name for path in (arguments.directory / "models").iterdir())
    print(f"{arguments.directory / 'models'}: {', '.join(names)}")


if __name__ == "__main__":
    main()
