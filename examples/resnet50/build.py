"""Write ResNet-50 as TorchScript, as a program of torch.export and as ONNX: `python -m examples.resnet50.build`.

Below DIRECTORY, build/resnet50 by default, go `models`, the repository, and `answer.npz`: an image and the scores that
PyTorch gives it. The weights are random, but always the same, unless `--weights` names a file with real ones.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from examples.exports import exported, new_repository, save_exported, save_onnx, save_torchscript
from examples.resnet50.network import ResNet50, random_resnet50

HERE = Path(__file__).parent
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of the three channels, in ImageNet


def images(count: int) -> torch.Tensor:
    """Noise as images, [count, 3, 224, 224], scaled as the network wants its input."""
    pixels = torch.from_numpy(np.random.default_rng(0).random((count, 3, 224, 224), np.float32))
    return (pixels - torch.tensor(MEAN)[:, None, None]) / torch.tensor(DEVIATION)[:, None, None]


def load(weights: Path) -> ResNet50:
    """The network with the weights of a file that `torch.save` wrote, as torchvision publishes them."""
    network = ResNet50()
    network.load_state_dict(torch.load(weights, weights_only=True))
    return network.eval()


def build(directory: Path, network: ResNet50) -> None:
    """Write everything into the directory, anew."""
    repository = new_repository(directory, HERE / "models")
    example = images(2)
    save_torchscript(network, [example], repository / "resnet50_torchscript" / "1" / "model.pt")
    program = exported(network, [example], [{0: torch.export.Dim("batch")}])
    save_exported(program, repository / "resnet50_export" / "1" / "model.pt2")
    save_onnx(program, ["image"], ["scores"], repository / "resnet50_onnx" / "1" / "model.onnx")
    with torch.inference_mode():
        scores = network(example[:1])
    np.savez(directory / "answer.npz", image=example[:1].numpy(), scores=scores.numpy())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, nargs="?", default=Path("build/resnet50"))
    parser.add_argument("--weights", type=Path, help="weights as torchvision publishes them (.pth)")
    parser.add_argument("--small", action="store_true", help="a network that is quick to build, for tests")
    arguments = parser.parse_args()
    if arguments.weights is not None:
        network = load(arguments.weights)
    else:
        network = random_resnet50(images(4), small=arguments.small)
    build(arguments.directory, network)
    names = sorted(path.name for path in (arguments.directory / "models").iterdir())
    print(f"{arguments.directory / 'models'}: {', '.join(names)}")


if __name__ == "__main__":
    main()
