"""A recurrent network that predicts the next character of a text, and its training, in plain numpy."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Weights = dict[str, Array]

STORY = Path(__file__).parent / "story.txt"
END = "\x00"
"""The character after the last one of a text."""

SEED = 0
HIDDEN = 128
BATCH = 32
WINDOW = 64
LEARNING_RATE = 4e-3
LARGEST_GRADIENT = 1.0


def train(text: str, steps: int) -> tuple[Weights, str, float]:
    """Weights that continue the text from any place, the characters that they know, and the last loss.

    Returns:
        `weights`: `embed` (characters, hidden), `recur` (hidden, hidden), `bias` (hidden), `project` (hidden,
        characters), `offset` (characters), all float32.
    """
    text += END
    characters = "".join(sorted(set(text)))
    indices = np.array([characters.index(character) for character in text])
    random = np.random.default_rng(SEED)
    weights = _begin(len(characters), random)
    means = {name: np.zeros_like(value) for name, value in weights.items()}
    squares = {name: np.zeros_like(value) for name, value in weights.items()}
    loss = float("nan")
    for step in range(1, steps + 1):
        starts = random.integers(0, len(indices) - WINDOW, BATCH)
        starts[0] = len(indices) - WINDOW - 1  # the end is in each batch
        rows = indices[starts[:, None] + np.arange(WINDOW + 1)]
        loss, gradients = _gradients(weights, rows)
        rate = LEARNING_RATE * min(1.0, 2 * (1 - step / (steps + 1)))
        _adam(weights, gradients, means, squares, step, rate)
    return weights, characters, loss


def _begin(characters: int, random: np.random.Generator) -> Weights:
    shapes = {"embed": (characters, HIDDEN), "recur": (HIDDEN, HIDDEN), "project": (HIDDEN, characters)}
    scale = HIDDEN**-0.5
    weights = {name: random.normal(0, scale, shape).astype(np.float32) for name, shape in shapes.items()}
    weights["bias"] = np.zeros(HIDDEN, np.float32)
    weights["offset"] = np.zeros(characters, np.float32)
    return weights


def _gradients(weights: Weights, rows: Array) -> tuple[float, Weights]:
    """Mean cross-entropy of the characters after the first, and its gradients: back-propagation through time."""
    inputs, targets = rows[:, :-1].T, rows[:, 1:].T  # time first
    states = np.zeros((len(inputs) + 1, rows.shape[0], HIDDEN), np.float32)
    for time, characters in enumerate(inputs):
        states[time + 1] = np.tanh(
            weights["embed"][characters] + states[time] @ weights["recur"] + weights["bias"]
        )
    logits = states[1:] @ weights["project"] + weights["offset"]
    logits -= logits.max(-1, keepdims=True)
    errors = np.exp(logits)
    errors /= errors.sum(-1, keepdims=True)
    loss = float(-np.log(np.take_along_axis(errors, targets[..., None], -1)).mean())
    np.put_along_axis(errors, targets[..., None], np.take_along_axis(errors, targets[..., None], -1) - 1, -1)
    errors /= targets.size

    gradients = {name: np.zeros_like(value) for name, value in weights.items()}
    gradients["project"] = np.tensordot(states[1:], errors, ([0, 1], [0, 1]))
    gradients["offset"] = errors.sum((0, 1))
    by_state = errors @ weights["project"].T
    later = np.zeros_like(states[0])
    for time in reversed(range(len(inputs))):
        inner = (by_state[time] + later) * (1 - states[time + 1] ** 2)
        np.add.at(gradients["embed"], inputs[time], inner)
        gradients["recur"] += states[time].T @ inner
        gradients["bias"] += inner.sum(0)
        later = inner @ weights["recur"].T
    return loss, gradients


def _adam(
    weights: Weights, gradients: Weights, means: Weights, squares: Weights, step: int, rate: float
) -> None:
    """Change the weights a little."""
    norm = np.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
    for name, gradient in gradients.items():
        gradient *= min(1.0, LARGEST_GRADIENT / norm)
        means[name] += 0.1 * (gradient - means[name])
        squares[name] += 0.01 * (gradient**2 - squares[name])
        mean, square = means[name] / (1 - 0.9**step), squares[name] / (1 - 0.99**step)
        weights[name] -= rate * mean / (np.sqrt(square) + 1e-8)


def write(weights: Weights, characters: str, prompt: str, most: int = 1000) -> str:
    """What the network writes after the prompt, one text at a time: what the server's answers are held against."""
    state = np.zeros(HIDDEN, np.float32)
    for character in prompt:
        embedding = weights["embed"][characters.index(character)]
        state = np.tanh(embedding + state @ weights["recur"] + weights["bias"])
    written = ""
    while len(written) < most:
        best = int(np.argmax(state @ weights["project"] + weights["offset"]))
        if characters[best] == END:
            break
        written += characters[best]
        state = np.tanh(weights["embed"][best] + state @ weights["recur"] + weights["bias"])
    return written
