"""The parameters of Triton's FIL backend, and what they mean on a CPU."""

import logging
import math

from halimede.backends.fil.forest import ForestSpec, OutputForm
from halimede.backends.parameters import choice_parameter, integer_parameter, text_parameter
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError

logger = logging.getLogger("halimede")

_SWITCH = {"true": "1", "false": "0", "1": "1", "0": "0"}
_CHOICES = {
    "storage_type": ("AUTO", "DENSE", "SPARSE", "SPARSE8"),
    "algo": ("ALGO_AUTO", "NAIVE", "TREE_REORG", "BATCH_TREE_REORG"),
    "layout": ("depth_first", "breadth_first", "layered"),
}
_INTEGERS = {"blocks_per_sm": 0, "threads_per_tree": 1, "transfer_threshold": 0, "chunk_size": 1}
"""Keys that have no effect on a CPU, with the least value of each."""


def switch_parameter(config: ModelConfig, key: str) -> bool | None:
    """The parameter as a truth value, or None if it is not set.

    Raises:
        InvalidArgumentError: it is none.
    """
    value = choice_parameter(config, key, _SWITCH)
    return None if value is None else value == "1"


def output_form(config: ModelConfig, spec: ForestSpec) -> OutputForm:
    """What the parameters ask to be made of the forest's scores.

    Raises:
        InvalidArgumentError: a parameter has no such value, or does not go with the forest or another parameter.
    """
    where = f"model '{config.name}':"
    as_class = switch_parameter(config, "output_class")
    renamed = switch_parameter(config, "is_classifier")
    if as_class is not None and renamed is not None and as_class != renamed:
        msg = f"{where} parameters 'output_class' and 'is_classifier' are names for the same, but differ"
        raise InvalidArgumentError(msg)
    as_class = as_class or renamed or False
    scores = switch_parameter(config, "predict_proba") or False
    for asked, key in ((as_class, "output_class"), (scores, "predict_proba")):
        if asked and not spec.classifies:
            msg = f"{where} parameter '{key}' is true, but the forest is no classifier; remove the parameter"
            raise InvalidArgumentError(msg)
    threshold = _threshold(config)
    if threshold is not None and spec.scores > 2:
        msg = f"{where} parameter 'threshold' is for two classes, but the forest has {spec.scores}"
        raise InvalidArgumentError(msg)
    if as_class and not scores:
        return OutputForm(as_class=True, threshold=threshold)
    asks_for_two = [list(entry.dims) for entry in config.output] == [[2]]
    return OutputForm(both=scores and spec.scores == 1 and asks_for_two)


def _threshold(config: ModelConfig) -> float | None:
    text = text_parameter(config, "threshold")
    if text is None:
        return None
    try:
        threshold = float(text)
    except ValueError:
        threshold = math.nan
    if not math.isfinite(threshold):
        msg = f"model '{config.name}': parameter 'threshold' must be a number, got '{text}'"
        raise InvalidArgumentError(msg)
    return threshold


def warn_of_ignored_fields(config: ModelConfig) -> None:
    """Note in the log which parameters change nothing here: those that tune GPUs and memory layouts.

    Raises:
        InvalidArgumentError: one has no such value.
    """
    found = [key for key in _CHOICES if choice_parameter(config, key, {each: each for each in _CHOICES[key]})]
    found += [key for key, least in _INTEGERS.items() if integer_parameter(config, key, least) is not None]
    if switch_parameter(config, "use_experimental_optimizations") is not None:
        found.append("use_experimental_optimizations")
    if found:
        logger.info(
            "model '%s': %s tune Triton's FIL library and change nothing here, where ONNX Runtime walks the trees",
            config.name,
            ", ".join(f"'{key}'" for key in found),
        )
