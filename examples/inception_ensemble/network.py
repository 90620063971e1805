"""Inception v3 as Keras has it, with random weights, and a last layer that tells the pictures apart.

The weights are the same each time. The last layer is solved for, not trained: across the middle between the features
that the random layers below it see in the two pictures.
"""

import numpy as np
from numpy.typing import NDArray
from tensorflow import keras

from examples.inception_ensemble.pictures import LABELS, SIZE

SEED = 0
SURENESS = 5.0
"""The log-odds of the right class for the pictures themselves."""


def inception(pictures: NDArray[np.float32]) -> keras.Model:
    """The network, pixels [rows, 299, 299, 3] to probabilities [rows, 2].

    Args:
        pictures: pixels of a picture of each class, [2, 299, 299, 3].
    """
    keras.utils.set_random_seed(SEED)
    network = keras.applications.InceptionV3(weights=None, input_shape=(SIZE, SIZE, 3), classes=len(LABELS))
    last = network.layers[-1]
    first, second = np.asarray(keras.Model(network.input, last.input)(pictures, training=False))
    across = first - second
    weights = SURENESS * across / (across @ across)
    middle = weights @ (first + second) / 2
    last.set_weights([np.stack([weights, -weights], 1), np.array([-middle, middle])])
    return network
