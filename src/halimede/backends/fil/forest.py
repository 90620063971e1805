"""What a forest takes and gives: its features, its scores and how they become classes."""

from dataclasses import dataclass

import numpy as np
import treelite

from halimede.core.errors import UnsupportedError
from halimede.core.tensors import Array

_CLASSIFIERS = ("kBinaryClf", "kMultiClf")


@dataclass(frozen=True, slots=True)
class ForestSpec:
    """A forest's shape.

    Attributes:
        features: values in a row of input.
        scores: values that it computes for a row: one for each class, 1 for a binary classifier or a regressor,
            one for each target of a regressor with several.
        targets: its targets; 1 for nearly all.
        postprocessor: treelite's name of what turns sums of leaves into scores.
        classifies: its scores stand for classes.
    """

    features: int
    scores: int
    targets: int
    postprocessor: str
    classifies: bool

    @classmethod
    def of(cls, forest: treelite.Model) -> "ForestSpec":
        """The shape of a loaded forest.

        Raises:
            UnsupportedError: it classifies, or ranks, by several targets at once.
        """
        header = forest.get_header_accessor()
        classes = header.get_field("num_class")
        targets, most = len(classes), int(max(classes))
        if targets > 1 and most > 1:
            msg = (
                f"the forest has {targets} targets with up to {most} classes each; classifiers may have one "
                f"target only. Save a model a target"
            )
            raise UnsupportedError(msg)
        postprocessor = str(header.get_field("postprocessor"))
        return cls(
            features=forest.num_feature,
            scores=most if targets == 1 else targets,
            targets=targets,
            postprocessor=postprocessor,
            classifies=targets == 1 and (_task(forest) in _CLASSIFIERS or postprocessor == "sigmoid"),
        )


@dataclass(frozen=True, slots=True)
class OutputForm:
    """What becomes of the scores of a row.

    Attributes:
        as_class: the number of the class, not its score.
        threshold: (two classes, `as_class`) the score of class 1 that must be exceeded for it; None for the usual.
        both: (one score for two classes) the scores of both classes, not of class 1 alone.
    """

    as_class: bool = False
    threshold: float | None = None
    both: bool = False

    def width(self, spec: ForestSpec) -> int:
        """Values in a row of output."""
        if self.as_class:
            return 1
        return 2 if self.both else spec.scores

    def apply(self, scores: Array) -> Array:
        """The output.

        Args:
            scores: FP32 of shape ``[rows, scores]``.
        """
        if self.both:
            return np.concatenate([1 - scores, scores], axis=1, dtype=np.float32)
        if not self.as_class:
            return scores
        if scores.shape[1] == 1 or self.threshold is not None:
            threshold = 0.5 if self.threshold is None else self.threshold
            return (scores[:, -1:] > np.float32(threshold)).astype(np.float32)
        classes: Array = scores.argmax(axis=1, keepdims=True).astype(np.float32)
        return classes


_TASKS = ("kBinaryClf", "kRegressor", "kMultiClf", "kLearningToRank", "kIsolationForest")


def _task(forest: treelite.Model) -> str:
    """Treelite's name of what the forest was trained for."""
    return _TASKS[int(forest.get_header_accessor().get_field("task_type")[0])]
