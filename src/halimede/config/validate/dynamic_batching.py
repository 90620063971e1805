"""The dynamic batcher: preferred sizes, priorities, queue policies, tokens."""

from collections.abc import Iterator
from typing import Final

from halimede.config.model_config_pb2 import ModelConfig, ModelQueuePolicy
from halimede.config.token_batching import TokenBatchingError, read_limits, read_token_batching
from halimede.config.validate.problem import Problem

PREFERRED_OF_OLDEST: Final = "sequence batching preferred batch size"
_PREFERRED: Final = "dynamic batching preferred size"


def dynamic_batching_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of the dynamic batcher, those that depend on the batch size aside."""
    try:
        read_limits(config)
    except TokenBatchingError as error:
        yield _token_problem(config, error)
    if not config.HasField("dynamic_batching"):
        return
    batching = config.dynamic_batching
    where = "dynamic_batching"
    yield from preferred_size_problems(config, list(batching.preferred_batch_size), where, _PREFERRED)
    levels = batching.priority_levels
    if levels:
        if not 1 <= batching.default_priority_level <= levels:
            message = f"default priority level must be in range [1, {levels}] for {config.name}"
            fix = "default_priority_level: 1"
            yield Problem(config.name, f"{where}.default_priority_level", message, fix)
        for level in sorted(batching.priority_queue_policy):
            if not 1 <= level <= levels:
                message = (
                    f"priority queue policy must have priority level in range [1, {levels}] for {config.name}"
                )
                fix = f"priority_levels: {level}" if level else "key: 1"
                yield Problem(config.name, f"{where}.priority_queue_policy[{level}]", message, fix)
    if batching.preserve_ordering:
        yield from _ordering(config)


def batch_size_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of preferred sizes with a batch size that will not be completed any more."""
    wanted = {
        ("dynamic_batching", _PREFERRED): config.dynamic_batching.preferred_batch_size,
        (
            "sequence_batching.oldest",
            PREFERRED_OF_OLDEST,
        ): config.sequence_batching.oldest.preferred_batch_size,
    }
    for (where, subject), sizes in wanted.items():
        if any(size > config.max_batch_size for size in sizes):
            message = f"{subject} must be <= max batch size for {config.name}"
            yield Problem(
                config.name, f"{where}.preferred_batch_size", message, f"max_batch_size: {max(sizes)}"
            )


def token_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of the batch size and of the inputs whose tokens are counted; others are found before."""
    try:
        read_limits(config)
    except TokenBatchingError:
        return
    try:
        read_token_batching(config)
    except TokenBatchingError as error:
        yield _token_problem(config, error)


def _token_problem(config: ModelConfig, error: TokenBatchingError) -> Problem:
    fix = f'string_value: "{error.fix}"' if error.fix else ""
    return Problem(
        config.name,
        f'parameters["{error.parameter}"].string_value',
        f"{error.message} for {config.name}",
        fix,
    )


def preferred_size_problems(
    config: ModelConfig, sizes: list[int], where: str, subject: str
) -> Iterator[Problem]:
    """Problems of the preferred sizes of a batcher, which errors call `subject`, whatever the batch size is."""
    where = f"{where}.preferred_batch_size"
    if any(size <= 0 for size in sizes):
        good = [size for size in sizes if size > 0]
        fix = f"preferred_batch_size: {good}" if good else "remove preferred_batch_size"
        yield Problem(config.name, where, f"{subject} must be positive for {config.name}", fix)


def _ordering(config: ModelConfig) -> Iterator[Problem]:
    """Problems of keeping the order of responses, which allows no request to overtake another."""
    batching = config.dynamic_batching
    if batching.priority_levels > 1:
        message = f"Only one priority level is allowed when 'preserve_ordering' is true for {config.name}"
        yield Problem(config.name, "dynamic_batching.priority_levels", message, "preserve_ordering: false")
    policies = {"dynamic_batching.default_queue_policy": batching.default_queue_policy}
    for level in sorted(batching.priority_queue_policy):
        policies[f"dynamic_batching.priority_queue_policy[{level}]"] = batching.priority_queue_policy[level]
    for where, policy in policies.items():
        delays = policy.timeout_action == ModelQueuePolicy.DELAY
        if delays and policy.default_timeout_microseconds:
            message = (
                "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true "
                f"for {config.name}"
            )
            yield Problem(config.name, f"{where}.timeout_action", message, "timeout_action: REJECT")
