"""What the tests of the rate limiter declare."""

from google.protobuf import text_format

from halimede.config.model_config_pb2 import ModelRateLimiter


def needing(*resources: str, priority: int = 0) -> ModelRateLimiter:
    """A declaration of resources, each as ``NAME:COUNT``, or ``NAME:COUNT:global``."""
    text = f"priority: {priority} "
    for each in resources:
        name, count, *scope = each.split(":")
        text += f'resources {{ name: "{name}" count: {count} global: {str(bool(scope)).lower()} }} '
    return text_format.Parse(text, ModelRateLimiter())
