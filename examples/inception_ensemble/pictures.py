"""The pictures: two photographs, as JPEG files, which scikit-learn brings."""

from pathlib import Path

import numpy as np
import sklearn.datasets
import tensorflow
from numpy.typing import NDArray

SIZE = 299
LABELS = ("temple", "flower")

_DIRECTORY = Path(sklearn.datasets.__file__).with_name("images")


def files() -> list[Path]:
    """A picture of each class, in the order of the labels."""
    return [_DIRECTORY / "china.jpg", _DIRECTORY / "flower.jpg"]


def pixels(file: bytes) -> NDArray[np.float32]:
    """What the network takes, [299, 299, 3] from -1 to 1, as TensorFlow makes it of an image file."""
    image = tensorflow.io.decode_jpeg(file, channels=3, dct_method="INTEGER_ACCURATE")
    small = tensorflow.image.resize(image, (SIZE, SIZE), antialias=True)
    scaled: NDArray[np.float32] = (small.numpy() - 127.5) / 127.5
    return scaled
