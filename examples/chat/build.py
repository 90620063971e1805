"""Make a small language model from the project's pages: `python -m examples.chat.build [DIRECTORY]`.

The model goes to DIRECTORY/models, build/chat/models by default.
"""

import argparse
import shutil
from pathlib import Path
from time import monotonic

from transformers.utils import logging

from examples.chat.language_model import KINDS, make_model, make_tokenizer, save, train
from examples.chat.pages import read_turns

HERE = Path(__file__).parent
STEPS = 400


def build(directory: Path, steps: int = STEPS, kind: str = KINDS[0]) -> str:
    """Write the model, anew; what it is, and how training went.

    Args:
        directory: where `models` goes.
        steps: batches that it is trained with; without any, its weights are random, and so is what it says.
        kind: its architecture.
    """
    repository = directory / "models"
    logging.disable_progress_bar()
    shutil.rmtree(repository, ignore_errors=True)
    shutil.copytree(HERE / "models", repository)
    turns = read_turns()
    tokenizer = make_tokenizer(text for turn in turns for text in turn)
    model = make_model(tokenizer, kind)
    told = f"a {kind} of {model.num_parameters()} weights"
    if steps:
        began = monotonic()
        loss = train(model, tokenizer, turns, steps)
        told += f", {steps} steps on {len(turns)} turns in {monotonic() - began:.0f} s, last loss {loss:.2f}"
    save(model, tokenizer, repository / "scribe" / "1")
    return told


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=Path("build/chat"))
    parser.add_argument("--steps", type=int, default=STEPS, help="batches of training")
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0], help="architecture (default %(default)s)")
    arguments = parser.parse_args()
    print(build(arguments.directory, arguments.steps, arguments.kind))
    print(f"{arguments.directory / 'models'}: scribe")
