"""Ask every ResNet-50 of the server about the same image, and hold the scores against PyTorch's."""

import argparse
from pathlib import Path

import numpy as np
import tritonclient.http as triton

from examples.answers import TOLERANCE, difference, tensor

PREFIX = "resnet50_"


def served_models(client: triton.InferenceServerClient) -> list[str]:
    """The networks that are ready, in alphabetical order.

    Raises:
        SystemExit: there is none.
    """
    ready = [each["name"] for each in client.get_model_repository_index() if each["state"] == "READY"]
    names = sorted(name for name in ready if name.startswith(PREFIX))
    if not names:
        raise SystemExit(f"the server has no model {PREFIX}* that is ready")
    return names


def add_tolerance(parser: argparse.ArgumentParser) -> None:
    """The option `--tolerance`: an engine that computes with fewer bits is further off."""
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        help="how far scores may be off, as a share of the largest",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
    parser.add_argument("--directory", type=Path, default=Path("build/resnet50"), help="what was built")
    add_tolerance(parser)
    arguments = parser.parse_args()

    answer = np.load(arguments.directory / "answer.npz")
    with triton.InferenceServerClient(arguments.http, network_timeout=600) as client:
        for name in served_models(client):
            scores = client.infer(name, [tensor("image", answer["image"])]).as_numpy("scores")
            found = difference(scores, answer["scores"], arguments.tolerance)
            best = ", ".join(f"{index} ({scores[0, index]:.2f})" for index in np.argsort(-scores[0])[:3])
            print(f"{name}: classes {best}; largest difference {found:.1e}")


if __name__ == "__main__":
    main()
