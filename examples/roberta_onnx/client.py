"""Load each RoBERTa of the server in turn, ask it and hold the answer against PyTorch's."""

import argparse
from pathlib import Path

import numpy as np
import tritonclient.http as triton

from examples.answers import difference, tensor

INPUTS = ("input_ids", "attention_mask")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
    parser.add_argument("--directory", type=Path, default=Path("build/roberta-onnx"), help="what was built")
    arguments = parser.parse_args()

    answer = np.load(arguments.directory / "answer.npz")
    inputs = [tensor(name, answer[name]) for name in INPUTS]
    texts = answer["attention_mask"].astype(bool)  # what a model says of padding counts for nothing
    with triton.InferenceServerClient(arguments.http, network_timeout=600) as client:
        for name in sorted(each["name"] for each in client.get_model_repository_index()):
            client.load_model(name)
            hidden = client.infer(name, inputs).as_numpy("last_hidden_state")
            found = difference(hidden[texts], answer["last_hidden_state"][texts])
            print(f"{name}: {hidden.shape}, largest difference {found:.1e}")
            client.unload_model(name)


if __name__ == "__main__":
    main()
