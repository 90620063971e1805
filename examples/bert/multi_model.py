"""Host five copies of BERT in a multi-model container: what the platform does, and what its clients get.

Each archive is extracted below the container's base directory, loaded and invoked; then all are unloaded and removed.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np

from examples.bert.client import largest_difference, padded
from examples.bert.texts import TEXTS, load_tokenizer
from examples.sagemaker.build import extract, key_of
from examples.sagemaker.client import Container


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sagemaker", default="localhost:8081", help="where the container listens")
    parser.add_argument("--directory", type=Path, default=Path("build/bert"), help="what was built")
    arguments = parser.parse_args()
    directory: Path = arguments.directory.absolute()
    tokenizer, answer = load_tokenizer(directory / "tokenizer.json"), dict(np.load(directory / "answers.npz"))
    container = Container(arguments.sagemaker)

    places = {}
    for index, archive in enumerate(sorted((directory / "archives").iterdir())):
        key = key_of(archive.name)
        places[key] = directory / "sagemaker" / "models" / key
        shutil.rmtree(places[key], ignore_errors=True)
        extract(archive, places[key] / "model")
        container.load(key, places[key] / "model", archive.name)
        inputs, tokens = padded(tokenizer, TEXTS[index])
        found = largest_difference(container.invoke(inputs, key), tokens, answer, index)
        print(f"{archive.name}: largest difference {found:.1e}")
    print(f"{len(container.models())} models are loaded")
    for key, place in places.items():
        container.unload(key)
        shutil.rmtree(place)
    print(f"{len(container.models())} models are loaded")


if __name__ == "__main__":
    main()
