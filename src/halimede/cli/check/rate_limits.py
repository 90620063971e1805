"""The flags of the rate limiter: `--rate-limit` and `--rate-limit-resource`."""

from collections.abc import Iterable

import click

from halimede.cli.options import ServeOptions
from halimede.cli.settings import COUNT, INT
from halimede.engine.settings import ResourceLimit

_EACH_DEVICE = -1


def resource_limits(entries: Iterable[str]) -> tuple[ResourceLimit, ...]:
    """How much there is of each resource, by the entries NAME:COUNT or NAME:COUNT:DEVICE.

    Raises:
        click.UsageError: an entry is not of that form; the text says what would be right.
    """
    return tuple(_resource_limit(entry) for entry in entries)


def resource_remarks(options: ServeOptions) -> list[str]:
    """What to warn of, if resources are given that nothing limits."""
    if options.rate_limit_resource and options.rate_limit == "off":
        return ["--rate-limit-resource has no effect without --rate-limit=execution_count"]
    return []


def _resource_limit(entry: str) -> ResourceLimit:
    name, *numbers = entry.split(":")
    if not name or len(numbers) not in (1, 2):
        msg = (
            "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
            f"'<resource_name>:<count>'. Got {entry}"
        )
        raise click.UsageError(msg)
    try:
        count = COUNT.parse(numbers[0])
    except ValueError as error:
        msg = f"--rate-limit-resource={entry}: the count: {error}"
        raise click.UsageError(msg) from None
    try:
        device = INT.parse(numbers[1]) if numbers[1:] else _EACH_DEVICE
        if device < _EACH_DEVICE:
            raise ValueError(f"{device} is no device; leave it out for the same count on each")
    except ValueError as error:
        msg = f"--rate-limit-resource={entry}: the device: {error}"
        raise click.UsageError(msg) from None
    return ResourceLimit(name, count, None if device == _EACH_DEVICE else device)
