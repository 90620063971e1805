"""Write BERT as TorchScript and as ONNX, and five archives of it: `python -m examples.bert.build`.

Below DIRECTORY, build/bert by default, go

* `models`: the repository, with `bert_torchscript` and `bert_onnx`;
* `tokenizer.json` and `answers.npz`: what PyTorch gives for each of the texts, one at a time and without padding;
* `archives`: `bert_0.tar.gz` to `bert_4.tar.gz`, the ONNX model as it would lie in a bucket, five times;
* `sagemaker`: an empty directory, which stands for `/opt/ml`.

It is BERT's base size with random weights, always the same, unless `--weights` names a checkpoint.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertModel

from examples.bert.texts import KNOWN, TEXTS, load_tokenizer, small_tokenizer
from examples.exports import exported, new_repository, save_onnx, save_torchscript

HERE = Path(__file__).parent
INPUTS = ["input_ids", "attention_mask"]
OUTPUTS = ["last_hidden_state", "pooler_output"]
COPIES = 5


class Encoder(torch.nn.Module):
    """`input_ids`, `attention_mask` INT64 [batch, tokens] → FP32 [batch, tokens, width], [batch, width]."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.bert = bert

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The vectors of the tokens, and that of the text."""
        hidden, pooled = self.bert(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)
        return hidden, pooled


def load(weights: Path | None) -> Encoder:
    """BERT with the weights of a checkpoint, or BERT base with random ones."""
    torch.manual_seed(0)
    bert = BertModel.from_pretrained(weights, dtype=torch.float32) if weights else BertModel(BertConfig())
    return Encoder(bert).eval()


def build(directory: Path, encoder: Encoder, tokenizer: Path | None) -> None:
    """Write everything into the directory, anew."""
    repository = new_repository(directory, HERE / "models")
    ids = torch.arange(24).reshape(2, 12)
    example = [ids, torch.ones_like(ids)]
    save_torchscript(encoder, example, repository / "bert_torchscript" / "1" / "model.pt")
    tokens = torch.export.Dim("tokens", max=encoder.bert.config.max_position_embeddings)
    program = exported(encoder, example, [{0: torch.export.Dim("batch"), 1: tokens}] * 2)
    save_onnx(program, INPUTS, OUTPUTS, repository / "bert_onnx" / "1" / "model.onnx")

    if tokenizer is not None:
        shutil.copyfile(tokenizer, directory / "tokenizer.json")
    else:
        small_tokenizer(KNOWN).save(str(directory / "tokenizer.json"))
    np.savez(directory / "answers.npz", **answers(encoder, directory / "tokenizer.json"))
    write_archives(repository / "bert_onnx", directory / "archives")
    (directory / "sagemaker" / "models").mkdir(parents=True, exist_ok=True)


def answers(encoder: Encoder, tokenizer: Path) -> dict[str, Any]:
    """`hidden_N` FP32 [tokens, width] and `pooled_N` FP32 [width] of text N."""
    found = {}
    for index, encoding in enumerate(load_tokenizer(tokenizer).encode_batch(TEXTS)):
        ids = torch.tensor([encoding.ids])
        with torch.inference_mode():
            hidden, pooled = encoder(ids, torch.ones_like(ids))
        found[f"hidden_{index}"], found[f"pooled_{index}"] = hidden[0].numpy(), pooled[0].numpy()
    return found


def write_archives(model: Path, directory: Path) -> None:
    """Pack the model, and give the archive five names; the file is there once."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    first = directory / "bert_0.tar.gz"
    subprocess.run([sys.executable, "-m", "halimede", "pack", str(model), f"--output={first}"], check=True)
    for index in range(1, COPIES):
        os.link(first, directory / f"bert_{index}.tar.gz")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, nargs="?", default=Path("build/bert"))
    parser.add_argument("--weights", type=Path, help="a checkpoint: the directory that save_pretrained wrote")
    arguments = parser.parse_args()
    weights: Path | None = arguments.weights
    tokenizer = weights / "tokenizer.json" if weights else None
    build(arguments.directory, load(weights), tokenizer if tokenizer and tokenizer.exists() else None)
    print(f"{arguments.directory}: {', '.join(sorted(path.name for path in arguments.directory.iterdir()))}")


if __name__ == "__main__":
    main()
