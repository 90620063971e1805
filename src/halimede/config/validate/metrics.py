"""Changes to a model's metrics."""

import logging
from collections.abc import Iterator

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate.problem import Problem

logger = logging.getLogger("halimede")

CUSTOMIZABLE_FAMILIES = frozenset({"nv_inference_first_response_histogram_ms"})
"""Metric families whose buckets a model may set."""


def metric_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of metric controls."""
    name = config.name
    for index, control in enumerate(config.model_metrics.metric_control):
        where = f"model_metrics.metric_control[{index}]"
        family = min(CUSTOMIZABLE_FAMILIES)
        if not control.HasField("metric_identifier"):
            message = "metric control must specify 'metric_identifier'"
            fix = f'metric_identifier {{ family: "{family}" }}'
            yield Problem(name, f"{where}.metric_identifier", message, fix)
        elif not control.metric_identifier.family:
            message = "metric identifier must specify non-empty 'family'"
            yield Problem(name, f"{where}.metric_identifier.family", message, f'family: "{family}"')
        if not control.HasField("histogram_options"):
            message = "metric control must specify 'histogram_options'"
            fix = "histogram_options { buckets: [ 100, 500, 2000, 5000 ] }"
            yield Problem(name, f"{where}.histogram_options", message, fix)
        elif not control.histogram_options.buckets:
            message = "histogram options must specify non-empty 'buckets'"
            yield Problem(
                name, f"{where}.histogram_options.buckets", message, "buckets: [ 100, 500, 2000, 5000 ]"
            )


def warn_of_unknown_families(config: ModelConfig) -> None:
    """Log a warning for each metric control that has no effect, because no such family can be changed."""
    for control in config.model_metrics.metric_control:
        family = control.metric_identifier.family
        if family not in CUSTOMIZABLE_FAMILIES:
            logger.warning(
                "Metric family '%s' in 'metric_identifier' is not a customizable metric in Triton core.",
                family,
            )
