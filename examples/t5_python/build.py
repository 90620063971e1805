"""Train a small T5 and write the repository: `python -m examples.t5_python.build [DIRECTORY]`.

The model goes to DIRECTORY/models, build/t5-python/models by default, with its checkpoint as `transformers` saves it.
"""

import argparse
import shutil
from pathlib import Path

from transformers.utils import logging

from examples.t5_python.number_words import NUMBERS, PREFIX, english, german, held_out
from examples.t5_python.training import make_model, make_tokenizer, train

HERE = Path(__file__).parent
STEPS = 1200


def build(directory: Path, numbers: int = NUMBERS, steps: int = STEPS) -> str:
    """Write the model, anew; how training went.

    Args:
        directory: where `models` goes.
        numbers: the model is for numbers below that one.
        steps: batches that it is trained with.
    """
    repository = directory / "models"
    logging.disable_progress_bar()
    shutil.rmtree(repository, ignore_errors=True)
    shutil.copytree(HERE / "models", repository, ignore=shutil.ignore_patterns("__pycache__"))
    unseen = held_out(numbers)
    pairs = [(PREFIX + english(one), german(one)) for one in range(numbers) if one not in unseen]
    tokenizer = make_tokenizer(pairs)
    model = make_model(tokenizer)
    loss = train(model, tokenizer, pairs, steps)
    checkpoint = repository / "t5" / "1" / "checkpoint"
    model.save_pretrained(checkpoint)
    tokenizer.save_pretrained(checkpoint)
    return (
        f"T5 of {model.num_parameters()} weights, {steps} steps on {len(pairs)} pairs, last loss {loss:.4f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=Path("build/t5-python"))
    parser.add_argument("--numbers", type=int, default=NUMBERS, help="translate numbers below this one")
    parser.add_argument("--steps", type=int, default=STEPS, help="batches of training")
    arguments = parser.parse_args()
    print(build(arguments.directory, arguments.numbers, arguments.steps))
    print(f"{arguments.directory / 'models'}: t5")
